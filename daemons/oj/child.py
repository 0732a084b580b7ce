"""Supervises one foreign server process, whichever it is.

Theory of operation. The daemon starts its server through `setpriv --pdeathsig KILL`: the kernel
kills the server when the thread that started it dies, so a killed daemon never leaves a server
behind that its successor would stumble over. A shell in between, which becomes the server, looks
whether the daemon had not died before it told the kernel. That is why `start` must be called from a
thread that lives as long as the daemon, in practice the main one. A preexec_fn could set the same
attribute, but runs Python between fork and exec, which may deadlock in a process with threads and
upsets gRPC.

Two threads serve a child: one copies its output to our log line by line, one waits for its end and
tells. The server gets none of the variables by which systemd knows us: only the daemon speaks to
systemd. It is in a session of its own, so that a ^C on a terminal reaches it through us, in order.
"""

from __future__ import annotations

import collections
import contextlib
import logging
import os
import shutil
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import IO

from oj.errors import Unavailable

# What systemd gave to us alone.
OURS_ALONE = frozenset(
    "NOTIFY_SOCKET WATCHDOG_USEC WATCHDOG_PID LISTEN_FDS LISTEN_PID LISTEN_FDNAMES "
    "JOURNAL_STREAM INVOCATION_ID MAINPID FDSTORE".split()
)
LONGEST_LINE_BYTES = 64 << 10  # what is read of one line
LONGEST_TEXT = 1000  # what is told of it
MOST_LINES_PER_S = 200
LAST_WORDS = 20  # lines too unimportant for the log that are told when the server fails
_DIES_WITH_US = ("setpriv", "--pdeathsig", "KILL", "--")
# We may have died before it asked for that.
_WHILE_WE_LIVE = ("sh", "-c", '[ "$PPID" = "$0" ] && exec "$@"')

# What a line of output says: how serious it is, and its text for people.
ReadLine = Callable[[str], tuple[int, str]]


def read_plain(line: str) -> tuple[int, str]:
    return logging.INFO, line


class Silent(Exception):
    """The server itself does not answer, though its process is there."""


class Child:
    """One server process, from start to its certain end."""

    def __init__(
        self,
        name: str,
        command: Sequence[str],
        *,
        env: Mapping[str, str] | None = None,
        read_line: ReadLine = read_plain,
        on_exit: Callable[[str], None] | None = None,
    ) -> None:
        """`on_exit` is told, as a sentence, when the child ends without having been stopped."""
        self.name = name
        self.command = list(command)
        self._env = clean_environment(os.environ if env is None else env)
        self._read_line = read_line
        self._on_exit = on_exit
        self._log = logging.getLogger(f"oj.child.{name}")
        self._process: subprocess.Popen[bytes] | None = None
        self._threads: list[threading.Thread] = []
        self._stopping = False
        self._unsaid: collections.deque[str] = collections.deque(maxlen=LAST_WORDS)
        self.exited = threading.Event()

    def start(self) -> Child:
        """Starts it, from a thread that stays: the child dies with that thread."""
        program = self.command[0]
        if shutil.which(program, path=self._env.get("PATH", os.defpath)) is None:
            raise Unavailable(f"{self.name}: there is no program {program}")
        process = subprocess.Popen(
            [*_DIES_WITH_US, *_WHILE_WE_LIVE, str(os.getpid()), *self.command],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=self._env,
            start_new_session=True,
        )
        self._process = process
        assert process.stdout is not None
        self._threads = [
            threading.Thread(target=run, args=arguments, name=f"{self.name}-{what}", daemon=True)
            for what, run, arguments in (
                ("output", self._copy_output, (process.stdout,)),
                ("end", self._wait, (process,)),
            )
        ]
        for thread in self._threads:
            thread.start()
        self._log.info("%s started, pid %d", self.name, process.pid)
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None, "not started"
        return self._process.pid

    @property
    def alive(self) -> bool:
        return self._process is not None and not self.exited.is_set()

    @property
    def ending(self) -> str:
        """How it ended, as the end of a sentence."""
        code = self._process.returncode if self._process else None
        if code is None:
            return "is running"
        if code < 0:
            with contextlib.suppress(ValueError):
                return f"was killed by {signal.Signals(-code).name}"
        return f"ended with status {code}"

    def guard(self, check: Callable[[], str], patience: int = 3) -> Callable[[], str]:
        """The check, ending a server that is Silent `patience` times in a row.

        A hung server is not mended by waiting, and its end is told as any other: the daemon fails
        and systemd starts both anew. Any other failure of the check passes through.
        """
        failures = 0

        def guarded() -> str:
            nonlocal failures
            try:
                sentence = check()
            except Silent as error:
                failures += 1
                if failures >= patience and self.alive:
                    self._log.error("%s; killing it", error)
                    self.kill()
                raise
            except Unavailable:
                failures = 0
                raise
            failures = 0
            return sentence

        return guarded

    def kill(self) -> None:
        """Ends it now; for a server that no longer answers."""
        self._signal(signal.SIGKILL)

    def stop(self, timeout_s: float) -> None:
        """SIGTERM, a bounded wait, SIGKILL; the process is gone when this returns."""
        if self._process is None:
            return
        self._stopping = True
        if not self.exited.is_set():
            self._signal(signal.SIGTERM)
            if not self.exited.wait(timeout_s):
                self._log.warning("%s did not stop in %.0f s; killing it", self.name, timeout_s)
                self._signal(signal.SIGKILL)
                self.exited.wait()
        # What it may have started itself is in its process group.
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for thread in self._threads:
            thread.join(1.0)

    def __enter__(self) -> Child:
        return self.start()

    def __exit__(self, *_: object) -> None:
        self.stop(10.0)

    def _signal(self, number: int) -> None:
        # Popen knows whether the pid has been reaped, so a recycled pid is never hit.
        if self._process is not None:
            self._process.send_signal(number)

    def _wait(self, process: subprocess.Popen[bytes]) -> None:
        process.wait()
        self.exited.set()
        if self._stopping:
            self._log.info("%s %s", self.name, self.ending)
            return
        self._threads[0].join(1.0)  # what it wrote last
        for text in list(self._unsaid):
            self._log.warning("before its end: %s", text)
        if self._on_exit:
            self._on_exit(f"{self.name} {self.ending}")

    def _copy_output(self, pipe: IO[bytes]) -> None:
        window_s, lines, dropped = time.monotonic(), 0, 0
        whole = True
        # readline with a limit: a server that never ends its line must not fill our memory.
        while raw := pipe.readline(LONGEST_LINE_BYTES):
            first, whole = whole, raw.endswith(b"\n")
            if not first:
                continue  # the rest of a line too long
            now_s = time.monotonic()
            if now_s - window_s >= 1.0:
                if dropped:
                    self._log.warning("%d lines of %s left out", dropped, self.name)
                window_s, lines, dropped = now_s, 0, 0
            lines += 1
            if lines > MOST_LINES_PER_S:
                dropped += 1
                continue
            line = raw.decode("utf-8", "replace").rstrip()
            if line:
                level, text = self._read_line(line)
                if len(text) > LONGEST_TEXT:
                    text = text[:LONGEST_TEXT] + "…"
                if self._log.isEnabledFor(level):
                    self._log.log(level, "%s", text)
                else:
                    self._unsaid.append(text)
        if dropped:
            self._log.warning("%d lines of %s left out", dropped, self.name)
        pipe.close()


def clean_environment(env: Mapping[str, str]) -> dict[str, str]:
    """The environment without what systemd meant for the daemon alone."""
    return {key: value for key, value in env.items() if key not in OURS_ALONE}
