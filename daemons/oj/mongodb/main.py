"""The life of oj-mongodb: start mongod, bring it into the replica set, watch over it, stop it.

Processes: this daemon and one mongod. The daemon alone speaks to systemd; it is ready when this
node is primary (and a majority confirms a write) or secondary, and a check of the same kind feeds
the watchdog. When mongod ends, or hangs, the daemon fails and systemd starts both again, on the
same data, which mongod recovers from its journal. Before mongod starts there must be room for it,
and a node without data must not have a vote (see `entrance`). Data in use is never
removed; what mongod cannot go on from (see `signs`) is set aside, the newest two of them.

mongod counts its timers by the time of day. When that is set back, it serves on, but sends no
heartbeat and calls no election until the old time is reached again: nobody would replace a lost
primary. So it is started anew then, after it has handed over. Its own way to stop waits for such
timers too, so it is killed: what it has confirmed is in its journal.

When etcd is away, mongod serves on: that is told, but not mended by a restart.
"""

from __future__ import annotations

import contextlib
import logging
import os
import shutil
import sys
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NoReturn, TypeVar

from oj import metrics, service
from oj.child import Child, Silent
from oj.clock import Setback, backoff
from oj.errors import Unavailable
from oj.loopback_guard import heed_word
from oj.mongodb import argv, data
from oj.mongodb.signs import Signs

if TYPE_CHECKING:
    from oj.mongodb.membership import Membership

STOP_S = 60.0
HURRIED_STOP_S = 1.0
CHECK_EVERY_S = 2.0
QUIET_START_S = 3.0  # no word of trouble before that: mongod needs a second or two
SET_BACK_S = 5.0  # timers that are late by less than this are soon on time again
PROGRESS_S = 300.0  # a sync may take hours, but shows progress more often than so

log = logging.getLogger("oj.mongodb")

Answer = TypeVar("Answer")


def find_program(settings: argv.Settings) -> str:
    program = settings.program or shutil.which("mongod", path="/usr/bin:/usr/local/bin")
    if not program:
        raise Unavailable("there is no mongod: install mongodb-org-server or oj-mongod")
    return program


def serve(daemon: service.Service, settings: argv.Settings) -> None:
    from oj.mongodb import numbers  # slow to import: grpc, pymongo
    from oj.mongodb.entrance import Entrance
    from oj.mongodb.membership import Membership
    from oj.mongodb.replicaset import Node
    from oj.mongodb.source import SourceWatch
    from oj.registry import Registry

    program = find_program(settings)
    settings.data.mkdir(mode=0o700, parents=True, exist_ok=True)
    heed_word(settings.etcd)
    if data.has_left(settings.data):
        refuse_after_leaving(daemon, settings)
    with Registry(settings.etcd, settings.prefix) as registry:
        wait_for(daemon, lambda: data.demand_room(settings.data))
        wait_for(daemon, Entrance(settings, registry).check)
    if daemon.stop.is_set():
        return
    daemon.status(f"mongod is starting on {settings.data}")
    signs = Signs()
    setback = Setback()

    def is_late() -> bool:
        return setback.seconds > SET_BACK_S

    def fail(reason: str) -> None:
        if why := signs.why_useless():
            data.mark_useless(settings.data, why)
        daemon.fail(": ".join(filter(None, (reason, why, signs.room))))

    with contextlib.ExitStack() as stack:
        # From this thread, which stays: mongod dies with it.
        child = Child(
            "mongod",
            argv.command(settings, program),
            # mongod refuses to start with a locale that the machine does not have.
            env={**os.environ, "LC_ALL": "C.UTF-8"},
            read_line=signs.read_line,
            on_exit=fail,
        )
        child.start()
        stack.callback(lambda: child.stop(HURRIED_STOP_S if is_late() else STOP_S))
        node = Node(settings.local, settings.replica_set)
        stack.callback(node.close)
        stack.enter_context(
            metrics.served(
                "mongodb", settings.metrics, (), lambda: numbers.look(node, settings.data)
            )
        )
        registry = Registry(settings.etcd, settings.prefix)
        stack.callback(registry.close)
        membership = Membership(settings, node, registry)
        stack.callback(membership.close)
        stack.callback(hand_over, child, membership)

        def look_for_trouble() -> None:
            if signs.why_useless():
                fail("mongod cannot go on from its data")
            if is_late():
                fail(f"the clock was set back by {setback.seconds:.0f} s: mongod starts anew")

        def enter() -> str:
            look_for_trouble()
            return membership.enter()

        def check() -> str:
            look_for_trouble()
            if daemon.failure:
                return daemon.failure
            try:
                return membership.check()
            except Silent:
                if daemon.failure:
                    return daemon.failure  # why it is silent
                raise

        sentence = wait_for(daemon, enter, progress=lambda: membership.progress)
        if sentence:
            daemon.ready(sentence)
            stack.enter_context(SourceWatch(node))
            every_s = min(CHECK_EVERY_S, daemon.watchdog_s / 4) if daemon.watchdog_s else None
            daemon.supervise(child.guard(check), every_s or CHECK_EVERY_S)


def refuse_after_leaving(daemon: service.Service, settings: argv.Settings) -> NoReturn:
    text = (
        f"this node has left the cluster; to come back, run oj setup with --join, "
        f"or delete {settings.data / data.LEFT} and start again"
    )
    log.error("%s", text)
    daemon.status(text)
    sys.exit(service.EXIT_CONFIG)


def hand_over(child: Child, membership: Membership) -> None:
    """Before a stop; a mongod that has ended by itself cannot."""
    if child.alive:
        membership.hand_over()


def wait_for(
    daemon: service.Service, step: Callable[[], Answer], progress: Callable[[], str] = str
) -> Answer | None:
    """The step's first answer; None when stopped before. systemd bounds a wait without progress."""
    started_s = time.monotonic()
    seen = progress()
    for pause_s in backoff(0.05, 1.0):
        if daemon.stop.is_set():
            return None
        try:
            return step()
        except Silent as error:
            if time.monotonic() - started_s > QUIET_START_S and not daemon.failure:
                daemon.status(f"waiting: {error}")
        except Unavailable as error:
            daemon.status(f"waiting: {error.message}")
        if progress() != seen:
            seen = progress()
            daemon.extend_start(PROGRESS_S)
        daemon.stop.wait(pause_s)
    return None


def main() -> NoReturn:
    service.run("mongodb", argv.load, serve, "A mongod of an oj cluster's replica set.")
