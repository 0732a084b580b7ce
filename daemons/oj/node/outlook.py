"""What a setup of this node will do, decided before anything is changed.

Everything is looked at (files, the cluster, data, units); nothing is written. What must not be done
is Rejected here, with the reason, and so is what the cluster does not answer, as Unavailable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from oj import settings
from oj.errors import Rejected, Unavailable
from oj.node import address, conf, data, units
from oj.node.files import Files
from oj.node.plan import ETCD_PORT, Address, Wish, is_loopback, local_of, make_edits

if TYPE_CHECKING:
    from oj.node.peers import Cluster

TASKS_S = 30.0  # a node that has just booted is not ready yet

Values = dict[str, dict[str, Any]]


@dataclass(frozen=True)
class Request:
    """What was asked for."""

    roles: tuple[str, ...]
    join: tuple[Address, ...] = ()  # port 0: oj's own
    discover: str = ""
    name: str = ""
    address: str = ""
    start: bool = True
    set_data_aside: bool = False
    find_s: float = 10.0  # how long to look for the cluster


@dataclass(frozen=True)
class Aside:
    """Data of another cluster that has to make room."""

    held: data.Held
    keep: bool  # tasks may be in it


@dataclass(frozen=True)
class Outlook:
    """All that a setup does, decided before anything is changed."""

    wish: Wish
    name: str
    why: str  # this address
    cluster: Cluster | None
    texts: dict[str, str] = field(default_factory=dict)  # the files that change
    changes: dict[str, list[conf.Change]] = field(default_factory=dict)
    aside: tuple[Aside, ...] = ()
    unmark: tuple[data.Held, ...] = ()
    enable: tuple[str, ...] = ()
    disable: tuple[str, ...] = ()
    stop: tuple[str, ...] = ()
    start: tuple[str, ...] = ()
    forget: tuple[str, Address] | None = None  # an executor that is none any more, and where
    strangers: Path | None = None  # where the members of another cluster are remembered

    later: tuple[str, ...] = ()  # daemons that follow their changes from the next start on

    @property
    def empty(self) -> bool:
        acts = self.enable or self.disable or self.stop or self.start
        return not (self.changes or self.aside or self.unmark or self.strangers or acts)


def decide(request: Request, files: Files) -> Outlook:
    """Looks at everything; raises Rejected, BadSettings or Unavailable when it must not be."""
    wish = Wish(request.roles, name=request.name, discover=request.discover)
    files.demand(wish.daemons)
    client = ["client"] if files.path("client").exists() else []
    values = files.values([*files.installed(), *client])
    name = request.name or _one_name(wish, values)
    cluster = _find_cluster(request, wish, values)
    where, why = "", ""
    if wish.member:
        towards = request.join[0][0] if request.join else ""
        where, why = address.choose(request.address, values["etcd"]["advertise"], towards)
        if towards and address.canonical(towards) == address.canonical(where):
            raise Rejected(f"--join: {towards} is this machine; name another judicator")
    elif request.address:
        raise Rejected("--address: others look for judicators only")
    wish = replace(wish, address=where, peers=cluster.without(where) if cluster else None)
    if cluster:
        _refuse_name_of_another(wish, name, cluster)
    aside, unmark = _judge_data(request, files, wish, values, cluster, name)
    strangers = _find_strangers(files, wish, values, cluster)
    outlook = Outlook(wish, name, why, cluster, aside=aside, unmark=unmark, strangers=strangers)
    outlook = _decide_files(outlook, files, values)
    if not files.live:
        return outlook
    outlook = _decide_units(outlook, request, files, values)
    if wish.member and not aside and "executor" in outlook.stop and "executor" in outlook.disable:
        executor = settings.default_name(values["executor"]["name"])
        local = settings.parse_address(local_of(values["judicator"]["listen"]))
        outlook = replace(outlook, forget=(executor, local))
    return outlook


def _one_name(wish: Wish, values: Values) -> str:
    names = {d: settings.default_name(values[d].get("name", "")) for d in wish.daemons}
    if len(set(names.values())) > 1:
        told = ", ".join(f"{name} in {daemon}.conf" for daemon, name in names.items())
        raise Rejected(f"this node has several names: {told}; give it one with --name")
    return next(iter(names.values()))


def _find_cluster(request: Request, wish: Wish, values: Values) -> Cluster | None:
    from oj.etcd.discovery import Names
    from oj.node import peers  # slow to import: grpc

    if request.join:
        hosts = [(host, port or ETCD_PORT) for host, port in request.join]
        for host, _ in hosts:
            address.resolve(host)
        try:
            return peers.find(hosts, request.find_s)
        except Unavailable as error:
            first = hosts[0][0]
            raise Unavailable(
                f"{first} does not answer: {error.message}\n"
                f"    Is it a judicator that was set up for a cluster "
                f"('oj setup judicator' there), and is it running?"
            ) from None
    known = values["etcd"]["cluster"]
    if not wish.member and not wish.discover and not (known["join"] or known["discover"]):
        raise Rejected(f"{'/'.join(wish.roles)}: which cluster? --join HOST names a judicator")
    if wish.discover:
        names = Names(wish.discover, values["etcd"]["client"][1])
        # Nobody there yet is fine: those that come make the cluster.
        with contextlib.suppress(Rejected, Unavailable):
            return peers.find([settings.parse_address(found) for found in names.find()], 1.0)
    return None


def _refuse_name_of_another(wish: Wish, name: str, cluster: Cluster) -> None:
    holder = cluster.holder_of(name)
    if not wish.member:
        if holder is not None and holder != "":
            raise Rejected(
                f"the cluster has a judicator {name} at {holder}: "
                "if it is this node, run 'oj leave' here first; if not, give another --name"
            )
        return
    if holder and address.canonical(holder) != address.canonical(wish.address):
        raise Rejected(
            f"the cluster has a node {name} at {holder} already: give this one another --name, "
            f"or, if that one is gone for good, run 'oj remove {name}' first"
        )


def _judge_data(
    request: Request,
    files: Files,
    wish: Wish,
    values: Values,
    cluster: Cluster | None,
    name: str,
) -> tuple[tuple[Aside, ...], tuple[data.Held, ...]]:
    """What to set aside, and where to take a mark of having left away."""
    held: dict[str, data.Held] = {
        d: files.held(values[d]) for d in ("etcd", "mongodb") if d in values
    }
    left = tuple(one for one in held.values() if one.left)
    filled = [one for one in held.values() if one.filled]
    if cluster is None:
        if left and not wish.discover:
            raise Rejected(
                "this node has left its cluster: --join HOST takes it back into one "
                f"(or remove {left[0].directory / data.LEFT}, to go on with what it has)"
            )
        if left or not wish.discover or not is_loopback(values["etcd"]["client"][0]):
            return (), left
        # Up to now it was a cluster of its own, which no other node has ever seen: with that data
        # it would go on so, beside the one that is to be found or made.
        tasks = _refuse_to_hide_tasks(request, files, held, values)
        return tuple(Aside(one, keep=tasks and one is not held["etcd"]) for one in filled), ()
    if left:
        # What it had, the cluster has, and more by now.
        return tuple(Aside(one, keep=False) for one in filled), left
    origin = data.read_origin(held["etcd"].directory)
    configured = settings.default_name(values["etcd"]["name"])
    if cluster.owns(origin, {name, configured}):
        if not wish.member:
            raise Rejected("this node is a member of that cluster: run 'oj leave' here first")
        return (), ()
    if origin is None and _is_registered(cluster, name, wish.address):
        return (), ()  # its etcd lost its data; its database is the cluster's
    tasks = _refuse_to_hide_tasks(request, files, held, values)
    return tuple(Aside(one, keep=tasks and one is not held["etcd"]) for one in filled), ()


def _find_strangers(
    files: Files, wish: Wish, values: Values, cluster: Cluster | None
) -> Path | None:
    """What a proxy remembers, if none of it belongs to this cluster.

    It would go back to those while the members of this one are away, and stay there.
    """
    if wish.member or cluster is None:
        return None
    from oj.etcd.datadir import PROXY, DataDirectory

    directory = DataDirectory(files.held(values["etcd"]).directory / PROXY)
    known = directory.read_known().clients
    return directory.known if known and set(known).isdisjoint(cluster.endpoints) else None


def _is_registered(cluster: Cluster, name: str, where: str) -> bool:
    """Whether the cluster has a database of this name at this address."""
    known = cluster.databases.get(name)
    if not known or not where:
        return False
    host, _ = settings.parse_address(known)
    return address.canonical(host) == address.canonical(where)


def _refuse_to_hide_tasks(
    request: Request, files: Files, held: dict[str, data.Held], values: Values
) -> bool:
    """Whether there may be tasks that will be set aside; Rejected when that was not asked for."""
    if "mongodb" not in held or not held["mongodb"].filled:
        return False
    tasks = _has_tasks(files, values)
    if tasks is False:
        return False
    if not request.set_data_aside:
        what = (
            "has tasks of its own"
            if tasks
            else "may have tasks of its own (oj-judicator does not run, so nobody can tell)"
        )
        raise Rejected(
            f"this node {what}, in {held['mongodb'].directory}, which joining a cluster would "
            "hide: back them up, or say --set-data-aside to keep them there in a directory "
            "of their own"
        )
    return True


def _has_tasks(files: Files, values: Values) -> bool | None:
    """Whether this node's own database has any; None when nobody can tell."""
    from oj.client import Judicators
    from oj.clock import Deadline

    if not files.live or "judicator" not in values:
        return None
    if not units.look(["judicator"])["judicator"].runs:
        return None
    where = settings.parse_address(local_of(values["judicator"]["listen"]))
    try:
        with Judicators([where], timeout_s=TASKS_S, learn=False) as here:
            found, _ = here.search(limit=1, deadline=Deadline(TASKS_S))
    except Unavailable:
        return None
    return bool(found)


