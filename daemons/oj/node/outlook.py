"""What a setup of this node will do, decided before anything is changed.

Everything is looked at (files, the cluster, data, units); nothing is written. What must not be done
is Rejected here, with the reason, and so is what the cluster does not answer, as Unavailable.
"""

from __future__ import annotations

import contextlib
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from oj import settings
from oj.clock import Deadline
from oj.errors import Rejected, Unavailable
from oj.incarnation import INSTALLATION
from oj.node import address, conf, data, port_holders, preflight, units
from oj.node.files import Files
from oj.node.plan import ETCD_PORT, JUDICATOR_PORT, Address, Wish, local_of, make_edits
from oj.node.preflight import Port, Preflight, Room, Target
from oj.settings import is_loopback

if TYPE_CHECKING:
    from oj.etcdmessages import Member
    from oj.node.peers import Cluster

TASKS_S = 30.0  # a node that has just booted is not ready yet
ALIVE_S = 3.0  # of a member whose data is here, too
KNOWN_S = 3.0  # to find the cluster that the files name, where nothing waits for it
# What a directory must have when a daemon begins with it: mongod keeps changes of up to 1 GB, etcd
# allocates 64 MB at a time, a blob may have 256 MB.
ROOMS = (
    ("mongodb", "data", 1 << 30),
    ("etcd", "data", 256 << 20),
    ("judicator", "state_directory", 512 << 20),
    ("executor", "state_directory", 512 << 20),
)

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
    only: bool = False  # stop what serves here in another role
    find_s: float = 6.0  # how long to look for the cluster
    deadline: Deadline = field(default_factory=lambda: Deadline(240.0))  # for all of it


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
    cluster: Cluster | None  # that is joined
    known: Cluster | None = None  # that this node is in already, as far as it answers
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
    kept: tuple[str, ...] = ()  # roles that were not asked for, but serve here
    preflight: Preflight | None = None
    notes: tuple[str, ...] = ()  # of what was tried: worth a word, and no hindrance

    @property
    def empty(self) -> bool:
        acts = self.enable or self.disable or self.stop or self.start
        return not (self.changes or self.aside or self.unmark or self.strangers or acts)


def decide(request: Request, files: Files) -> Outlook:
    """Looks at everything; raises Rejected, BadSettings or Unavailable when it must not be."""
    files.demand(Wish(request.roles).daemons)
    kept = _find_kept(request, files)
    roles = (*request.roles, *kept)
    wish = Wish(roles, name=request.name, discover=request.discover, kept=kept)
    client = ["client"] if files.path("client").exists() else []
    values = files.values([*files.installed(), *client])
    name = request.name or _one_name(wish, values)
    cluster = _find_cluster(request, wish, values)
    known = cluster or _find_known(request, wish, values)
    where, why = "", ""
    towards = request.join[0][0] if request.join else ""
    if wish.member:
        configured, before = values["etcd"]["advertise"], _find_address_of_data(files, values)
        where, why = address.choose(request.address, configured, towards, before)
        if towards and address.canonical(towards) == address.canonical(where):
            raise Rejected(f"--join: {towards} is this machine; name another judicator")
    elif request.address:
        raise Rejected("--address: others look for judicators only")
    if original := _find_original(request, files, values, known, where):
        _refuse_copy(request, values, original, name)
        if wish.member:  # what the files say of an address, they say of the original's
            where, why = address.choose(request.address, "", towards)
    notes: tuple[str, ...] = ()
    found = "" if original else _find_name_of_data(files, values, cluster, wish, where)
    if found and _takes_name_of_data(request, values, wish, name, found, bool(cluster)):
        name, wish = found, replace(wish, name=found)
        notes = (f"the data here is of {name}, so that this node has that name again",)
    wish = replace(wish, address=where, peers=cluster.without(where, name) if cluster else None)
    if cluster:
        _demand_majority(files, values, cluster, name)
        _refuse_name_of_another(wish, name, cluster)
        if false := cluster.find_loopback({name}):
            raise Rejected(false)
    elif known:
        _refuse_to_cross_known(files, wish, values, name, known)
    aside, unmark = _judge_data(request, files, wish, values, cluster, name, original is not None)
    strangers = _find_strangers(files, wish, values, cluster)
    outlook = Outlook(wish, name, why, cluster, known, aside=aside, unmark=unmark, notes=notes)
    outlook = replace(outlook, strangers=strangers, kept=kept)
    outlook = _decide_files(outlook, files, values)
    if not files.live:
        return outlook
    outlook = _decide_units(outlook, request, files, values)
    if wish.member and not aside and "executor" in outlook.stop and "executor" in outlook.disable:
        executor = settings.default_name(values["executor"]["name"])
        local = settings.parse_address(local_of(values["judicator"]["listen"]))
        outlook = replace(outlook, forget=(executor, local))
    return outlook if outlook.empty else _prove(outlook, request, files, values)


