"""`oj get --save`: the files of a task in a directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from oj import model
from oj.calls import Calls
from oj.errors import Rejected


def save(cluster: Calls, task_id: str, directory: Path) -> list[Path]:
    """Writes them all and tells which; into a directory that is new or empty."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        if any(directory.iterdir()):
            raise Rejected(f"{directory} is not empty")
        return [_write(directory, *file) for file in cluster.files(task_id)]
    except OSError as error:
        raise Rejected(f"{error.filename or directory}: {error.strerror}") from None


def _write(directory: Path, name: str, content: Iterator[bytes]) -> Path:
    # Names come from whoever submitted the task, through whoever answers.
    path = directory / model.check_file_name(name, "the name of a file")
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("xb") as file:
        for piece in content:
            file.write(piece)
    return path