def _decide_files(outlook: Outlook, files: Files, values: Values) -> Outlook:
    edits = make_edits(outlook.wish, values, address.canonical)
    texts, changes = {}, {}
    for role in dict.fromkeys(edit.role for edit in edits):
        old = files.path(role).read_text(encoding="utf-8")
        new, changed = conf.apply(old, [edit for edit in edits if edit.role == role])
        if changed:
            texts[role], changes[role] = new, changed
    return replace(outlook, texts=texts, changes=changes)


def _decide_units(outlook: Outlook, request: Request, files: Files, values: Values) -> Outlook:
    found = units.look(files.installed())
    wanted = outlook.wish.daemons
    others = [daemon for daemon in found if daemon not in wanted]
    moved = bool(outlook.aside or outlook.unmark)
    anew = {"etcd"} if outlook.strangers else set()  # it remembers them, too
    later = tuple(
        d
        for d in wanted
        if not moved
        and d not in anew
        and d in outlook.changes
        and found[d].state == "active"
        and all(can_wait(change, values[d], outlook.wish) for change in outlook.changes[d])
    )
    changed = (set(outlook.changes) | anew) - set(later)
    again = [d for d in wanted if moved or d in changed or not found[d].runs]
    start = tuple(again) if request.start else ()
    stop = [d for d in found if found[d].runs and (d in others or moved or d in start)]
    return replace(
        outlook,
        enable=tuple(d for d in wanted if not found[d].enabled),
        disable=tuple(d for d in others if found[d].enabled),
        stop=tuple(stop),
        start=start,
        later=later,
    )


def can_wait(change: conf.Change, values: Mapping[str, Any], wish: Wish) -> bool:
    """Whether a daemon that serves does well without it until it starts again.

    Lists are only looked at when those in use fail, so it is enough to know some of a new one;
    and a member of etcd that has its data needs nobody to join.
    """
    key = change.edit.key
    if key == "join" and wish.member:
        return True
    if key not in ("join", "etcd", "mongodb", "judicators"):
        return False
    known = values[change.edit.section] if change.edit.section else values
    new = {settings.parse_address(word) for word in change.edit.value.split(",")}
    return not new.isdisjoint(known[key])
