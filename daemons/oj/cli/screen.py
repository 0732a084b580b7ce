"""The whole terminal for a while: frames without flicker, keys, and all as before at the end.

A frame is lines; only those that differ from what is shown are written, in one piece. The window's
size is asked for each frame. However the program ends (a key, ^C, SIGTERM, an error), and while it
is suspended (^Z), the terminal is as it was.
"""

from __future__ import annotations

import contextlib
import os
import select
import signal
import sys
import termios
import tty
from collections.abc import Callable
from types import FrameType
from typing import Any

_ENTER = "\033[?1049h\033[?25l\033[?7l\033[2J"  # other screen, no cursor, no wrapping, empty
_LEAVE = "\033[?7h\033[?25h\033[?1049l"
_SIGNALS = (signal.SIGTERM, signal.SIGHUP, signal.SIGTSTP, signal.SIGCONT, signal.SIGWINCH)


class Screen:
    def __init__(self) -> None:
        self._out = sys.stdout.fileno()
        self._in = sys.stdin.fileno() if sys.stdin.isatty() else None
        self._before: list[Any] | None = None
        self._taken = False
        self._handlers: dict[int, Any] = {}
        self._shown: list[str] = []
        self._size = (0, 0)
        self._wake_read, self._wake_write = os.pipe()

    def __enter__(self) -> Screen:
        os.set_blocking(self._wake_write, False)
        self._take()
        on: dict[int, Callable[[int, FrameType | None], None]] = {
            signal.SIGTERM: self._end,
            signal.SIGHUP: self._end,
            signal.SIGTSTP: self._suspend,
            signal.SIGCONT: self._resume,
            signal.SIGWINCH: lambda *_: self.wake(),
        }
        for number in _SIGNALS:
            self._handlers[number] = signal.signal(number, on[number])
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._handlers.items():
            signal.signal(number, handler)
        self._give_back()
        os.close(self._wake_read)
        os.close(self._wake_write)

    def size(self) -> tuple[int, int]:
        """Columns and rows, as they are now."""
        try:
            found = os.get_terminal_size(self._out)
        except OSError:
            return 80, 24
        return found.columns or 80, found.lines or 24

    def draw(self, lines: list[str]) -> None:
        """Shows the lines, of which none may be wider than the window."""
        size = self.size()
        lines = lines[: size[1]]
        pieces = []
        if size != self._size:
            self._size, self._shown = size, []
            pieces.append("\033[2J")
        for row in range(max(len(lines), len(self._shown))):
            line = lines[row] if row < len(lines) else ""
            if row >= len(self._shown) or self._shown[row] != line:
                pieces.append(f"\033[{row + 1};1H{line}\033[K")
        self._shown = list(lines)
        if pieces:
            self._write("".join(pieces))

    def wait(self, timeout_s: float) -> str:
        """The key that was pressed; empty if it was something else that happened, or nothing."""
        sources = [self._wake_read] + ([self._in] if self._in is not None else [])
        ready, _, _ = select.select(sources, [], [], timeout_s)
        if self._wake_read in ready:
            os.read(self._wake_read, 4096)
        if self._in is None or self._in not in ready:
            return ""
        data = os.read(self._in, 64)
        if not data:
            self._in = None  # hung up
        return data.decode("utf-8", "replace")

    def wake(self) -> None:
        """Ends a wait, from any thread."""
        with contextlib.suppress(BlockingIOError, OSError):
            os.write(self._wake_write, b"x")

    # -------------------------------------------------------------- terminal

    def _take(self) -> None:
        if self._taken:
            return
        self._taken = True
        if self._in is not None:
            self._before = termios.tcgetattr(self._in)
            tty.setcbreak(self._in)
        self._shown, self._size = [], (0, 0)
        self._write(_ENTER)

    def _give_back(self) -> None:
        if not self._taken:
            return
        self._taken = False
        with contextlib.suppress(OSError):
            self._write(_LEAVE)
        if self._in is not None and self._before is not None:
            with contextlib.suppress(termios.error, OSError):
                termios.tcsetattr(self._in, termios.TCSADRAIN, self._before)

    def _write(self, text: str) -> None:
        data = text.encode(sys.stdout.encoding or "utf-8", "replace")
        while data:
            data = data[os.write(self._out, data) :]

    # --------------------------------------------------------------- signals

    def _end(self, number: int, _frame: FrameType | None) -> None:
        raise SystemExit(128 + number)

    def _suspend(self, _number: int, _frame: FrameType | None) -> None:
        self._give_back()
        os.kill(os.getpid(), signal.SIGSTOP)

    def _resume(self, _number: int, _frame: FrameType | None) -> None:
        self._take()
        self.wake()
