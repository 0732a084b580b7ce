"""The verbs that change which machines a cluster has: their options and help texts."""

from __future__ import annotations

import argparse
from collections.abc import Callable

SETUP = """\
examples, as root:
  oj setup judicator                     the first node of a cluster
  oj setup judicator --join n1           a further one
  oj setup executor --join n1            a node that only runs programs
  oj setup all --join n1                 judicator and executor

Before anything is changed, judicators connect back to each port on which this node will listen, and
clocks, names, versions and free disk are looked at. --timeout bounds all of it (default: 4m).

exit code: 0 it is set up, 2 it cannot be so, 3 the cluster or a unit did not get ready"""


def add_verbs(verb: Callable[..., argparse.ArgumentParser]) -> None:
    _setup(verb("setup", "make this machine a node of a cluster", epilog=SETUP))
    leave = verb("leave", "take this node out of its cluster, in good order")
    leave.add_argument(
        "--now", action="store_true", help="do not wait for what its executor runs: give it back"
    )
    _consent(leave)
    remove = verb("remove", "make the cluster forget a node that is gone for good")
    remove.add_argument("node", metavar="NODE")
    remove.add_argument("--force", action="store_true", help="although it still answers")
    _consent(remove)
    recover = verb("recover", "go on alone, as the only judicator that a disaster has left")
    recover.add_argument(
        "--only-survivor",
        metavar="NAME",
        required=True,
        help="this node's own name, to be sure that it is meant",
    )
    recover.add_argument("--dry-run", action="store_true", help="only show what would be done")


def _consent(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--yes", action="store_true", help="do not ask")
    parser.add_argument("--dry-run", action="store_true", help="only show what would be done")


def host(text: str) -> tuple[str, int]:
    """HOST, or HOST:PORT where etcd does not listen on oj's own port; 0 without one."""
    from oj.settings import parse_address

    if (text.count(":") != 1 and not text.startswith("[")) or text.endswith("]"):
        return text.removeprefix("[").removesuffix("]"), 0  # a name or an IPv6 address
    try:
        return parse_address(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _setup(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add(
        "role",
        metavar="ROLE",
        nargs="+",
        choices=("judicator", "executor", "gateway", "all"),
        help="judicator, executor, gateway, or all (and the gateway if it is installed)",
    )
    add(
        "--join",
        metavar="HOST",
        type=host,
        action="append",
        help="a judicator of the cluster that this node joins; may be repeated",
    )
    add("--discover", metavar="NAME", help="a DNS name that gives the cluster's judicators")
    add("--name", metavar="NAME", help="this node's name (default: the host's)")
    add("--address", metavar="A", help="by which other nodes reach this one")
    add(
        "--only",
        action="store_true",
        help="stop and disable an executor or gateway that serves here and is not named",
    )
    add("--dry-run", action="store_true", help="only show what would be done")
    add("--no-start", action="store_true", help="start no unit")
    add(
        "--set-data-aside",
        action="store_true",
        help="join although this node has tasks of its own: they stay in a directory of their own",
    )
    add(
        "--root",
        metavar="DIR",
        default="/",
        help="set up the files below DIR, for an image; units are left alone",
    )
