"""The life of the daemon, from top to bottom.

Threads: one per connection (server.py), `feed` reads others' changes, `chores`
and `leader` each do a round a second, two pulses feel for the database and for
etcd, the registry keeps its leases, and the main thread supervises. They meet in
the broker and the reports, whose locks are held for moments; whoever waits for
work or news waits outside of them.
"""

from __future__ import annotations

import contextlib
import logging
import socket
import threading
from collections.abc import Iterator
from typing import Any

from oj import loopback_guard, metrics, service
from oj.clock import backoff
from oj.errors import Unavailable
from oj.events import Event, tell
from oj.judicator import numbers
from oj.judicator.broker import Broker
from oj.judicator.chores import Chores
from oj.judicator.cluster import (
    ABLE_PREFIX,
    KEEPS_BLOBS,
    LEADER_KEY,
    SERVICE_PREFIX,
    Cluster,
)
from oj.judicator.frames import Malformed
from oj.judicator.handler import Handler
from oj.judicator.health import Pulse
from oj.judicator.leader import Leader
from oj.judicator.neighbours import Neighbours
from oj.judicator.outward import Outward
from oj.judicator.reports import Reports
from oj.judicator.server import Server, call_version
from oj.judicator.settings import JudicatorSettings, choose_advertised, make_uri
from oj.judicator.store.adding import NewTasks
from oj.judicator.store.blobs import Blobs
from oj.judicator.store.counts import Counts
from oj.judicator.store.database import Pinger, connect, connect_to_ping
from oj.judicator.store.feed import Feed
from oj.judicator.store.gateways import Gateways
from oj.judicator.store.happenings import Happenings
from oj.judicator.store.history import History
from oj.judicator.store.hooks import Hooks
from oj.judicator.store.leadership import Leadership
from oj.judicator.store.replicas import Replicas
from oj.judicator.store.roster import Roster
from oj.judicator.store.search import Search
from oj.judicator.store.shares import Shares
from oj.judicator.store.tasks import TaskStore
from oj.judicator.store.tokens import Tokens
from oj.judicator.store.uploads import Uploads
from oj.loopback_guard import heed_word
from oj.model import ACTIVE
from oj.registry import Election, Registry
from oj.rpc import Judicator
from oj.settings import is_loopback, parse_address

log = logging.getLogger("oj.judicator")

REGISTER_TTL_S = 6.0
LEADER_TTL_S = 5.0
SELF_CHECK_S = 3.0
ETCD_TIMEOUT_S = 2.0
DATABASES_PREFIX = "mongodb/member/"
STOPPING_TIMEOUT_S = 1.0


def serve(daemon: service.Service, config: JudicatorSettings) -> None:
    heed_word(config.etcd)
    with contextlib.ExitStack() as stack:
        registry = stack.enter_context(Registry(config.etcd, config.etcd_prefix, ETCD_TIMEOUT_S))
        uri = make_uri(_find_seeds(registry, config), config.replica_set)
        client: Any = connect(uri)
        database = client[config.database]

        store = TaskStore(database, config.name)
        history, tokens, hooks = History(database), Tokens(database), Hooks(database)
        happenings, gateways = Happenings(database), Gateways(database)
        uploads = Uploads(database)
        roster, shares = Roster(database), Shares(database)
        counts = Counts(database, config.name)
        pinger = Pinger(connect_to_ping(uri))
        database_pulse = Pulse("the database", pinger.ping, lambda answers: wake_everybody())
        etcd_pulse = Pulse("etcd", registry.ping, lambda answers: None)
        # A client that cannot say good-bye to the database would try to for long.
        stack.callback(lambda: database_pulse.answers and client.close())
        broker = Broker(
            NewTasks(database, config.name),
            store,
            shares,
            roster,
            counts,
            history,
            config.rules,
            database_pulse.check,
        )
        reports = Reports(broker, store, roster, shares)
        cluster = Cluster(registry, roster, counts)
        spool = config.state_directory / "spool"
        blobs = Blobs(database, spool, lambda: _may_mark(etcd_pulse, cluster))
        stack.callback(blobs.close)
        current = threading.local()
        neighbours = Neighbours(
            config.etcd,
            registry,
            Replicas(client),
            cluster.judicators,
            cluster.executors_lately,
            gateways.read_all,
        )
        stack.callback(neighbours.close)
        handler = Handler(
            broker,
            reports,
            Search(database),
            blobs,
            cluster,
            neighbours,
            Outward(happenings, history, tokens, uploads, hooks, gateways),
            database_pulse,
            etcd_pulse,
            config.name,
            current,
            parse_address(choose_advertised(config, 0, socket.gethostname()))[0],
        )

        def wake_everybody() -> None:
            """Whoever waits here shall look for himself."""
            reports.look_everywhere()
            broker.waiters.tell_all(broker.waiters.tasks())

        stored = [store, roster, shares, blobs, history, tokens, uploads, hooks, gateways]
        if not _prepare(daemon, stored, shares):
            return

        stack.enter_context(database_pulse)
        stack.enter_context(etcd_pulse)
        stack.enter_context(
            Chores(broker, reports, shares, counts, history, blobs, cluster, database_pulse.check)
        )
        feed = Feed(database, config.name, _spread(broker, reports), wake_everybody)
        stack.enter_context(feed)
        election = Election(registry, LEADER_KEY, config.name, LEADER_TTL_S, _tell_of_election)
        election.start()
        stack.callback(lambda: election.close(revoke=etcd_pulse.answers))
        stack.enter_context(
            Leader(
                lambda: election.fence,
                registry,
                Leadership(database, config.name),
                broker,
                roster,
                blobs,
                cluster.find_careless,
                counts,
                config.forget_s,
            )
        )
        server = stack.enter_context(
            Server(config.listen, Judicator.Processor(handler), current, config.max_connections)
        )
        # Unwound first: whoever is parked gets his answer while the server still sends.
        stack.callback(reports.close)
        stack.callback(broker.close)
        stack.callback(happenings.close)

        address = choose_advertised(config, server.port, socket.gethostname())
        misleading = _find_misleading(daemon, registry, config, address)
        if misleading is None:
            return
        told = {ABLE_PREFIX + config.name: KEEPS_BLOBS}
        if misleading:
            log.error("serves this machine only, and is not told to others: %s", misleading)
        else:
            told[SERVICE_PREFIX + config.name] = address
        lease = registry.register_all(told, REGISTER_TTL_S)
        stack.callback(lambda: lease.close(revoke=etcd_pulse.answers))
        # Stopping is bounded, whoever does not answer: see TimeoutStopSec= in the unit.
        stack.callback(lambda: registry.hurry(STOPPING_TIMEOUT_S))
        while not lease.wait(1.0):
            daemon.status("waiting for etcd")
            daemon.alive()
            if daemon.stop.is_set():
                return

        def look() -> Iterator[metrics.Reading]:
            return numbers.look(
                lambda: election.leading,
                feed.running.is_set,
                database_pulse,
                etcd_pulse,
                broker,
                cluster,
            )

        stack.enter_context(metrics.served("judicator", config.metrics, numbers.ALL, look))

        def check() -> str:
            _call_self(config, server)
            database_pulse.check()
            etcd_pulse.check()
            own = "serving this machine only, see the journal; " if misleading else ""
            return own + _describe(election.leading, cluster)

        daemon.ready(f"serving at {address}")
        daemon.supervise(check)


