"""`oj leave`, `oj remove` and `oj recover`: a cluster gets smaller, on purpose or by disaster."""

from __future__ import annotations

import argparse
import os
import sys
from typing import Any

from oj.cli.terminal import Progress, is_terminal
from oj.errors import Rejected, Unavailable
from oj.node.files import Files
from oj.node.steps import Step
from oj.plain import print_json

EXIT_CLUSTER = 3


def leave(arguments: argparse.Namespace, _connect: object) -> int:
    from oj.node.departure import plan_leave  # slow to import: grpc

    _demand_root("leave")
    try:
        steps = plan_leave(Files(), arguments.now)
    except Unavailable as error:
        return _fail(error)
    more = [
        "This node has left. Its data is still in /var/lib/oj.",
        "To come back: oj setup judicator --join HOST (or executor, gateway, all)",
    ]
    return _go(arguments, steps, more)


def remove(arguments: argparse.Namespace, _connect: object) -> int:
    from oj.node.departure import plan_remove

    _demand_root("remove")
    try:
        traces, steps = plan_remove(Files(), arguments.node, arguments.force)
    except Unavailable as error:
        return _fail(error)
    more = [f"{traces.name} is forgotten."]
    if traces.member:
        more.append(f"Should {traces.name} start again after all, it joins anew by itself.")
    return _go(arguments, steps, more)


def recover(arguments: argparse.Namespace, _connect: object) -> int:
    _demand_root("recover")
    files = Files()
    files.demand(("etcd", "mongodb", "judicator"))
    from oj.node.recovery import plan_recover  # needs what these three depend on

    try:
        steps = plan_recover(files, arguments.only_survivor)
    except Unavailable as error:
        return _fail(error)
    name = arguments.only_survivor
    more = [
        f"{name} goes on alone. What only the others had is lost.",
        "When one of them comes back, it finds that it was given up: it sets its data aside and",
        f"joins {name} anew by itself. A new machine: oj setup judicator --join {name}",
    ]
    # The name that had to be typed is the consent.
    return _go(arguments, steps, more, agreed=True)


def _demand_root(verb: str) -> None:
    if os.geteuid() != 0:
        raise Rejected(f"only root can do that: run oj {verb} as root")


def _fail(error: Unavailable) -> int:
    print(f"oj: {error.message}", file=sys.stderr)
    return EXIT_CLUSTER


def _go(
    arguments: argparse.Namespace, steps: list[Step], more: list[str], *, agreed: bool = False
) -> int:
    """Shows the steps, asks, and takes them."""
    dry = arguments.dry_run
    told: dict[str, Any] = {"steps": [step.text for step in steps], "dry_run": dry}
    if not steps or dry:
        if arguments.json:
            print_json({**told, "done": not steps})
        else:
            _show(steps)
            print("Nothing was changed: --dry-run." if steps else "Nothing to do.")
        return 0
    if not (agreed or arguments.yes):
        _ask(steps)
    for step in steps:
        if not arguments.json:
            print(step.text, flush=True)
        try:
            with Progress() as progress:
                step.act(lambda text, progress=progress: progress.show(text, 0, 0, ""))  # type: ignore[misc]
        except Unavailable as error:
            print("oj: run it again to go on from here", file=sys.stderr)
            return _fail(error)
    if arguments.json:
        print_json({**told, "done": True})
    else:
        print("\n".join(more))
    return 0


def _show(steps: list[Step]) -> None:
    for step in steps:
        print(f"  {step.text}")


def _ask(steps: list[Step]) -> None:
    if not is_terminal(sys.stdin):
        raise Rejected("say --yes (or see what it would do with --dry-run)")
    _show(steps)
    if input("Type yes to go on: ").strip() != "yes":
        raise Rejected("nothing was changed")
