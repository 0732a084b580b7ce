"""What people see: colours, tables, numbers with units, one line of progress.

Everything shown may come from a contestant's program, so control characters
never reach the terminal.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
import time
import unicodedata
from collections.abc import Collection, Sequence
from typing import TextIO

_COLOURS = {"red": 31, "green": 32, "yellow": 33, "blue": 34, "bold": 1, "dim": 2}
_GOOD = frozenset({"accepted", "success", "ok", "leader", "primary", "secondary"})
_WARM = frozenset({"pending", "compiling", "running", "retrying", "draining", "skipped"}) | {
    "learner",
    "syncing",
    "starting",
    "recovering",
}
_DULL = frozenset({"cancelled", ""})


def is_terminal(stream: TextIO) -> bool:
    try:
        return stream.isatty()
    except ValueError:
        return False


def paint(text: str, colour: str, stream: TextIO | None = None) -> str:
    stream = stream or sys.stdout
    if not text or os.environ.get("NO_COLOR") or os.environ.get("TERM") == "dumb":
        return text
    return f"\033[{_COLOURS[colour]}m{text}\033[0m" if is_terminal(stream) else text


def mood(word: str) -> str:
    """The colour of a status, verdict or state."""
    if word in _GOOD:
        return "green"
    return "yellow" if word in _WARM else "dim" if word in _DULL else "red"


def words(name: str) -> str:
    """'time_limit' as people write it."""
    return name.replace("_", " ")


def clean(text: str, *, lines: bool = False) -> str:
    """Without anything that a terminal would obey."""
    kept = "\n\t" if lines else ""
    return "".join(c if c.isprintable() or c in kept else "\N{REPLACEMENT CHARACTER}" for c in text)


def width(text: str) -> int:
    """How many columns a terminal needs for it."""
    if text.isascii():
        return len(text)
    return sum(
        0 if unicodedata.combining(c) else 2 if unicodedata.east_asian_width(c) in "WF" else 1
        for c in text
    )


def cut(text: str, columns: int) -> str:
    """As much of it as fits."""
    if width(text) <= columns:
        return text
    while text and width(text) > columns - 1:
        text = text[:-1]
    return text + "…"


def columns() -> int:
    """The width of the terminal; very wide where there is none, so that nothing is cut."""
    return shutil.get_terminal_size().columns if is_terminal(sys.stdout) else 10_000


def table(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    *,
    right: Collection[str] = (),
    spare: Sequence[str] = (),
    states: Collection[str] = ("verdict", "status", "state"),
) -> list[str]:
    """Lines of aligned cells, coloured in the columns that are `states`.

    Columns without content are left out, `spare` ones (the first first) also when
    the terminal is too narrow; the last column goes on in further lines.
    """
    rows = [[clean(cell) for cell in row] for row in rows]
    used = [i for i, name in enumerate(header) if any(row[i] for row in rows) or i == 0]
    widths = {i: max([width(header[i]), *(width(row[i]) for row in rows)]) for i in used}
    room = columns()
    for name in spare:
        if sum(widths[i] + 2 for i in used) - 2 > room:
            used = [i for i in used if header[i] != name]
    indent = sum(widths[i] + 2 for i in used[:-1])
    lines = []
    for number, row in enumerate([[name.upper() for name in header], *rows]):
        cells = []
        for i in used[:-1]:
            gap = " " * (widths[i] - width(row[i]))
            shown = _dress(row[i], number == 0, header[i] in states)
            cells.append(gap + shown if header[i] in right else shown + gap)
        last = used[-1]
        first, *rest = wrap(row[last], max(20, room - indent))
        shown = _dress(first, number == 0, header[last] in states)
        gap = " " * (widths[last] - width(first)) if header[last] in right else ""
        lines.append("  ".join([*cells, gap + shown]).rstrip())
        lines += [" " * indent + line for line in rest]
    return lines


def _dress(text: str, is_header: bool, is_state: bool) -> str:
    if is_header:
        return paint(text, "dim")
    if is_state:
        word, comma, more = text.partition(",")
        return paint(word, mood(word.replace(" ", "_"))) + comma + more
    return text


def wrap(text: str, columns: int) -> list[str]:
    """Its words in lines that fit; a word that does not fit is cut."""
    lines = [""]
    for word in text.split(" "):
        longer = f"{lines[-1]} {word}" if lines[-1] else word
        if width(longer) <= columns:
            lines[-1] = longer
        else:
            lines.append(cut(word, columns))
    return [line for line in lines if line] or [""]


def span(ms: float | None) -> str:
    """'12 ms', '1.25 s', '3 min', '2 h', '4 d'."""
    if ms is None:
        return ""
    if ms < 1000:
        return f"{ms:.0f} ms"
    for limit_s, unit_s, unit in ((120, 1, "s"), (7200, 60, "min"), (172800, 3600, "h")):
        if ms < limit_s * 1000:
            value = ms / 1000 / unit_s
            return f"{value:.2f} {unit}" if value < 10 and unit == "s" else f"{value:.0f} {unit}"
    return f"{ms / 86_400_000:.0f} d"


def size(value: int | None) -> str:
    """'512 B', '3.4 MiB'."""
    if value is None:
        return ""
    amount, unit = float(value), "B"
    for larger in ("KiB", "MiB", "GiB", "TiB"):
        if amount < 1024:
            break
        amount, unit = amount / 1024, larger
    return f"{amount:.0f} {unit}" if unit == "B" or amount >= 100 else f"{amount:.1f} {unit}"


def moment(time_ms: int | None) -> str:
    """A time as people here read it."""
    return time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(time_ms / 1000)) if time_ms else ""


class Progress:
    """One line on a terminal, redrawn while things go on; plain lines elsewhere."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self.live = is_terminal(self._stream) and os.environ.get("TERM") != "dumb"
        self._begin = time.monotonic()
        self._text = ""
        self._bar = ""
        self._lock = threading.Lock()
        self._end = threading.Event()
        self._ticker = threading.Thread(target=self._tick, name="progress", daemon=True)

    def __enter__(self) -> Progress:
        if self.live:
            self._ticker.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        if self.live:
            self._ticker.join()
            self._stream.write("\r\033[K")
            self._stream.flush()

    def show(self, status: str, done: int, total: int, note: str, what: str = "tests") -> None:
        text = words(status)
        if total > 1:
            text += f", {done} of {total} {what}"
        if note:
            text += f", {note}"
        with self._lock:
            changed, self._text = text != self._text, text
            self._bar = _bar(done, total) if total > 1 else ""
        if changed and not self.live:
            print(f"{time.monotonic() - self._begin:6.1f} s  {text}", file=self._stream, flush=True)

    def _tick(self) -> None:
        while not self._end.wait(0.1):
            with self._lock:
                line = f"{self._bar}{self._text}"
            # Counted anew each time: the window may have been resized.
            room = shutil.get_terminal_size().columns - 1
            elapsed = f"{time.monotonic() - self._begin:5.1f} s  "
            line = cut(elapsed + line, room)
            self._stream.write(f"\r{line}\033[K")
            self._stream.flush()


def _bar(done: int, total: int, columns: int = 20) -> str:
    filled = columns * done // total
    return f"[{'#' * filled}{'.' * (columns - filled)}] "