def _find_kept(request: Request, files: Files) -> tuple[str, ...]:
    """Executor and gateway, where they serve here and nothing was said of them.

    Who makes a node of a working machine wants one more role of it, or says --only.
    """
    if request.only or not files.live:
        return ()
    others = [
        role for role in ("executor", "gateway") if role not in request.roles and files.has(role)
    ]
    found = units.look(others)
    return tuple(role for role in others if found[role].runs)


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
        return _find_joined(request)
    known = values["etcd"]["cluster"]
    if not wish.member and not wish.discover and not (known["join"] or known["discover"]):
        raise Rejected(f"{'/'.join(wish.roles)}: which cluster? --join HOST names a judicator")
    if wish.discover:
        names = Names(wish.discover, values["etcd"]["client"][1])
        # Nobody there yet is fine: those that come make the cluster.
        with contextlib.suppress(Rejected, Unavailable):
            hosts = [settings.parse_address(found) for found in names.find()]
            cluster = peers.find(hosts, 1.0)
            # Without a majority for a moment, it tells nothing that is needed here.
            return None if cluster.problem else cluster
    return None


def _find_known(request: Request, wish: Wish, values: Values) -> Cluster | None:
    """The cluster that the files name: to compare names and clocks with, and for nothing else.

    A node whose cluster is away is set up all the same.
    """
    from oj.etcd.discovery import Names
    from oj.node import peers

    told = values["etcd"]["cluster"]
    if wish.discover:
        return None
    hosts = list(told["join"])
    with contextlib.suppress(Rejected, Unavailable):
        if told["discover"]:
            names = Names(told["discover"], values["etcd"]["client"][1])
            hosts += [settings.parse_address(found) for found in names.find()]
        if hosts:
            known_s = request.deadline.cap(KNOWN_S)
            found = peers.find(hosts, known_s, max(1.0, known_s / len(hosts)))
            return None if found.problem else found
    return None


def _refuse_to_cross_known(
    files: Files, wish: Wish, values: Values, name: str, known: Cluster
) -> None:
    origin = data.read_origin(files.held(values["etcd"]).directory)
    configured = settings.default_name(values["etcd"]["name"])
    own = known.member_of(origin)
    if own is None or own.name not in (name, configured):
        _refuse_name_of_another(wish, name, known)
    elif not wish.member:
        raise Rejected(
            f"this node is a judicator, {own.name}, of the cluster of {known.asked}: name that "
            "role, too, or run 'oj leave' here first"
        )
    elif own.name != name:
        _refuse_name_of_another(wish, name, known)


def _find_joined(request: Request) -> Cluster:
    from oj.node import peers

    hosts = [(host, port or ETCD_PORT) for host, port in request.join]
    targets = []
    for host, port in hosts:
        place = address.resolve(host)
        if port == ETCD_PORT:  # else oj's own ports say nothing of that node
            targets.append(Target(host, (place, JUDICATOR_PORT), "judicator"))
        targets.append(Target(host, (place, port), "etcd, clients"))
    # Meanwhile, as both take seconds where a firewall drops everything.
    pool = ThreadPoolExecutor(1, "ways")
    tried = pool.submit(preflight.try_ways, targets, request.deadline)
    try:
        return peers.find(hosts, request.deadline.cap(request.find_s))
    except Unavailable as error:
        told = [f"{hosts[0][0]} does not answer: {error.message}"]
        blocked, others = preflight.explain_ways(tried.result())
        told += [*blocked, *others]
        if not blocked:
            told.append(
                "Is it a judicator that was set up for a cluster ('oj setup judicator' there), and "
                "is it running?"
            )
        raise Unavailable("\n    ".join(told)) from None
    finally:
        pool.shutdown(wait=False)


def _demand_majority(files: Files, values: Values, cluster: Cluster, name: str) -> None:
    """A cluster without a majority takes nobody in; but this node may be what it lacks."""
    if not cluster.problem:
        return
    origin = data.read_origin(files.held(values["etcd"]).directory)
    if not cluster.owns(origin, {name, settings.default_name(values["etcd"]["name"])}):
        raise Unavailable(
            f"the cluster of {cluster.asked} has no majority now, so that nobody can join: "
            f"{cluster.problem}"
        )


