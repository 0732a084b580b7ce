"""The data directory: whether there is data, whether there is room, and what was left beside it.

Nothing here removes data of a node that may be needed: what is of no use any more is set aside, in
the directory itself, because the daemon may write nowhere else.
"""

from __future__ import annotations

import shutil
from datetime import datetime
from pathlib import Path

from oj.errors import Unavailable

LEFT = "left"  # the node has left the cluster for good; written by `oj leave`
USELESS = "useless"  # why mongod cannot go on from this data
ASIDE = "set-aside-"
KEPT = "kept-"  # tasks of a node that joined another cluster; written by `oj setup`
MOST_ASIDE = 2
# mongod makes a new file of its journal at each start, 100 MiB at once, and aborts without room.
LEAST_ROOM_BYTES = 150 << 20
# A primary with less hands over: mongod refuses writes before it aborts, for up to a minute.
SCANT_ROOM_BYTES = 50 << 20
_MARKS = (LEFT, USELESS)


def is_empty(data: Path) -> bool:
    """Whether mongod would start from nothing; files that it writes first are no data yet."""
    return not data.joinpath("WiredTiger.wt").exists()


def has_left(data: Path) -> bool:
    return data.joinpath(LEFT).exists()


def mark_left(data: Path) -> None:
    data.joinpath(LEFT).write_text("see oj-mongodb(8) for how to come back\n")


def why_useless(data: Path) -> str:
    try:
        return data.joinpath(USELESS).read_text().strip()
    except FileNotFoundError:
        return ""


def mark_useless(data: Path, why: str) -> None:
    data.joinpath(USELESS).write_text(why + "\n")


def set_aside(data: Path, now: datetime) -> Path:
    """Moves all data to a directory beside it; only the newest of those are kept."""
    place = data / f"{ASIDE}{now:%Y%m%dT%H%M%SZ}"
    place.mkdir(mode=0o700)
    for entry in data.iterdir():
        if not entry.name.startswith((ASIDE, KEPT)) and entry.name not in _MARKS:
            entry.rename(place / entry.name)
    # Last, so that a crash in between leads here again.
    data.joinpath(USELESS).unlink(missing_ok=True)
    for old in sorted(data.glob(f"{ASIDE}*"))[:-MOST_ASIDE]:
        shutil.rmtree(old)
    return place


def is_scant(data: Path) -> bool:
    return shutil.disk_usage(data).free < SCANT_ROOM_BYTES


def demand_room(data: Path) -> None:
    """Raises Unavailable when mongod would soon abort for want of room."""
    free_bytes = shutil.disk_usage(data).free
    if free_bytes < LEAST_ROOM_BYTES:
        aside = sorted(path.name for path in data.glob(f"{ASIDE}*"))
        raise Unavailable(
            f"no room: {free_bytes >> 20} MiB are free in {data}, "
            f"and mongod needs {LEAST_ROOM_BYTES >> 20}"
            + (f"; {', '.join(aside)} can be deleted there" if aside else "")
        )
