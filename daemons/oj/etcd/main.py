"""The life of oj-etcd: start etcd, wait until it serves, watch over it, stop it.

Processes: this daemon and one etcd (a member, or a gRPC proxy). The daemon alone speaks to systemd;
it is ready when a read that needs a leader and a majority was answered through the client port, and
the same read feeds the watchdog. When etcd ends, or hangs, the daemon fails and systemd starts both
again, on the same data. Data in use is never removed; see `datadir` for what becomes of other data.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import time
from collections.abc import Callable, Iterator
from typing import NoReturn

from oj import metrics, service
from oj.child import Child, Silent
from oj.clock import backoff
from oj.errors import Unavailable
from oj.etcd import argv
from oj.loopback_guard import take_word_back

STOP_S = 20.0
QUIET_START_S = 3.0  # no word of trouble before that: etcd needs about a second

log = logging.getLogger("oj.etcd")

_LEVELS = {
    # etcd's 'info' tells each step of its start; our own lines say what matters of it.
    "debug": logging.DEBUG,
    "info": logging.DEBUG,
    "warn": logging.WARNING,
    "error": logging.ERROR,
    "dpanic": logging.CRITICAL,
    "panic": logging.CRITICAL,
    "fatal": logging.CRITICAL,
}

# What etcd 3.4 calls warnings though nothing is wrong.
ROUTINE = (
    "simple token is not cryptographically signed",
    "established TCP streaming connection",
    "found invalid file",  # what lies beside etcd's files is ours
)


def read_line(line: str) -> tuple[int, str]:
    """A line of etcd's log: JSON from zap, or plain text where something writes past it."""
    try:
        record = json.loads(line)
        level = _LEVELS[record.pop("level")]
        message = record.pop("msg")
    except (ValueError, KeyError, TypeError, AttributeError):
        return logging.INFO, line
    for key in ("ts", "caller", "logger"):
        record.pop(key, None)
    if message.startswith(ROUTINE):
        level = min(level, logging.DEBUG)
    rest = " ".join(f"{key}={value}" for key, value in record.items())
    return level, f"{message} {rest}".rstrip()


def serve(daemon: service.Service, settings: argv.Settings) -> None:
    from oj.etcd.datadir import DataDirectory

    take_word_back()
    DataDirectory(settings.data).prepare()
    if settings.mode == "proxy":
        serve_proxy(daemon, settings)
    else:
        serve_member(daemon, settings)


def serve_member(daemon: service.Service, settings: argv.Settings) -> None:
    from oj.etcd import cluster, numbers  # slow to import: grpc
    from oj.etcd.joining import Joining
    from oj.etcdwire import Connection

    joining = Joining(daemon, settings)
    command = joining.prepare()
    if command is None:
        return
    with contextlib.ExitStack() as stack:
        child = Child(
            "etcd",
            command,
            env=clean_environment(),
            read_line=joining.note(read_line),
            on_exit=lambda how: daemon.fail(joining.explain(how)),
        )
        child.start()
        stack.callback(child.stop, STOP_S)
        connection = Connection(argv.join_address(*settings.local))
        stack.callback(connection.close)

        def look() -> Iterator[metrics.Reading]:
            return numbers.look_at_member(connection, settings.data, settings.quota_bytes)

        stack.enter_context(metrics.served("etcd", settings.metrics, (), look))

        def check() -> str:
            try:
                return cluster.check_member(
                    connection, settings.name, settings.quota_bytes, joining.settle
                )
            except Unavailable as error:
                if missing := joining.find_missing():
                    raise Unavailable(f"member {settings.name}: {missing}") from error
                raise

        # Without a majority etcd does not even open its client port.
        sentence = wait_until_serving(daemon, check, joining.find_missing)
        if sentence:
            daemon.ready(sentence)
            daemon.supervise(child.guard(check))


def serve_proxy(daemon: service.Service, settings: argv.Settings) -> None:
    from oj.etcd import numbers
    from oj.etcd.discovery import Names
    from oj.etcd.proxy import Proxy
    from oj.etcdwire import Connection

    def make_child(command: list[str]) -> Child:
        # Its end is no failure of ours: the next check starts another.
        return Child("etcd", command, env=clean_environment(), read_line=read_line)

    names = Names(settings.discover, settings.client[1])
    connection = Connection(argv.join_address(*settings.local))

    def look() -> Iterator[metrics.Reading]:
        return numbers.look_at_proxy(connection, settings.data)

    with (
        contextlib.closing(connection),
        metrics.served("etcd", settings.metrics, (), look),
        contextlib.closing(Proxy(settings, make_child, names)) as proxy,
    ):
        daemon.status("proxy: looking for a member")
        sentence = wait_until_serving(daemon, proxy.check)
        if sentence:
            daemon.ready(sentence)
            daemon.supervise(proxy.check)


def clean_environment() -> dict[str, str]:
    """etcd takes options from ETCD_* as well; only the file counts here."""
    return {key: value for key, value in os.environ.items() if not key.startswith("ETCD_")}


def wait_until_serving(
    daemon: service.Service, check: Callable[[], str], find_missing: Callable[[], str] = str
) -> str | None:
    """The check's first good answer; None when stopped before.

    There is no bound: members that wait for each other serve when enough of them are back.
    `find_missing` tells which have to be.
    """
    began_s = time.monotonic()  # a look alone may take seconds where nobody answers
    for pause_s in backoff(0.05, 1.0):
        if daemon.stop.is_set():
            return None
        daemon.extend_start()
        try:
            return check()
        except (Silent, Unavailable) as error:
            if time.monotonic() - began_s > QUIET_START_S:
                daemon.status(f"waiting: {find_missing() or error}")
        daemon.stop.wait(pause_s)
    return None


def main() -> NoReturn:
    service.run("etcd", argv.load, serve, "An etcd member of an oj cluster, or a proxy to one.")