def _refuse_name_of_another(wish: Wish, name: str, cluster: Cluster) -> None:
    holder = cluster.holder_of(name)
    if not wish.member:
        if holder is not None and holder != "":
            raise Rejected(
                f"the cluster has a judicator {name} at {holder}: "
                "if it is this node, run 'oj leave' here first; if not, give another --name"
            )
        return
    if holder and is_loopback(holder) and not is_loopback(cluster.asked):
        return  # it once told a wrong address of itself, and tells the right one from now on
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
    copied: bool,
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
    if cluster.owns(origin, {name, configured}) and not copied:
        if not wish.member:
            raise Rejected("this node is a member of that cluster: run 'oj leave' here first")
        return (), ()
    if origin is None and _is_registered(cluster, name, wish.address):
        return (), ()  # its etcd lost its data; its database is the cluster's
    taken_out = origin is not None and not cluster.member_of(origin)
    if taken_out and origin and origin.cluster_id == cluster.id and wish.member:
        # A member that was taken out of this very cluster, which has what was confirmed here.
        return tuple(Aside(one, keep=one is not held["etcd"]) for one in filled), ()
    tasks = _refuse_to_hide_tasks(request, files, held, values)
    return tuple(Aside(one, keep=tasks and one is not held["etcd"]) for one in filled), ()


def _find_original(
    request: Request, files: Files, values: Values, cluster: Cluster | None, where: str
) -> Member | None:
    """The member that the data here is of, if that one runs, and on another machine."""
    from oj.node import peers

    origin = data.read_origin(files.held(values["etcd"]).directory)
    member = cluster.member_of(origin) if cluster else None
    if cluster is None or member is None or not member.peer_urls:
        return None
    host = urlsplit(member.peer_urls[0]).hostname or ""
    if _is_here(files, host, where) or not peers.runs(member, request.deadline.cap(ALIVE_S)):
        return None
    if files.live and _is_same(host, where) and _is_seen_at(request, cluster, host):
        return None  # this machine, behind a translation of addresses
    return member


def _find_address_of_data(files: Files, values: Values) -> str:
    """The host at which others know the member that the data here is of, by its own notes."""
    from oj.etcd.datadir import DataDirectory

    directory = files.held(values["etcd"]).directory
    origin, noted = data.read_origin(directory), DataDirectory(directory).read_known()
    if not noted.own_address or origin is None or noted.member_id != origin.member_id:
        return ""
    return settings.parse_address(noted.own_address)[0]


def _is_same(host: str, where: str) -> bool:
    return bool(where) and address.canonical(host) == address.canonical(where)


def _is_here(files: Files, host: str, where: str) -> bool:
    """Whether a host is this machine, which shall have the address `where`."""
    if files.live:
        return address.is_own(host)
    # Of the addresses of an image's machine, only the one that it shall have is known.
    return _is_same(host, where) or (not where and is_loopback(host))


def _find_name_of_data(
    files: Files, values: Values, cluster: Cluster | None, wish: Wish, where: str
) -> str:
    """The name of the member that the data here is of, if this machine is that member; by the
    cluster that is joined, or by the node's own notes where it is the only one."""
    from oj.etcd.datadir import DataDirectory

    directory = files.held(values["etcd"]).directory
    origin = data.read_origin(directory)
    noted = DataDirectory(directory).read_known()
    if cluster:
        member = cluster.member_of(origin)
        # Clusters that began on loopback may be alike: who was in this one knew others of it.
        if not (member and member.peer_urls) or set(noted.clients).isdisjoint(cluster.endpoints):
            return ""
        host = urlsplit(member.peer_urls[0]).hostname or ""
        here = _is_same(host, where) or _is_here(files, host, where)
        return member.name if here and not is_loopback(host) else ""
    if origin is None or wish.discover or not wish.member:
        return ""
    return noted.own_name if noted.member_id == origin.member_id else ""


def _takes_name_of_data(
    request: Request, values: Values, wish: Wish, name: str, found: str, joins: bool
) -> bool:
    """Whether this node is to have the name that its data has, because nothing names it.

    After a purge no file has one any more, and the host's may be another.
    """
    if found in (name, settings.default_name(values["etcd"]["name"])):
        return False
    if not wish.member:
        raise Rejected(f"this node is a member of that cluster, {found}: run 'oj leave' here first")
    if not request.name and not any(values[daemon].get("name") for daemon in wish.daemons):
        return True
    if joins:
        raise Rejected(f"the data here is of {found} of that cluster: say --name {found}")
    return False


def _is_seen_at(request: Request, cluster: Cluster, host: str) -> bool:
    """Whether a judicator finds that this machine's packets come from an address."""
    there = address.canonical(host)
    return any(
        preflight.ask_how_seen(settings.parse_address(place), request.deadline) == there
        for place in cluster.judicators.values()
    )


