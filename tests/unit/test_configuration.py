"""executor.conf against what oj-box takes."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oj.errors import BadSettings
from oj.executor.configuration import SLOTS_MOST, load

BOX = Path(__file__).resolve().parents[2] / "daemons" / "box" / "box.h"


def test_as_many_slots_may_be_configured_as_oj_box_has(tmp_path: Path) -> None:
    most = re.search(r"SLOTS_MAX = (\d+)", BOX.read_text())
    assert most is not None
    assert int(most[1]) == SLOTS_MOST
    path = tmp_path / "executor.conf"
    path.write_text(f"user = root\nslots = {SLOTS_MOST}\n")
    assert load(path).slots == SLOTS_MOST
    path.write_text(f"user = root\nslots = {SLOTS_MOST + 1}\n")
    with pytest.raises(BadSettings, match="slots"):
        load(path)
