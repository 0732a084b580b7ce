"""`oj setup`: makes this machine a node of a cluster, and says what it does.

First everything is looked at, tried (ports, clocks, names, room) and decided, without a change;
that is what --dry-run shows. Then it is carried out in an order in which an interruption does no
harm: units that must not see the change are stopped, data of another cluster is set aside, files
are written, units start. Run again, it goes on from whatever it finds.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import sys
import time
from pathlib import Path
from typing import Any

from oj.cli.terminal import Progress, paint
from oj.clock import Deadline
from oj.errors import Rejected, Unavailable
from oj.node import data, preflight, units
from oj.node.files import Files
from oj.node.outlook import Aside, Outlook, Request, decide
from oj.node.plan import ROLES
from oj.plain import print_json

EXIT_CLUSTER = 3
FIND_S = 6.0  # of the joined judicator; what is in its way is told within 10 s
SETUP_S = 240.0  # for all of it
AFTERWARDS_S = 5.0  # beyond it, to find out why it was not enough


def setup(arguments: argparse.Namespace, _connect: object) -> int:
    files = Files(arguments.root)
    if files.live and os.geteuid() != 0:
        raise Rejected("only root can set up a node: run oj setup as root")
    try:
        return _set_up(arguments, files)
    except Unavailable as error:
        print(f"oj: {error.message}", file=sys.stderr)
        return EXIT_CLUSTER


def _set_up(arguments: argparse.Namespace, files: Files) -> int:
    started_s = time.monotonic()
    request = make_request(arguments, files)
    outlook = decide(request, files)
    if not arguments.json:
        show_outlook(outlook, files, arguments.dry_run)
    late: list[units.Unit] = []
    idle = arguments.dry_run or outlook.empty
    if not idle:
        carry_out(outlook, files, request.deadline)
        late = start(outlook, request.deadline)
    if arguments.json:
        print_json(plain(outlook, arguments.dry_run, late))
    elif not late and not idle:
        print(f"Done in {time.monotonic() - started_s:.1f} s.")
    if late:
        show_late(late, outlook, time.monotonic() - started_s)
    return EXIT_CLUSTER if late else 0


def make_request(arguments: argparse.Namespace, files: Files) -> Request:
    # A node that judges all by itself needs no gateway; but who has one wants it to serve.
    every = [role for role in ROLES if role != "gateway" or files.has(role)]
    roles = (r for role in arguments.role for r in (every if role == "all" else (role,)))
    return Request(
        tuple(dict.fromkeys(roles)),
        join=tuple(arguments.join or ()),
        discover=arguments.discover or "",
        name=arguments.name or "",
        address=arguments.address or "",
        start=not arguments.no_start,
        set_data_aside=arguments.set_data_aside,
        only=arguments.only,
        find_s=min(FIND_S, arguments.timeout or FIND_S),
        deadline=Deadline(arguments.timeout or SETUP_S),
    )


def carry_out(outlook: Outlook, files: Files, deadline: Deadline) -> None:
    if outlook.preflight:  # which may have used all the time up
        deadline.check(preflight.TRYING)
    # From here on, what was begun is finished.
    units.stop(outlook.stop, max(units.QUICK_S, deadline.cap(units.STOP_S)))
    for aside in outlook.aside:
        aside.held.set_aside(aside.keep)
    for held in outlook.unmark:
        held.unmark()
    if outlook.strangers:
        outlook.strangers.unlink(missing_ok=True)
    files.write(outlook.texts)
    units.disable(outlook.disable)
    units.enable(outlook.enable)


def start(outlook: Outlook, deadline: Deadline) -> list[units.Unit]:
    """Starts what shall run; the units that did not get ready in time."""
    if not outlook.start:
        return []
    units.start(outlook.start)
    with Progress() as progress:
        late = units.wait_until_ready(
            outlook.start, deadline.left_s, lambda text: progress.show(text, 0, 0, "")
        )
    if outlook.forget and not late:
        from oj.node import executors

        name, judicator = outlook.forget
        executors.forget(name, [judicator])
    return late


# --- telling -----------------------------------------------------------------------------------


def show_late(late: list[units.Unit], outlook: Outlook, after_s: float) -> None:
    """What was waited for, and what is in the way now, if that can be seen."""
    for unit in late:
        print(
            f"oj: {unit.name} is not ready after {after_s:.0f} s: {unit.status or unit.state}\n"
            f"    journalctl -u {unit.name} -e    tells more",
            file=sys.stderr,
        )
    if not outlook.preflight or not outlook.preflight.joins:
        return
    judged = preflight.Judgement((), ())
    with contextlib.suppress(Unavailable):
        judged = preflight.judge(outlook.preflight.look(Deadline(AFTERWARDS_S), listen=False))
    for sentence in (*judged.refusals, *judged.notes):
        print(f"    {sentence}", file=sys.stderr)
    if not judged.refusals:
        for sentence in preflight.describe_ways(outlook.preflight):
            print(f"    {sentence}", file=sys.stderr)


def show_outlook(outlook: Outlook, files: Files, dry: bool) -> None:
    wish = outlook.wish
    print(f"Node {outlook.name}: {' and '.join(wish.roles)}")
    if wish.address:
        print(f"Address {wish.address}: {outlook.why}")
    if outlook.cluster:
        names = ", ".join(sorted(m.name or "one that starts" for m in outlook.cluster.members))
        print(f"Cluster with {names}")
    if outlook.empty:
        print("Nothing to do: all of it is so already.")
        return
    for role, changes in outlook.changes.items():
        print(f"{files.path(role)}:")
        for change in changes:
            if change.old is not None:
                print(paint(f"  - {change.edit.path} = {change.old}", "red"))
            print(paint(f"  + {change.edit.path} = {change.edit.value}", "green"))
    for sentence in sentences(outlook):
        print(sentence)
    for note in outlook.notes:
        print(f"{paint('note:', 'yellow')} {note}")
    if dry:
        print("Nothing was changed: --dry-run.")


def sentences(outlook: Outlook) -> list[str]:
    """The steps beside files."""
    told = []

    def named(daemons: tuple[str, ...]) -> str:
        return ", ".join(map(units.unit_of, daemons))

    if outlook.stop:
        told.append(f"Stop {named(outlook.stop)}")
    for aside in outlook.aside:
        told.append(f"Set the data in {aside.held.directory} aside, to {_place(aside)}")
    told += [f"Remove {held.directory / data.LEFT}" for held in outlook.unmark]
    if outlook.strangers:
        told.append(f"Remove {outlook.strangers}: members of another cluster")
    if outlook.disable:
        told.append(f"Disable {named(outlook.disable)}: not part of this node's roles")
    if outlook.enable:
        told.append(f"Enable {named(outlook.enable)}")
    if outlook.kept:
        roles = " and ".join(outlook.kept)
        told.append(f"Keep the {roles} that this machine has; --only would disable it")
    if outlook.later:
        told.append(f"Leave {named(outlook.later)} as is: lists are used from the next start on")
    if outlook.start:
        told.append(f"Start {named(outlook.start)}")
    return told


def _place(aside: Aside) -> Path:
    return aside.held.directory / f"{data.KEPT if aside.keep else data.ASIDE}TIME"


def plain(outlook: Outlook, dry: bool, late: list[units.Unit]) -> dict[str, Any]:
    return {
        "name": outlook.name,
        "roles": list(outlook.wish.roles),
        "address": outlook.wish.address or None,
        "members": [m.name for m in outlook.cluster.members] if outlook.cluster else [],
        "changes": [
            {"file": f"{role}.conf", "key": c.edit.path, "old": c.old, "new": c.edit.value}
            for role, changes in outlook.changes.items()
            for c in changes
        ],
        "set_aside": [str(aside.held.directory) for aside in outlook.aside],
        "stop": list(outlook.stop),
        "disable": list(outlook.disable),
        "enable": list(outlook.enable),
        "start": list(outlook.start),
        "kept": list(outlook.kept),
        "notes": list(outlook.notes),
        "dry_run": dry,
        "nothing_to_do": outlook.empty,
        "not_ready": {unit.name: unit.status or unit.state for unit in late},
    }
