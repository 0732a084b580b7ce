"""The one screen of `oj status`: what is wrong, every node in a line, and the tasks."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from oj import model, plain
from oj.cli.health import View
from oj.cli.terminal import clean, columns, cut, paint, span, table, words, wrap

NAME_COLUMNS = 12  # of a node that are always shown
LAG_MS = 2_000  # a member of the database that is further behind says so


@dataclass
class Node:
    """What runs on one machine: a word for each role, and nothing where there is none."""

    name: str
    etcd: str = ""
    database: str = ""
    judicator: str = ""
    executor: str = ""
    gateway: str = ""
    busy: str = ""
    versions: tuple[str, ...] = ()


def show_status(view: View) -> None:
    _show_headline(view)
    print()
    nodes = gather_nodes(view)
    print("\n".join(_node_table(nodes) if nodes else ["no nodes are known"]))
    if view.cluster is None:
        print(
            paint("etcd and the database cannot be shown: the judicator's version", "dim"),
            paint(f"is older, {view.version}", "dim"),
        )
    print()
    if "executors" in view.unanswered:
        print(f"executors: {paint('unknown', 'red')}")
    _show_tasks(view)


def _show_headline(view: View) -> None:
    degraded = view.degraded()
    where = (
        f"as {view.cluster.seen_from} sees it" if view.cluster and view.cluster.seen_from else ""
    )
    note = paint(clean(", ".join(filter(None, [f"oj {view.version}", where]))), "dim")
    if view.stands_still:
        print(paint("out of service", "red"), f"({note})")
    elif degraded:
        print(paint("degraded", "yellow"), f"({note})")
    else:
        print(paint("all is well", "green"), f"({note})")
    room = columns() - 4
    for sentence in degraded:
        first, *rest = wrap(clean(sentence), room)
        print(f"  - {first}")
        for line in rest:
            print(f"    {line}")


def gather_nodes(view: View) -> list[Node]:
    """Every machine that has a part in the cluster; those with judicators first."""
    nodes: dict[str, Node] = {}
    hosts = _hosts(view.judicators)

    def node(name: str, address: str = "") -> Node:
        host = address.rpartition(":")[0]
        # A member without a name of its own goes by its host.
        if name == host.strip("[]") and name not in nodes:
            name = hosts.get(host, name)
        return nodes.setdefault(name, Node(name))

    for judicator in view.judicators:
        one = node(judicator.name)
        one.judicator = (
            "silent" if judicator.name in view.silent else "leader" if judicator.leader else "ok"
        )
        one.versions += (judicator.version or "",)
    for member in view.cluster.etcd if view.cluster else ():
        node(member.name, member.address or "").etcd = _etcd_word(member)
    for member in view.cluster.database if view.cluster else ():
        node(member.name, member.address).database = _database_word(member)
    for info in view.executors:
        one = node(info.name)
        one.executor = plain.executor_state(info)
        if info.facts:
            one.busy = f"{info.executing or 0}/{info.facts.slots or 0}"
            one.versions += (info.facts.version or "",)
    for gateway in (view.cluster and view.cluster.gateways) or ():
        one = node(gateway.name)
        one.gateway = "silent" if gateway.silent else "ok"
        one.versions += (gateway.version or "",)
    return sorted(nodes.values(), key=lambda n: (not (n.judicator or n.database or n.etcd), n.name))


def _hosts(judicators: Iterable[Any]) -> dict[str, str]:
    """Hosts that have one judicator, with its name."""
    found: dict[str, list[str]] = {}
    for judicator in judicators:
        found.setdefault(judicator.address.rpartition(":")[0], []).append(judicator.name)
    return {host: names[0] for host, names in found.items() if len(names) == 1}


def _etcd_word(member: Any) -> str:
    if not member.healthy:
        return "away"
    return "learner" if member.learner else "leader" if member.leader else "ok"


def _database_word(member: Any) -> str:
    state = str(member.state or "unknown")
    if (member.lag_ms or 0) > LAG_MS:
        return f"{state}, {span(member.lag_ms)} behind"
    return f"{state}, no vote" if not member.voter and member.healthy else state


def _node_table(nodes: Iterable[Node]) -> list[str]:
    nodes = list(nodes)
    versions = {version for node in nodes for version in node.versions if version}
    header = ("node", "etcd", "database", "judicator", "executor", "busy", "gateway", "version")
    rows = [
        [
            clean(node.name),
            node.etcd,
            node.database,
            node.judicator,
            node.executor,
            node.busy,
            node.gateway,
            # Worth a column only during an upgrade.
            ", ".join(sorted({v for v in node.versions if v})) if len(versions) > 1 else "",
        ]
        for node in nodes
    ]
    used = [i for i in range(1, len(header)) if any(row[i] for row in rows)]
    others = sum(2 + max(len(header[i]), *(len(row[i]) for row in rows)) for i in used)
    for row in rows:
        row[0] = cut(row[0], max(NAME_COLUMNS, columns() - others))
    states = ("etcd", "database", "judicator", "executor", "gateway")
    return table(header, rows, right=("busy",), spare=("busy", "version"), states=states)


def _show_tasks(view: View) -> None:
    stats = view.stats
    if stats is None:
        print(f"tasks: {paint('unknown', 'red')}")
        return
    line = f"{stats.executing or 0} running on {stats.slots or 0} slots, {stats.queue or 0} waiting"
    if stats.oldest_pending_ms:
        line += f", the oldest for {span(stats.oldest_pending_ms)}"
    print(f"tasks: {line}")
    for title, numbers in (
        ("status", plain.counts(stats.by_status, model.Status)),
        ("verdict", plain.counts(stats.by_verdict, model.Verdict)),
    ):
        shown = [f"{count} {words(name)}" for name, count in numbers.items() if count]
        if shown:
            _show_list(f"by {title}: ", shown)


def _show_list(title: str, items: list[str]) -> None:
    """In lines that fit, with its words coloured after they were counted."""
    first, *rest = wrap(", ".join(items), columns() - len(title))
    for number, line in enumerate([first, *rest]):
        print((paint(title, "dim") if number == 0 else " " * len(title)) + line)