def _refuse_copy(request: Request, values: Values, original: Member, name: str) -> None:
    """A copy may join as a node of its own, with nothing of what it has; and only when told."""
    configured = settings.default_name(values["etcd"]["name"])
    if name != original.name and (request.set_data_aside or configured != original.name):
        return  # by another name, its tasks are looked at as those of any node
    new = name if name != original.name else "NAME"
    join = request.join[0][0] if request.join else urlsplit(original.peer_urls[0]).hostname
    raise Rejected(
        f"the data here is a copy of {original.name}'s, which runs at "
        f"{urlsplit(original.peer_urls[0]).hostname}: set it aside with "
        f"'oj setup {' '.join(request.roles)} --join {join} --name {new} --set-data-aside'"
    )


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
    tasks = _has_tasks(files, values, request.deadline.cap(TASKS_S))
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


def _has_tasks(files: Files, values: Values, timeout_s: float) -> bool | None:
    """Whether this node's own database has any; None when nobody can tell."""
    from oj.client import Judicators

    if not files.live or "judicator" not in values:
        return None
    if not units.look(["judicator"])["judicator"].runs:
        return None
    where = settings.parse_address(local_of(values["judicator"]["listen"]))
    try:
        with Judicators([where], timeout_s=timeout_s, learn=False) as here:
            found, _ = here.search(limit=1, deadline=Deadline(timeout_s))
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


def _prove(outlook: Outlook, request: Request, files: Files, values: Values) -> Outlook:
    """Tries what the node will need, and refuses what cannot be."""
    trial = _make_preflight(outlook, files, values)
    judged = preflight.judge(trial.look(request.deadline))
    if judged.refusals:
        notes = (f"note: {note}" for note in judged.notes)
        raise Rejected("\n    ".join(["nothing was changed, because", *judged.refusals, *notes]))
    return replace(outlook, preflight=trial, notes=(*outlook.notes, *judged.notes))


def _make_preflight(outlook: Outlook, files: Files, values: Values) -> Preflight:
    wish, cluster = outlook.wish, outlook.cluster or outlook.known
    joins = outlook.cluster is not None
    here = address.canonical(wish.address) if wish.address else ""

    def is_other(place: str) -> bool:
        there = address.canonical(settings.parse_address(place)[0])
        return there != here and not is_loopback(there)

    judicators = {n: a for n, a in (cluster.judicators if cluster else {}).items() if is_other(a)}
    source = here
    if not here and cluster:
        source = address.source_towards(address.resolve(cluster.asked))
    ports = _list_ports(wish, values)
    return Preflight(
        joins=joins,
        member=wish.member,
        address=wish.address,
        source=source,
        ports=ports,
        targets=preflight.find_targets(
            judicators,
            cluster.databases if cluster else {},
            cluster.addresses() if cluster else {},
            wish.member,
        )
        * joins,
        judicators=tuple((n, settings.parse_address(judicators[n])) for n in sorted(judicators)),
        rooms=_list_rooms(outlook, files, values),
        held=frozenset(
            port.number
            for port in ports
            if port_holders.is_held_by(units.unit_of(port.daemon), source, port.number)
        ),
        executor=_name_of_executor(outlook, values),
        installation=_place_of_installation(wish, files, values),
    )


def _list_ports(wish: Wish, values: Values) -> tuple[Port, ...]:
    """Those of this node that others connect to."""
    ports = []
    if wish.member:
        ports = [
            Port(values["judicator"]["listen"][1], "judicator", "judicator"),
            Port(values["etcd"]["client"][1], "etcd, clients", "etcd"),
            Port(values["etcd"]["peer"][1], "etcd, peers", "etcd"),
            Port(values["mongodb"]["listen"][1], "mongod", "mongodb"),
        ]
    if "gateway" in wish.roles and "gateway" not in wish.kept:
        host, port = values["gateway"]["listen"]
        if not (is_loopback(host) and any(values["gateway"]["access"]["proxies"])):
            ports.append(Port(port, "gateway", "gateway", needed=False))
    return tuple(ports)


def _list_rooms(outlook: Outlook, files: Files, values: Values) -> tuple[Room, ...]:
    """Directories that a daemon begins with; one that is in use is for the daemon to judge."""
    rooms = []
    for daemon, key, least_bytes in ROOMS:
        if daemon not in outlook.start or (daemon == "etcd" and not outlook.wish.member):
            continue
        directory = files.root / str(values[daemon][key]).lstrip("/")
        if outlook.aside or not data.look(directory).used:
            rooms.append(Room(directory, least_bytes))
    return tuple(rooms)


def _name_of_executor(outlook: Outlook, values: Values) -> str:
    if "executor" not in outlook.wish.roles:
        return ""
    return outlook.wish.name or settings.default_name(values["executor"]["name"])


def _place_of_installation(wish: Wish, files: Files, values: Values) -> Path | None:
    if "executor" not in wish.roles:
        return None
    state = files.root / str(values["executor"]["state_directory"]).lstrip("/")
    return state / INSTALLATION


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
