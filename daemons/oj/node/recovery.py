"""Disaster recovery: the one judicator that is left goes on alone, with the data that it has.

The dangerous case is the others still being there: they would go on as the cluster that they are,
beside this one. So whoever is known is knocked at, on every port, and any answer is a refusal.
"""

from __future__ import annotations

import contextlib
import socket
from concurrent.futures import ThreadPoolExecutor

from oj.child import Silent
from oj.errors import Rejected, Unavailable
from oj.etcd import membership
from oj.mongodb import roster
from oj.mongodb.replicaset import Node
from oj.node import units
from oj.node.address import canonical
from oj.node.files import Files
from oj.node.member import Member, load
from oj.node.plan import show_address
from oj.node.steps import Step, Tell, wait_for
from oj.settings import is_loopback, parse_address

READY_S = 240.0
KNOCK_S = 1.5

Address = tuple[str, int]


def plan_recover(files: Files, name: str) -> list[Step]:
    """The steps; Rejected unless this node is the one named, and alone."""
    here = load(files)
    if name != here.name:
        raise Rejected(f"this node is {here.name}, not {name}: run it on the survivor")
    values = files.values(["mongodb", "judicator"])
    if here.etcd.mode != "member" or not here.directory.has_data:
        raise Rejected(f"there is no data of an etcd member in {here.etcd.data}")
    if not files.held(values["mongodb"]).filled:
        raise Rejected(f"there is no data of a database in {here.mongodb.data}")
    others = find_others(here, values["judicator"]["mongodb"])
    ports = (values["judicator"]["listen"][1], here.etcd.client[1], here.mongodb.listen[1])
    answering = knock({(host, port) for host, own in others for port in (own, *ports)})
    if answering:
        told = ", ".join(show_address(*address) for address in answering)
        raise Rejected(
            f"this node is not the only one left: there is an answer from {told}. Let the cluster "
            "heal, or 'oj remove' who is gone; if it cannot, power the others off first"
        )
    if not others and _leads_alone(here):
        raise Rejected(f"{name} is alone and well: there is nothing to recover")
    running = [daemon for daemon, unit in units.look(files.installed()).items() if unit.runs]
    wanted = [d for d in files.installed() if d in ("judicator", "executor")]
    enabled = [d for d, unit in units.look(wanted).items() if unit.enabled]
    named = ", ".join(map(units.unit_of, enabled))
    return [
        Step("Stop the units of this node", lambda tell: units.stop(running)),
        Step("Make etcd a cluster of this member alone", lambda tell: _recover_etcd(here, tell)),
        Step(
            f"Make the replica set one of {here.mongodb.advertise} alone",
            lambda tell: _recover_database(here, tell),
        ),
        Step(f"Start {named}", lambda tell: _start(enabled, tell)),
    ]


def find_others(here: Member, seeds: list[Address]) -> set[Address]:
    """Everyone whom this node has ever heard of and still remembers."""
    found = {*here.endpoints(), *here.mongodb.etcd, *seeds}
    with contextlib.suppress(Unavailable):
        for member in here.members():
            found |= {parse_address(text) for text in membership.client_addresses(member)}
    node = Node(here.mongodb.local, here.mongodb.replica_set)
    try:
        found |= {parse_address(host) for host in node.hosts()}
    except (Silent, Unavailable):
        pass
    finally:
        node.close()
    mine = {canonical(here.etcd.advertise), canonical(parse_address(here.mongodb.advertise)[0])}
    return {
        (host, port)
        for host, port in found
        if not is_loopback(canonical(host)) and canonical(host) not in mine
    }


def knock(addresses: set[Address]) -> list[Address]:
    """Those where something listens."""

    def listens(address: Address) -> bool:
        try:
            socket.create_connection(address, KNOCK_S).close()
        except OSError:
            return False
        return True

    wanted = sorted(addresses)
    if not wanted:
        return []
    with ThreadPoolExecutor(min(32, len(wanted))) as threads:
        return [a for a, found in zip(wanted, threads.map(listens, wanted), strict=True) if found]


def _leads_alone(here: Member) -> bool:
    with contextlib.suppress(Unavailable):
        etcd = all(one.name == here.name and one.healthy for one in here.members())
        hosts = [one.host for one in here.set_members() if one.state == "primary"]
        return etcd and hosts == [here.mongodb.advertise]
    return False


def _start(daemons: list[str], tell: Tell) -> None:
    units.start(daemons)
    late = units.wait_until_ready(daemons, READY_S, tell)
    if late:
        raise Unavailable(f"{late[0].name} is not ready: {late[0].status or late[0].state}")


def _recover_etcd(here: Member, tell: Tell) -> None:
    membership.force_new_cluster(here.etcd)
    _start(["etcd"], tell)


def _recover_database(here: Member, tell: Tell) -> None:
    settings = here.mongodb
    with here.registry() as registry:
        for name in roster.read_registered(registry):
            if name != here.name:
                roster.deregister(registry, name)
    units.start(["mongodb"])
    node = Node(settings.local, settings.replica_set)

    def is_alone() -> bool:
        try:
            if node.hosts() != (settings.advertise,):
                node.force_alone(settings.advertise)
        except Silent as error:
            raise Unavailable(str(error)) from error
        return True

    try:
        wait_for(is_alone, READY_S, tell, "mongod starts")
    finally:
        node.close()
    late = units.wait_until_ready(["mongodb"], READY_S, tell)
    if late:
        raise Unavailable(f"oj-mongodb is not ready: {late[0].status or late[0].state}")
