"""`oj backup` and `oj restore`: on a judicator's node, by its configuration."""

from __future__ import annotations

import argparse
import contextlib
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oj import plain, settings
from oj.cli.terminal import Progress, is_terminal, paint, size
from oj.errors import Rejected

if TYPE_CHECKING:
    from oj.backup.contents import Checked, Manifest

EVERY_S = 0.2


def backup(arguments: argparse.Namespace) -> int:
    """0: there is a whole backup; 1: there is, but without some blobs that were broken."""
    if arguments.verify:
        return _verify(Path(arguments.file), arguments)
    begun_s = time.monotonic()
    with _database(arguments) as database, _progress() as tell:
        from oj.backup import writing  # a node without a judicator lacks what it needs

        if arguments.file == "-":
            if is_terminal(sys.stdout):
                raise Rejected("a backup is no text for a terminal: name a file, or use a pipe")
            manifest = writing.write(database, sys.stdout.buffer, tell)
            sys.stdout.buffer.flush()
        else:
            with _input_errors(arguments.file):
                manifest = writing.write_file(database, Path(arguments.file), tell)
    _tell_of_backup(manifest, arguments, time.monotonic() - begun_s)
    for digest in manifest.damaged:
        print(f"oj: blob {digest} is broken in the database and left out", file=sys.stderr)
    return 1 if manifest.damaged else 0


def _tell_of_backup(manifest: Manifest, arguments: argparse.Namespace, took_s: float) -> None:
    # Standard output may be the backup itself.
    out = sys.stderr if arguments.file == "-" else sys.stdout
    if arguments.json:
        value = {"file": arguments.file, "took_s": round(took_s, 3), **asdict(manifest)}
        plain.print_json(value, out)
        return
    where = "written"
    if arguments.file != "-":
        where = f"in {arguments.file}, {size(Path(arguments.file).stat().st_size)}"
    print(f"{_amounts(manifest)} {where}", file=out)


def _amounts(manifest: Manifest) -> str:
    def count(section: str, word: str) -> str:
        number = manifest.count(section)
        return f"{number} {word}{'' if number == 1 else 's'}"

    text = count("tasks", "task")
    if manifest.unfinished:
        text += f" ({manifest.unfinished} of them not done)"
    return f"{text} and {count('blobs', 'blob')}"


def _verify(path: Path, arguments: argparse.Namespace) -> int:
    with _progress() as tell:
        checked = _check(path, tell)
    if arguments.json:
        plain.print_json({"file": str(path), "whole": True, **checked.plain()})
        return 0
    header = checked.header
    print(
        f"{paint('whole', 'green')}: {_amounts(checked.manifest)}, "
        f"made {header.begun} on {header.host} by oj {header.oj}"
    )
    return 0


def _check(path: Path, tell: Callable[[str, int, int], None]) -> Checked:
    from oj.backup import contents
    from oj.backup.container import Damaged

    with _input_errors(str(path)):
        try:
            return contents.check(path, tell)
        except Damaged as error:
            raise Damaged(f"{path} is not a whole backup: {error.message}") from None


def restore(arguments: argparse.Namespace) -> int:
    path = Path(arguments.file)
    with _progress() as tell:
        # To its end before anything is changed.
        checked = _check(path, tell)
        with _database(arguments) as database:
            from oj.backup import restoring

            done = restoring.restore(database, path, checked, tell)
    if arguments.json:
        plain.print_json({"file": str(path), "backup": checked.header.id, **asdict(done)})
        return 0
    print(f"restored {_amounts(checked.manifest)}, and read all of it back: as in the backup")
    if done.waiting:
        print(f"{done.waiting} wait to be judged (again)")
    if done.without_key:
        print(f"{done.without_key} are without their key, which newer tasks have")
    if done.changed:
        print(f"{done.changed} were cancelled meanwhile")
    return 0


@contextlib.contextmanager
def _database(arguments: argparse.Namespace) -> Iterator[Any]:
    """The cluster's database, as this node's judicator is told to find it."""
    path = Path(arguments.etc) / "judicator.conf"
    if not path.exists():
        raise Rejected(f"this is done on a judicator's node, and here is no {path}")
    values = settings.read(path, "judicator")
    try:
        from oj.backup.place import open_database
    except ModuleNotFoundError as error:
        raise Rejected(f"this is done on a judicator's node: {error}") from None
    with open_database(values) as database:
        yield database


@contextlib.contextmanager
def _input_errors(name: str) -> Iterator[None]:
    try:
        yield
    except BrokenPipeError:
        raise
    except OSError as error:
        raise Rejected(f"{name}: {error.strerror or error}") from None


@contextlib.contextmanager
def _progress() -> Iterator[Callable[[str, int, int], None]]:
    """One line on a terminal; elsewhere nothing, as this may take an hour in a cron job."""
    shown_s = 0.0
    with contextlib.ExitStack() as stack:
        live = is_terminal(sys.stderr)
        progress = stack.enter_context(Progress()) if live else None

        def tell(what: str, done: int, total: int) -> None:
            nonlocal shown_s
            now_s = time.monotonic()
            if progress is None or now_s - shown_s < EVERY_S:
                return
            shown_s = now_s
            # Both are estimates while the cluster runs: never more than all.
            share = f"{100 * min(done, total) // total} %" if total else ""
            progress.show(what, 0, 0, share)

        yield tell