def _find_misleading(
    daemon: service.Service, registry: Registry, config: JudicatorSettings, address: str
) -> str | None:
    """Why others must not be told this address, which would lead them to themselves: nothing when
    they may, None when told to stop first.

    Only judicators elsewhere count. A database may be on another machine, or registered there
    under another name, and this judicator the only one.
    """
    host = parse_address(address)[0]
    while is_loopback(host):
        try:
            known = registry.judicators()
        except Unavailable:
            daemon.status("waiting for etcd")
            daemon.alive()
            if daemon.stop.wait(1.0):
                return None
            continue
        others = (place for name, place in known.items() if name != config.name)
        hosts = loopback_guard.find_others(host, others)
        return loopback_guard.describe("judicator.conf", address, hosts) if hosts else ""
    return ""


def _may_mark(etcd_pulse: Pulse, cluster: Cluster) -> bool:
    """Whether a blob may be taken for unused one day; not while nobody can tell."""
    with contextlib.suppress(Unavailable):
        etcd_pulse.check()
        return not cluster.find_careless()
    return False


def _find_seeds(registry: Registry, config: JudicatorSettings) -> list[tuple[str, int]]:
    """Where to look for MongoDB: as configured, and whoever is registered now."""
    seeds = list(config.mongodb)
    try:
        registered = registry.get_prefix(DATABASES_PREFIX).values()
    except Unavailable as error:
        log.warning("cannot ask etcd for MongoDB's members: %s", error.message)
        return seeds
    for text in registered:
        with contextlib.suppress(ValueError):
            address = parse_address(text)
            if address not in seeds:
                seeds.append(address)
    return seeds


def _prepare(daemon: service.Service, parts: list[Any], shares: Shares) -> bool:
    """Makes the indexes, which needs the database; False when told to stop first."""
    for pause_s in backoff(0.1, 2.0):
        try:
            for part in parts:
                part.make_indexes()
            shares.exchange()
            return True
        except Unavailable as error:
            daemon.status(f"waiting for the database: {error.message}")
            daemon.alive()
        if daemon.stop.wait(pause_s):
            return False
    raise AssertionError("backoff has no end")


def _spread(broker: Broker, reports: Reports) -> Any:
    def changed(task_id: str, waits: bool, language: str | None, taken_away: bool) -> None:
        if taken_away:
            reports.heard_of(task_id)
        broker.heard_of(task_id, waits=waits, language=language)

    return changed


def _tell_of_election(leading: bool) -> None:
    if leading:
        tell(log, Event.LEADING, "leading: sweeps are ours")
    else:
        tell(log, Event.FOLLOWING, "following: sweeps are another's")


def _call_self(config: JudicatorSettings, server: Server) -> None:
    """A call over our own port, as a client makes it: the real check."""
    if server.full:
        return  # it serves those who are connected
    host = config.listen[0]
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)
    try:
        call_version((host, server.port), SELF_CHECK_S)
    except (OSError, Malformed) as error:
        raise RuntimeError(f"does not answer on its own port: {error}") from error


def _describe(leading: bool, cluster: Cluster) -> str:
    stats = cluster.stats()
    running = sum(stats.by_status.get(status, 0) for status in ACTIVE)
    executors = f"{stats.executors} executor{'' if stats.executors == 1 else 's'}"
    return (
        f"{'leading' if leading else 'following'}; {executors}, "
        f"{stats.queue} pending, {running} running"
    )
