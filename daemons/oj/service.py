"""The frame of a daemon: arguments, journal, signals, readiness, watchdog.

A daemon's main is `service.run(role, load, serve)`. `serve` builds its parts
on an ExitStack, calls `ready` when the real check has passed, and stays in
`supervise` until it is told to stop; unwinding the stack is the shutdown.

Signals: Python-level handlers do nothing; the interpreter writes the signal's
number to a socket (set_wakeup_fd), and a thread turns it into an event. A
handler that set an Event itself could deadlock with a main thread that is
just waiting on that Event.
"""

from __future__ import annotations

import argparse
import copy
import logging
import os
import signal
import socket
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn, TypeVar

import sdnotify
from systemd import journal

from oj import __version__
from oj.errors import BadSettings, Refused, Unavailable
from oj.redact import Formatter, describe, install_hooks, say
from oj.settings import Advice

EXIT_CONFIG = 78  # EX_CONFIG; the units do not restart on it
WARNING = "warning: "  # before what --check says of a configuration that is no mistake
CHECK_FAILURES = 3  # failed checks in a row before the watchdog is left unfed

log = logging.getLogger("oj.service")

Settings = TypeVar("Settings")


class Service:
    """What a running daemon needs of systemd."""

    def __init__(self, role: str) -> None:
        self.role = role
        self.stop = threading.Event()
        self._notifier = sdnotify.SystemdNotifier()
        self._actions: dict[int, Callable[[], None]] = {}
        self._status = ""
        self.failure: str | None = None
        self.watchdog_s = int(os.environ.get("WATCHDOG_USEC", "0")) / 1e6
        self._ready = False

    def status(self, text: str) -> None:
        """The line that `systemctl status` shows."""
        if text != self._status:
            self._status = text
            self._notifier.notify(f"STATUS={text}")
            log.debug("status: %s", text)

    def ready(self, text: str) -> None:
        """Says that this daemon really serves; call it after the real check."""
        if not self._ready:
            self._ready = True
            self._notifier.notify(f"READY=1\nSTATUS={text}")
            self._status = text
            log.info("ready: %s", text)

    def extend_start(self, seconds: float = 60.0) -> None:
        """Tells systemd, before it is ready, that it still works on it: wait so much longer."""
        if not self._ready:
            self._notifier.notify(f"EXTEND_TIMEOUT_USEC={round(seconds * 1e6)}")

    def alive(self) -> None:
        """Feeds the watchdog."""
        self._notifier.notify("WATCHDOG=1")

    def on_signal(self, number: int, action: Callable[[], None]) -> None:
        """Runs `action` on a thread when the signal comes (TERM and INT stop)."""
        self._actions[number] = action
        signal.signal(number, lambda *_: None)

    def fail(self, reason: str) -> None:
        """Ends the daemon in order but with a non-zero status, so that systemd restarts it."""
        if self.failure is None and not self.stop.is_set():
            self.failure = reason
            log.error("%s", reason)
            self.status(reason)
            self.stop.set()

    def supervise(self, check: Callable[[], str], every_s: float | None = None) -> None:
        """Until stopped: runs the real check, shows its sentence, feeds the watchdog.

        A check that raises is a warning and a status; after a few in a row the
        watchdog goes hungry, and systemd restarts a daemon that cannot recover.
        Unavailable is different: a neighbour is away, a restart would not help.
        """
        if every_s is None:
            every_s = self.watchdog_s / 4 if self.watchdog_s else 5.0
        failures = 0
        while not self.stop.is_set():
            try:
                self.status(check())
                failures = 0
            except Unavailable as error:
                self.status(f"degraded: {error.message}")
                failures = 0
            except Exception as error:  # noqa: BLE001 - the top of a loop: whatever it is, tell it
                failures += 1
                log.warning("check failed (%d): %s", failures, say(error))
                self.status(f"check failed: {say(error)}")
            if failures < CHECK_FAILURES:
                self.alive()
            self.stop.wait(min(every_s, 1.0) if failures else every_s)

    def start_signals(self) -> None:
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        for number in (signal.SIGTERM, signal.SIGINT):
            self.on_signal(number, self._stop)
        self._signal_sockets = (reader, writer)
        threading.Thread(target=self._read_signals, name="signals", daemon=True).start()

    def _stop(self) -> None:
        if not self.stop.is_set():
            log.info("stopping")
            self._notifier.notify("STOPPING=1\nSTATUS=stopping")
            self.stop.set()

    def _read_signals(self) -> None:
        reader = self._signal_sockets[0]
        while True:
            for number in reader.recv(64):
                action = self._actions.get(number)
                if action:
                    try:
                        action()
                    except Exception:
                        log.exception("action on signal %d failed", number)


