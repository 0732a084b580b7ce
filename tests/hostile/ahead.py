"""Compiles attacks ahead, for a machine on which compilers take long.

Only those that are about what the program does: an attack on the compile step is compiled where it
is judged, and so is one that has to know about the host. The commands are the languages' own; the
other machine must have the same libraries.
"""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from hostile import collection
from oj.executor import languages


def names() -> list[str]:
    """The attacks whose programs can be compiled elsewhere."""
    return [name for name in collection.names() if _source_of(name) is not None]


def build(directory: Path) -> None:
    """Puts one program for each of them there."""
    offered = collection.read_languages()

    def make(name: str) -> None:
        source = _source_of(name)
        assert source is not None
        language = offered[source.suffix[1:]]
        with tempfile.TemporaryDirectory() as place:
            for path in (source, collection.HERE / collection.HEADER):
                shutil.copy(path, place)
            *command, binary = languages.expand(
                (*language.compile, "{binary}"), [source.name], language.suffix, 0
            )
            done = subprocess.run(command, cwd=place, stderr=subprocess.PIPE, text=True)
            if done.returncode:
                raise RuntimeError(f"{name} cannot be compiled: {done.stderr}")
            shutil.copy(Path(place, binary), directory / name)

    with ThreadPoolExecutor() as pool:
        for _ in pool.map(make, names()):
            pass


def _source_of(name: str) -> Path | None:
    settings = collection.read_expect(collection.HERE / name / collection.EXPECT)
    files = [path for path in (collection.HERE / name).iterdir() if path.name != collection.EXPECT]
    if (
        len(files) != 1
        or files[0].stem != "main"
        or "compile_error" in settings["verdict"]
        or any(key == "run" or key.startswith("compile") for key in settings)
        or collection.WORD.search(files[0].read_bytes())
    ):
        return None
    return files[0]
