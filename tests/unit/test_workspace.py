"""The trees of tasks: nothing escapes, everything is readable, nothing stays."""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import BinaryIO

import pytest

from oj.errors import Rejected
from oj.executor.cache import Cache
from oj.executor.workspace import Places
from oj.model import Data, File

BLOB = b"blob"
DIGEST = hashlib.sha256(BLOB).hexdigest()


@pytest.fixture
def places(tmp_path: Path) -> Places:
    for name in ("small", "large", "cache"):
        (tmp_path / name).mkdir()

    def fetch(digest: str, into: BinaryIO) -> int:
        return into.write(BLOB)

    cache = Cache(tmp_path / "cache", 1000, fetch)
    return Places(tmp_path / "small", tmp_path / "large", cache)


def text(name: str, content: bytes = b"x") -> File:
    return File(name, Data(content))


def left(tmp_path: Path) -> list[Path]:
    return [*(tmp_path / "small").iterdir(), *(tmp_path / "large").iterdir()]


def test_files_are_where_they_belong_and_gone_afterwards(places: Places, tmp_path: Path) -> None:
    with places.make("t", [text("a.c", b"abc"), text("d/e/f.h")], [text("data.txt")]) as made:
        source = Path(made.source)
        assert (source / "a.c").read_bytes() == b"abc"
        assert (source / "a.c").stat().st_mode & 0o777 == 0o755
        assert (source / "d/e/f.h").exists()
        assert (source / "d/e").stat().st_mode & 0o777 == 0o777
        assert not (source / "data.txt").exists()
        assert made.data and Path(made.data, "data.txt").exists()
    assert left(tmp_path) == []


def test_a_tree_with_a_blob_is_made_beside_the_cache(places: Places, tmp_path: Path) -> None:
    with places.make("t", [text("a.c")], [File("big", Data(digest=DIGEST))]) as made:
        assert made.data
        assert Path(made.data, "big").read_bytes() == BLOB
        assert Path(made.data, "big").stat().st_nlink == 2
        assert Path(made.source).is_relative_to(tmp_path / "large")
    assert left(tmp_path) == []
    assert (tmp_path / "cache" / DIGEST).exists()


@pytest.mark.parametrize(
    "name", ["../x", "/etc/x", "a/../../x", ".", "..", "", "a//b", "a/", "a/./b", "x\0y"]
)
def test_names_that_lead_elsewhere_are_refused(places: Places, tmp_path: Path, name: str) -> None:
    with pytest.raises(Rejected):
        places.make("t", [text(name)], [])
    assert left(tmp_path) == []


def test_a_repeated_name_is_an_error_and_leaves_nothing(places: Places, tmp_path: Path) -> None:
    with pytest.raises(OSError):
        places.make("t", [text("a"), text("a")], [])
    with pytest.raises(OSError):
        places.make("t", [text("a"), text("a/b")], [])
    assert left(tmp_path) == []


def test_what_a_killed_process_left_is_swept(places: Places, tmp_path: Path) -> None:
    places.make("t", [text("d/a.c")], [])
    places.make("u", [text("a.c")], [File("big", Data(digest=DIGEST))])
    assert places.sweep() == 3
    assert left(tmp_path) == []
    assert (tmp_path / "cache" / DIGEST).exists()
