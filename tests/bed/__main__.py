"""The bed by hand: boot machines, enter them, stop them, and sweep what killed runs left.

python3 -m tests.bed shell                  one machine and a shell in it, gone afterwards
python3 -m tests.bed boot n1 n2 n3          machines that stay
python3 -m tests.bed enter NAME [MACHINE]   a shell in one that stays
python3 -m tests.bed stop NAME              remove them
python3 -m tests.bed build                  our packages, for this release of Debian or another
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from pathlib import Path

from . import build, leftovers, root, tools
from .bed import Bed
from .errors import BedError
from .machine import Machine


def enter(machine: Machine, command: list[str]) -> int:
    """A shell, or one command, in a machine, on this terminal."""
    environment = {"TERM": os.environ.get("TERM", "dumb")}
    words = command or ["/bin/bash", "--login"]
    return subprocess.run(machine.entering(words, environment)).returncode


def boot(bed: Bed, arguments: argparse.Namespace) -> list[Machine]:
    machines = bed.boot(*arguments.machines)
    if arguments.install:
        ours = arguments.repository or build.directory(bed.release)
        repository = bed.repository(ours)
        for machine in machines:
            machine.add_repository(repository)
            machine.install(*arguments.install)
    return machines


def shell(arguments: argparse.Namespace) -> int:
    with Bed(release=arguments.release) as bed:
        return enter(boot(bed, arguments)[0], [])


def boot_and_keep(arguments: argparse.Namespace) -> int:
    with Bed(release=arguments.release) as bed:
        boot(bed, arguments)
        bed.keep()
    for name, machine in bed.machines.items():
        print(f"{name} {machine.address}: python3 -m tests.bed enter {bed.name} {name}")
    print(f"to remove: python3 -m tests.bed stop {bed.name}")
    return 0


def enter_kept(arguments: argparse.Namespace) -> int:
    bed = Bed.open(arguments.bed)
    name = arguments.machine or next(iter(bed.machines))
    if name not in bed.machines:
        raise BedError(f"{arguments.bed} has {', '.join(bed.machines)}, but no {name}")
    return enter(bed.machines[name], arguments.command)


def stop(arguments: argparse.Namespace) -> int:
    Bed.open(arguments.bed).remove()
    return 0


def show(arguments: argparse.Namespace) -> int:
    for directory in sorted(leftovers.beds_dir().glob(f"{leftovers.PREFIX}*")):
        state = "kept" if (directory / "kept").exists() else "in use or left over"
        machines = sorted(path.parent.name for path in directory.glob("*/casing.json"))
        print(f"{directory.name}  {state}  {' '.join(machines)}")
    return 0


def sweep(arguments: argparse.Namespace) -> int:
    for name in leftovers.sweep():
        print(f"removed {name}")
    return 0


def install_tools(arguments: argparse.Namespace) -> int:
    tools.install()
    return 0


def build_packages(arguments: argparse.Namespace) -> int:
    build.build(arguments.release, *(["--no-lintian"] if arguments.no_lintian else []))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="python3 -m tests.bed", description=(__doc__ or "").partition("\n")[0]
    )
    verbs = parser.add_subparsers(required=True, metavar="VERB")

    releasing = argparse.ArgumentParser(add_help=False)
    releasing.add_argument(
        "--release", choices=root.RELEASES, default=root.HOST, help="of Debian (the host's)"
    )
    booting = argparse.ArgumentParser(add_help=False, parents=[releasing])
    booting.add_argument("machines", nargs="*", default=["n1"], help="names; n1 if there are none")
    booting.add_argument("--install", nargs="+", metavar="PACKAGE", help="install these in each")
    booting.add_argument(
        "--repository", type=Path, metavar="DIR", help="of our packages (default: in dist/)"
    )

    verb = verbs.add_parser("shell", parents=[booting], help="boot, enter the first, remove")
    verb.set_defaults(act=shell)
    verb = verbs.add_parser("boot", parents=[booting], help="boot machines that stay")
    verb.set_defaults(act=boot_and_keep)
    verb = verbs.add_parser("enter", help="a shell or a command in a machine that stays")
    verb.add_argument("bed", metavar="NAME")
    verb.add_argument("machine", nargs="?", metavar="MACHINE")
    verb.add_argument("command", nargs=argparse.REMAINDER, metavar="COMMAND")
    verb.set_defaults(act=enter_kept)
    verb = verbs.add_parser("stop", help="remove a bed that stays")
    verb.add_argument("bed", metavar="NAME")
    verb.set_defaults(act=stop)
    verbs.add_parser("list", help="every bed on this host").set_defaults(act=show)
    verb = verbs.add_parser("sweep", help="remove what killed runs left")
    verb.set_defaults(act=sweep)
    verb = verbs.add_parser("build", parents=[releasing], help="build our packages")
    verb.add_argument("--no-lintian", action="store_true")
    verb.set_defaults(act=build_packages)
    verb = verbs.add_parser("install-tools", help="get the Debian tools that the bed needs")
    verb.set_defaults(act=install_tools)

    arguments = parser.parse_args()
    try:
        if os.geteuid() != 0:
            raise BedError("the bed needs root: it boots machines")
        code: int = arguments.act(arguments)
    except BedError as mistake:
        print(f"bed: {mistake}", file=sys.stderr)
        return 1
    return code


if __name__ == "__main__":
    sys.exit(main())
