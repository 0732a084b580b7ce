"""Which faults in which order: a fixed short list, or a long random one from a seed. Pure."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Iterator

from faults.clocks import WrongClock
from faults.cluster import EXECUTORS, JUDICATORS
from faults.disks import FullDisk, LostData
from faults.fault import ROLES, Fault
from faults.members import ComeAndGo, RemoveAndReturn, Replace
from faults.power import PowerOff, Reboot
from faults.signals import Freeze, Kill
from faults.upgrades import Upgrade
from faults.wires import CutBetween, CutFromPeers, CutOff, Deaf, Mute, OneWay

NODES = [*JUDICATORS, *EXECUTORS]
ROLE_NAMES = list(ROLES)
PAIRED = 0.4  # how many of the random groups are pairs

Group = list[Fault]  # begin together, end together
Make = Callable[[], Fault]


def make_short(chance: random.Random) -> list[Group]:
    """Every kind once; some together, where they hit different parts of the cluster."""
    first, second, third = chance.sample(JUDICATORS, 3)
    one, other = chance.sample(EXECUTORS, 2)
    return [
        [PowerOff("mongod primary")],
        [PowerOff("mongod secondary")],
        [PowerOff(one)],
        [CutOff("leading judicator"), Freeze("oj-executor", other, 10)],
        [Freeze("oj-judicator", "leading judicator", 8), CutOff(one)],
        [CutFromPeers("mongod primary")],
        [OneWay(first, second), Mute(other)],
        [Freeze("oj-mongodb", "mongod primary", 8), OneWay(one, third)],
        [FullDisk("oj-mongodb", "mongod primary"), FullDisk("oj-executor", one)],
        [FullDisk("oj-etcd", "etcd leader"), Deaf(other)],
        [WrongClock("mongod primary"), Kill("oj-executor", one)],
        # All that a node has, at once.
        [LostData("oj-etcd", first), LostData("oj-mongodb", first)],
        [chance.choice([RemoveAndReturn, Replace])(second)],
        [ComeAndGo("j4", leave=1)],
        [Upgrade(third), Upgrade(other)],
        [PowerOff(*NODES)],
    ]


def make_long(chance: random.Random, faults: int) -> Iterator[Group]:
    """So many faults: all that there are in random order, over and over, many in pairs."""
    supply = _endless(chance)
    made = 0
    while made < faults:
        group = [next(supply)()]
        if made + 1 < faults and chance.random() < PAIRED:
            second = _find_partner(chance, group[0])
            if second:
                group.append(second)
        made += len(group)
        yield group


def _endless(chance: random.Random) -> Iterator[Make]:
    while True:
        makes = catalogue()
        chance.shuffle(makes)
        yield from makes


def catalogue() -> list[Make]:
    """Every fault on everything that it can hit."""
    makes: list[Make] = []

    def add(kind: Callable[..., Fault], *arguments: object, **more: object) -> None:
        makes.append(lambda: kind(*arguments, **more))

    for node in NODES:
        for kind in (PowerOff, CutOff, Mute, Deaf, Reboot, Upgrade):
            add(kind, node)
    for role in ROLE_NAMES:
        for kind in (PowerOff, CutOff):
            add(kind, role)
    add(PowerOff, *EXECUTORS)
    add(PowerOff, *NODES)
    for pair in itertools.combinations(JUDICATORS, 2):
        add(PowerOff, *pair)
    for pair in itertools.combinations(NODES, 2):
        add(CutBetween, *pair)
    for ordered in itertools.permutations(NODES, 2):
        if any(node in JUDICATORS for node in ordered):
            add(OneWay, *ordered)
    for node in JUDICATORS:
        add(CutFromPeers, node)
        add(WrongClock, node)
        add(RemoveAndReturn, node)
        add(Replace, node)
        for unit in ("oj-etcd", "oj-mongodb"):
            add(FullDisk, unit, node)
            add(LostData, unit, node)
        for unit in ("oj-etcd", "oj-mongodb", "oj-judicator"):
            add(Kill, unit, node)
            add(Freeze, unit, node)
    for node in EXECUTORS:
        add(FullDisk, "oj-executor", node)
        for unit in ("oj-etcd", "oj-executor"):
            add(Kill, unit, node)
            add(Freeze, unit, node)
    # Before their watchdogs end them: they go on, with what they believed before.
    for unit, target in (
        ("oj-judicator", "leading judicator"),
        ("oj-etcd", "etcd leader"),
        ("oj-mongodb", "mongod primary"),
        *(("oj-executor", node) for node in EXECUTORS),
    ):
        add(Freeze, unit, target, 10)
    add(ComeAndGo, "j4", "j5", "j6", "j7", leave=2)
    return makes


def _find_partner(chance: random.Random, first: Fault) -> Fault | None:
    makes = catalogue()
    for _ in range(50):
        second = chance.choice(makes)()
        if may_combine(first, second):
            return second
    return None


def may_combine(one: Fault, other: Fault) -> bool:
    """Whether the cluster must bear both at once without losing anything."""
    if set(one.nodes) & set(other.nodes):
        return False
    hit = [_judicators(fault) for fault in (one, other)]
    # Any judicator may turn out to have the role.
    if all(hit) and any(target in ROLES for target in hit[0] | hit[1]):
        return False
    if one.delicate or other.delicate:
        return not all(hit) and len(hit[0] | hit[1]) < 2
    return True


def _judicators(fault: Fault) -> set[str]:
    return {target for target in fault.targets if target not in EXECUTORS}


def must_serve(group: Group, judicators: list[str], executors: list[str]) -> bool:
    """Whether, once the faults have begun, some judicator reaches a majority, itself included, and
    an executor reaches one of those."""
    away = {node for fault in group if not fault.calm for node in fault.nodes}
    cuts = {frozenset(fault.nodes) for fault in group if isinstance(fault, CutBetween)}
    here = [name for name in judicators if name not in away]
    # Also a one-way cut: no connection lives without answers.
    reached = [{other for other in here if {one, other} not in cuts} for one in here]
    return any(
        {executor, judicator} not in cuts
        for names in reached
        if len(names) * 2 > len(judicators)
        for judicator in names
        for executor in executors
        if executor not in away
    )
