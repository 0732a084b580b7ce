"""A proxy on a node without data: etcd's gRPC proxy, given the members that there are now.

etcd's proxy has the members' addresses on its command line and never learns of others. So the
daemon asks a member for the list in every round and starts the proxy again when it has changed,
which its clients notice as a short break of their connections. The list is kept on disk: the next
start finds the members also when none of those in the configuration is one any more.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence

from oj.child import Child, Silent
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.etcd import argv, cluster, membership
from oj.etcd.datadir import PROXY, DataDirectory, Known, others
from oj.etcd.decisions import MemberSeen
from oj.etcd.discovery import Names
from oj.etcdmessages import Member
from oj.etcdwire import Connection
from oj.settings import is_loopback, parse_address

log = logging.getLogger("oj.etcd")

STOP_S = 5.0
START_S = 3.0  # until a new one listens
# For how long members may answer us but not through the proxy, before that is started anew.
PATIENCE_S = 10.0


class Proxy:
    """One proxy process after another, as the members change."""

    def __init__(
        self, settings: argv.Settings, make_child: Callable[[list[str]], Child], names: Names
    ) -> None:
        self._settings, self._make_child, self._names = settings, make_child, names
        self._directory = DataDirectory(settings.data / PROXY)
        self._directory.prepare()
        self._own = argv.client_address(settings)
        self._endpoints: tuple[str, ...] = ()
        self._child: Child | None = None
        self._member: Connection | None = None  # whom we ask for the list
        self._local = Connection(argv.join_address(*settings.local))
        self._served_s = 0.0  # when it last did, or was started

    def close(self) -> None:
        self._stop_child()
        self._local.close()
        self._forget_member()

    def check(self) -> str:
        """Follows the members, then one sentence about how they answer through the proxy."""
        endpoints = self._follow()
        if endpoints and endpoints != self._endpoints:
            self._restart(endpoints)
        elif self._endpoints and (self._child is None or not self._child.alive):
            self._restart(self._endpoints)
        if self._child is None:
            raise Unavailable(f"none of {', '.join(self._sources())} answers")
        try:
            sentence = cluster.check_proxy(self._local, self._settings.local)
        except (Unavailable, Silent):
            if endpoints and time.monotonic() - self._served_s > PATIENCE_S:
                log.warning("members answer, but not through the proxy; starting it again")
                self._restart(self._endpoints)
            raise
        self._served_s = time.monotonic()
        return f"{sentence}: {', '.join(self._endpoints)}"

    def _follow(self) -> tuple[str, ...]:
        """The members' client addresses; nothing when nobody tells them."""
        if self._member is not None:
            try:
                members = self._member.members(timeout_s=membership.ASK_S)
                return self._keep(list_clients(members, self._member.address))
            except Unavailable:
                self._forget_member()
        found = membership.look(self._sources(), confirm_s=None)
        if found.cluster is None or found.via is None:
            return ()
        self._member = Connection(found.via)
        return self._keep(list_clients(found.cluster.members, found.via) or found.answering)

    def _keep(self, endpoints: tuple[str, ...]) -> tuple[str, ...]:
        known = Known(clients=endpoints)
        if endpoints and known != self._directory.read_known():
            try:
                self._directory.write_known(known)
            except Unavailable as error:
                log.warning("%s", error.message)
        return endpoints

    def _sources(self) -> tuple[str, ...]:
        configured = [argv.join_address(*address) for address in self._settings.join]
        known = self._directory.read_known().clients
        found = [*self._endpoints, *configured, *self._names.find(), *known]
        # Asked itself, a proxy would answer as if it were a member.
        return others(found, (argv.join_address(*self._settings.local), self._own))

    def _restart(self, endpoints: tuple[str, ...]) -> None:
        """From the main thread: the child dies with the thread that started it."""
        if self._endpoints and endpoints != self._endpoints:
            log.info("members are now at %s", ", ".join(endpoints))
        self._stop_child()
        self._endpoints = endpoints
        self._child = self._make_child(argv.proxy_command(self._settings, endpoints)).start()
        deadline = Deadline(START_S)
        host, port = self._settings.local
        while not deadline.expired and not membership.accepts(host, port, deadline.left_s):
            if self._child.exited.wait(0.05):
                break
        self._served_s = time.monotonic()

    def _stop_child(self) -> None:
        if self._child is not None:
            self._child.stop(STOP_S)

    def _forget_member(self) -> None:
        if self._member is not None:
            self._member.close()
            self._member = None


def list_clients(members: Sequence[Member | MemberSeen], via: str) -> tuple[str, ...]:
    """Where the voting members are for their clients, in a fixed order.

    A member that advertises a loopback address is there only for its own machine.
    """
    here = _is_local(via)
    return tuple(
        sorted(
            address
            for member in members
            if not member.learner
            for address in membership.client_addresses(member)
            if here or not _is_local(address)
        )
    )


def _is_local(address: str) -> bool:
    return is_loopback(parse_address(address)[0])
