"""What a passed self-test is remembered under, and where there is no room for that."""

from __future__ import annotations

import os
import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oj.executor.languages import Language
from oj.executor.selftest import make_key, prove

PLAIN = Language("x", "X", "x.x", run=("/tool", "{source}"), text=b"the file")


def test_a_self_test_runs_again_when_anything_it_depends_on_changed(tmp_path: Path) -> None:
    tool, box = tmp_path / "tool", tmp_path / "box"
    for path in (tool, box):
        path.write_text("first")
        path.chmod(0o755)
    language = replace(PLAIN, run=(str(tool), "{source}"))
    keys = [make_key(language, str(box))]
    assert make_key(language, str(box)) == keys[0]

    keys.append(make_key(replace(language, text=b"another file"), str(box)))
    tool.write_text("longer than before")
    keys.append(make_key(language, str(box)))
    os.utime(tool, ns=(1, 1))
    keys.append(make_key(language, str(box)))
    os.utime(box, ns=(1, 1))
    keys.append(make_key(language, str(box)))
    tool.unlink()
    keys.append(make_key(language, str(box)))
    assert len(set(keys)) == len(keys)


def test_an_alternative_that_is_switched_counts_as_a_change(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / name).write_text("same")
        (tmp_path / name).chmod(0o755)
        os.utime(tmp_path / name, ns=(1, 1))
    link = tmp_path / "tool"
    language = replace(PLAIN, run=(str(link),))
    link.symlink_to("one")
    first = make_key(language, "/box")
    link.unlink()
    link.symlink_to("two")
    assert make_key(language, "/box") != first


def test_an_executor_serves_though_it_cannot_note_what_works(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    pipeline: Any = None  # nothing is run: what there is was proven before
    tool, memory = tmp_path / "tool", tmp_path / "languages.json"
    tool.write_text("")
    tool.chmod(0o755)
    language = replace(PLAIN, run=(str(tool),))
    memory.write_text(f'{{"{make_key(language, "/box")}": "1.0"}}')
    (tmp_path / "languages.part").mkdir()  # as little can be written as on a full disk
    found = prove(pipeline, {"x": language}, 1, "/box", memory, threading.Event())
    assert found == {"x": "1.0"}
    assert "cannot note which languages work" in caplog.text
