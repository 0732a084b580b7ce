"""How a node goes: this one, in good order (`oj leave`), or one that is gone (`oj remove`).

Everything that could hinder it is looked at first, and refused before anything is done. Each step
can be done again, so after an interruption the command is simply run again.

Nodes without a database do not have its driver either, so what needs it is imported where there is
one.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from oj.client import Judicators
from oj.clock import Deadline, backoff
from oj.errors import Missing, Rejected, Unavailable
from oj.etcd import membership
from oj.node import executors, gateways, units
from oj.node.files import Files
from oj.node.plan import local_of
from oj.node.steps import Step, Tell, wait_for
from oj.own_addresses import is_own
from oj.registry import JUDICATORS
from oj.settings import default_name, parse_address

if TYPE_CHECKING:
    from oj.node.member import Member

DRAINED_S = 3600.0
KNOCK_S = 1.5
ASK_S = 5.0
INSIST_S = 6.0
DRAINED = "drained, takes no tasks"  # as oj-executor says it

Address = tuple[str, int]


# --- this node ---------------------------------------------------------------------------------


def plan_leave(files: Files, now: bool) -> list[Step]:
    """The steps with which this node leaves its cluster; Rejected when it must stay."""
    daemons = files.installed()
    values = files.values(daemons)
    found = units.look(daemons)
    member = _find_member(files, values)
    host = member.mongodb.advertise if member else ""
    steps = []
    if "gateway" in found and found["gateway"].runs:
        steps.append(Step("Stop oj-gateway", lambda tell: units.stop(["gateway"])))
    if "gateway" in found and found["gateway"].enabled:
        steps.append(_forget_gateway(values["gateway"]))
    if "executor" in found and found["executor"].runs:
        steps.append(_stop_executor(now))
    if "executor" in found and found["executor"].enabled:
        steps.append(_forget_executor(values["executor"]))
    if "judicator" in found and found["judicator"].runs:
        steps.append(
            Step("Stop oj-judicator; it hands over", lambda tell: units.stop(["judicator"]))
        )
    if member:
        steps += _leave_member(member, host, found)
    elif "etcd" in found and found["etcd"].runs:
        steps.append(Step("Stop oj-etcd", lambda tell: units.stop(["etcd"])))
    enabled = [daemon for daemon in daemons if found[daemon].enabled]
    if enabled:
        named = ", ".join(map(units.unit_of, enabled))
        steps.append(Step(f"Disable {named}", lambda tell: units.disable(enabled)))
    return steps


def _find_member(files: Files, values: Mapping[str, Any]) -> Member | None:
    """This node as a member, if it is one; Rejected when it must stay one."""
    if "mongodb" not in values or values.get("etcd", {}).get("mode") != "member":
        return None
    from oj.node.member import (
        load,
        refuse_copy,
        refuse_without_databases,
        refuse_without_members,
    )

    member = load(files)
    if not member.directory.has_data and files.held(values["mongodb"]).filled is False:
        return None  # it was never in a cluster
    if not member.directory.left.exists():
        if not units.look(["etcd"])["etcd"].runs:  # a copy's does not
            refuse_copy(member.members(), member.id, is_own)
        _refuse_last(member)
        host = member.mongodb.advertise
        _insist(lambda: refuse_without_members(member.members(), member.name))
        _insist(lambda: refuse_without_databases(member.set_members(), member.name, host))
    return member


def _insist(look: Callable[[], None]) -> None:
    """Raises Rejected if `look` goes on to: leaders change, and who is slow for a moment seems to
    be away, so that one look is no reason to send the operator away."""
    deadline = Deadline(INSIST_S)
    for pause_s in backoff(0.5, 1.0):
        try:
            look()
        except Rejected:
            if deadline.left_s < pause_s:
                raise
        else:
            return
        time.sleep(pause_s)


def _refuse_last(member: Member) -> None:
    members = member.members()
    if all(one.name == member.name for one in members if not one.learner):
        raise Rejected(
            f"{member.name} is the last judicator: nothing would be left of the cluster. "
            "To end it, stop the units or purge the packages"
        )


def _stop_executor(now: bool) -> Step:
    if now:
        text = "Stop oj-executor; what it runs is judged elsewhere"
        return Step(text, lambda tell: units.stop(["executor"]))

    def drain(tell: Tell) -> None:
        units.kill("executor", "USR1")
        wait_for(
            lambda: (
                DRAINED in units.look(["executor"])["executor"].status
                or not units.look(["executor"])["executor"].runs
            ),
            DRAINED_S,
            tell,
            "oj-executor finishes what it runs (--now gives it back)",
        )
        units.stop(["executor"])

    return Step("Let oj-executor finish what it runs, then stop it", drain)


def _forget_executor(values: Mapping[str, Any]) -> Step:
    name = default_name(values["name"])
    return Step(
        f"Take executor {name} off the list",
        lambda tell: executors.forget(name, values["judicators"], values["etcd"]),
    )


def _forget_gateway(values: Mapping[str, Any]) -> Step:
    """One that stops says good-bye itself; one that has failed did not."""
    name = default_name(values["name"])
    return Step(
        f"Take gateway {name} off the list",
        lambda tell: gateways.forget(name, values["judicators"], values["etcd"]),
    )


def _leave_member(member: Member, host: str, found: dict[str, units.Unit]) -> list[Step]:
    def leave_set(tell: Tell) -> None:
        member.mark_left()
        member.deregister(member.name)
        member.wait_until_out(host, tell)
        units.stop(["mongodb"])

    def leave_etcd(tell: Tell) -> None:
        membership.leave(member.etcd)
        units.stop(["etcd"])

    steps = []
    if not member.directory.left.exists():
        steps.append(Step(f"Take the database {host} out of the replica set", leave_set))
        steps.append(Step(f"Take {member.name} out of etcd's members", leave_etcd))
    elif found["etcd"].runs or found["mongodb"].runs:
        steps.append(
            Step("Stop oj-mongodb and oj-etcd", lambda tell: units.stop(["mongodb", "etcd"]))
        )
    return steps


# --- another node ------------------------------------------------------------------------------


@dataclass(frozen=True)
class Traces:
    """What the cluster knows of a node."""

    name: str
    member: bool = False
    host: str = ""  # of its database
    judicator: str = ""
    executor: bool = False
    gateway: bool = False
    answers: tuple[str, ...] = field(default=())  # what of it still does

    @property
    def none(self) -> bool:
        parts = (self.member, self.host, self.judicator, self.executor, self.gateway)
        return not any(parts)


def plan_remove(files: Files, name: str, force: bool) -> tuple[Traces, list[Step]]:
    """The steps that make the cluster forget a node; Rejected when it must not."""
    if not (files.has("etcd") and files.has("mongodb")):
        raise Rejected("run it on a judicator of the cluster: this machine is none")
    from oj.node.member import load, refuse_without_databases, refuse_without_members

    here = load(files)
    if here.etcd.mode != "member":
        raise Rejected("run it on a judicator of the cluster: this machine is none")
    if name == here.name:
        raise Rejected(f"{name} is this node: 'oj leave' takes it out in good order")
    _insist(lambda: refuse_without_members(here.members(), name))
    judicators = files.values(["judicator"])["judicator"] if files.has("judicator") else {}
    where = [parse_address(local_of(judicators["listen"]))] if judicators else []
    traces = find_traces(here, name, where)
    if traces.none:
        known = sorted({m.name for m in here.members()} | set(here.databases()))
        raise Missing(f"the cluster knows no node {name}; judicators: {', '.join(known)}")
    if traces.answers and not force:
        raise Rejected(
            f"{name} still answers ({', '.join(traces.answers)}): run 'oj leave' there, "
            "or say --force"
        )
    _insist(lambda: refuse_without_databases(here.set_members(), name, traces.host))
    return traces, _forget(here, traces, where)


def find_traces(here: Member, name: str, judicators: list[Address]) -> Traces:
    members = {one.name: one for one in here.members()}
    host = here.databases().get(name, "")
    with here.registry() as registry:
        judicator = registry.judicators().get(name, "")
    executor = _find_executor(name, judicators)
    gateway = _find_gateway(name, judicators)
    answers = []
    if name in members and members[name].healthy:
        answers.append("etcd")
    if host and _listens(host):
        answers.append(f"mongod at {host}")
    if judicator and _listens(judicator):
        answers.append(f"judicator at {judicator}")
    if executor is not None and not executor.silent:
        answers.append("executor")
    if gateway is not None and not gateway.silent:
        answers.append("gateway")
    return Traces(
        name,
        name in members,
        host,
        judicator,
        executor is not None,
        gateway is not None,
        tuple(answers),
    )


def _find_executor(name: str, judicators: Iterable[Address]) -> Any:
    try:
        with Judicators(judicators, timeout_s=ASK_S, learn=False) as client:
            return next((e for e in client.executors(Deadline(ASK_S)) if e.name == name), None)
    except Unavailable:
        return None  # then it is not known, which hinders nothing


def _find_gateway(name: str, judicators: Iterable[Address]) -> Any:
    try:
        with Judicators(judicators, timeout_s=ASK_S, learn=False) as client:
            listed = client.cluster(Deadline(ASK_S)).gateways or ()
    except (Rejected, Unavailable):
        return None  # not known either, or the judicator is too old to know of gateways
    return next((gateway for gateway in listed if gateway.name == name), None)


def _listens(address: str) -> bool:
    try:
        socket.create_connection(parse_address(address), KNOCK_S).close()
    except OSError:
        return False
    return True


def _forget(here: Member, traces: Traces, judicators: list[Address]) -> list[Step]:
    name, host = traces.name, traces.host
    steps = []

    def forget_judicator(tell: Tell) -> None:
        with here.registry() as registry:
            registry.delete(JUDICATORS + name)

    def forget_database(tell: Tell) -> None:
        here.deregister(name)
        here.wait_until_out(host, tell)

    if traces.judicator:
        steps.append(Step(f"Forget the judicator at {traces.judicator}", forget_judicator))
    if host:
        steps.append(Step(f"Take the database {host} out of the replica set", forget_database))
    if traces.member:
        text = f"Take {name} out of etcd's members"
        steps.append(Step(text, lambda tell: here.remove_member(name)))
    if traces.executor:
        text = f"Take executor {name} off the list"
        steps.append(Step(text, lambda tell: executors.forget(name, judicators)))
    if traces.gateway:
        text = f"Take gateway {name} off the list"
        steps.append(Step(text, lambda tell: gateways.forget(name, judicators)))
    return steps