class JournalHandler(journal.JournalHandler):
    """Sends the message and our own fields, and nothing that the message does not tell.

    The library's handler adds arguments and exceptions as Python shows them (CODE_ARGS,
    EXCEPTION_INFO): with the contents of documents and of strings that could not be decoded."""

    def emit(self, record: logging.LogRecord) -> None:
        try:
            told = copy.copy(record)
            told.msg = self.format(record)
            told.args = told.exc_info = told.exc_text = told.stack_info = None
        except Exception:  # noqa: BLE001 - as every handler does: a line less
            self.handleError(record)
        else:
            super().emit(told)

    def handleError(self, record: logging.LogRecord) -> None:
        """Where the line comes from, to standard error; the library would print its arguments."""
        error = sys.exc_info()[1]
        where = f"{record.pathname}:{record.lineno}"
        sys.stderr.write(f"cannot log a line of {where}: {describe(error) if error else ''}\n")


def start_logging(level: int = logging.INFO) -> None:
    """To the journal under systemd, to standard error elsewhere."""
    if "JOURNAL_STREAM" in os.environ:
        handler: logging.Handler = JournalHandler(SYSLOG_IDENTIFIER=Path(sys.argv[0]).name)
        handler.setFormatter(Formatter("%(message)s"))
    else:
        handler = logging.StreamHandler()
        handler.setFormatter(Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
    root = logging.getLogger()
    root.handlers[:] = [handler]
    # Not of libraries: newer drivers of the database log whole commands for those who debug.
    root.setLevel(logging.INFO)
    logging.getLogger("oj").setLevel(level)
    install_hooks(log)


def parse_arguments(role: str, description: str) -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog=f"oj-{role}", description=description)
    parser.add_argument(
        "--config", metavar="FILE", default=f"/etc/oj/{role}.conf", help="default: %(default)s"
    )
    parser.add_argument(
        "--check", action="store_true", help="check the configuration, list every mistake, and exit"
    )
    parser.add_argument("--debug", action="store_true", help="log more")
    parser.add_argument("--version", action="version", version=f"oj-{role} {__version__}")
    return parser.parse_args()


def run(
    role: str,
    load: Callable[[Path], Settings],
    serve: Callable[[Service, Settings], None],
    description: str,
    advise: Callable[[Settings], Advice] = lambda _: Advice(),
) -> NoReturn:
    """The whole life of a daemon; leaves the process with its exit code."""
    arguments = parse_arguments(role, description)
    start_logging(logging.DEBUG if arguments.debug else logging.INFO)
    try:
        settings = load(Path(arguments.config))
    except BadSettings as error:
        if arguments.check:
            for mistake in error.mistakes:
                print(mistake, file=sys.stderr)
        else:
            for mistake in error.mistakes:
                log.error("%s", mistake)
            count = len(error.mistakes)
            sdnotify.SystemdNotifier().notify(
                f"STATUS={count} mistake{'' if count == 1 else 's'} in {arguments.config}; "
                f"see /usr/libexec/oj/oj-{role} --check"
            )
        sys.exit(EXIT_CONFIG)
    advice = advise(settings)
    if arguments.check:
        print(f"{arguments.config}: the configuration is fine")
        for note in advice.notes:
            print(f"note: {note}")
        for warning in advice.warnings:
            print(f"{WARNING}{warning}", file=sys.stderr)
        sys.exit(0)
    for warning in advice.warnings:
        log.warning("%s: %s", arguments.config, warning)
    service = Service(role)
    service.start_signals()
    try:
        serve(service, settings)
    except Refused as error:
        log.error("%s", error.message)
        service.status(error.message)
        sys.exit(EXIT_CONFIG)
    except Unavailable as error:
        # Something that it needs is not there: the operator's to mend, and no bug.
        service.fail(error.message)
    except Exception as error:
        log.exception("failed")
        service.status(f"failed: {describe(error)}")
        sys.exit(1)
    # Threads that still wait on a peer are daemons: they must not hold us up.
    logging.shutdown()
    sys.exit(1 if service.failure else 0)
