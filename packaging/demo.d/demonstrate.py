"""The demonstration: from the source to verdicts on a machine that was just booted.

It builds the packages, boots an untouched Debian, installs the packages there with apt, starts the
units, and judges the programs in sum/ with the tests there. Then it adds the gateway, makes a token
and asks for the page.
"""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
sys.path.insert(0, str(TREE / "tests"))

from bed import Bed, BedError, Machine, build, root  # noqa: E402

UNITS = ("oj-etcd", "oj-mongodb", "oj-judicator", "oj-executor", "oj-gateway")
PAGE = "http://127.0.0.1:7580/"
# The program, its language, and the verdict that it deserves.
PROGRAMS = (
    ("sum.cpp", "cpp", "accepted"),
    ("sum.py", "python", "accepted"),
    ("narrow.cpp", "cpp", "wrong_answer"),
)
EXIT_CODES = {"accepted": 0, "wrong_answer": 1}


class Clock:
    """Says what is done, and remembers how long each step took."""

    def __init__(self) -> None:
        self.started = time.monotonic()
        self.steps: list[tuple[str, float]] = []

    @contextmanager
    def step(self, name: str, what: str) -> Iterator[None]:
        begun = time.monotonic()
        print(f"[{begun - self.started:6.1f} s] {what}", flush=True)
        yield
        self.steps.append((name, time.monotonic() - begun))

    def show(self) -> None:
        title("where the time went")
        for name, wall_s in self.steps:
            print(f"{wall_s:8.2f} s  {name}")
        print(f"{time.monotonic() - self.started:8.2f} s  in all", flush=True)


def title(text: str) -> None:
    print(f"\n--- {text} " + "-" * max(0, 74 - len(text)), flush=True)


def submit(machine: Machine, program: str, language: str) -> tuple[int, str]:
    words = ["oj", "submit", f"/root/demo/{program}", "--language", language]
    words += ["--tests", "/root/demo/tests", "--wait"]
    print(f"$ {' '.join(words)}", flush=True)
    result = machine.run(words, timeout_s=120, check=False)
    # What it says on the way goes to stderr, and the answer to stdout.
    print((result.stderr + result.stdout).rstrip(), flush=True)
    return result.rc, result.stdout


def judge(machine: Machine, clock: Clock) -> list[str]:
    """Submit every program; returns what went otherwise than expected."""
    mistakes = []
    machine.put_tree(HERE / "sum", "/root/demo")
    for program, language, verdict in PROGRAMS:
        title(f"{program}, which should be {verdict.replace('_', ' ')}")
        with clock.step(f"judge {program}", f"submitting {program}"):
            code, output = submit(machine, program, language)
        said = output.lower().replace(" ", "_").replace("-", "_")
        if code != EXIT_CODES[verdict] or verdict not in said:
            mistakes.append(f"{program} should be {verdict}, but `oj submit` ended with {code}")
    return mistakes


def show_page(machine: Machine, clock: Clock) -> None:
    """The gateway beside the node, and a token with which to log in."""
    with clock.step("gateway", "apt install -y oj-gateway && systemctl start oj-gateway"):
        machine.run("apt install -y oj-gateway", timeout_s=600)
        machine.run("systemctl start oj-gateway", timeout_s=120)
    words = ["oj", "token", "add", "demo", "--user", "demo", "--role", "admin"]
    token = machine.run(words).stdout.strip()
    title("the page")
    print(f"$ {' '.join(words)}")
    print(f"address (on the machine):  {PAGE}\ntoken to log in with:      {token}", flush=True)
    asking = f"import urllib.request as r; print(r.urlopen('{PAGE}healthz').read().decode())"
    print(f"{PAGE}healthz says {machine.run(['python3', '-c', asking]).stdout.strip()}", flush=True)


def show_units(machine: Machine) -> None:
    title("systemctl status")
    words = ["systemctl", "status", "--no-pager", "--full", "--lines=0", *UNITS]
    print(machine.run(words, check=False).stdout.rstrip(), flush=True)


def say_how_to_go_on(bed: Bed, machine: Machine) -> None:
    title("the machine goes on running")
    command = f"cd {TREE} && /usr/bin/python3 -m tests.bed"
    print(f"enter it:  {command} enter {bed.name} {machine.name}")
    print(f"the page:  nsenter --net --target {machine.leader} BROWSER {PAGE}")
    print(f"stop it:   {command} stop {bed.name}", flush=True)


def demonstrate(keep: bool, release: str) -> list[str]:
    clock = Clock()
    with clock.step(
        "build", f"building the packages for {release} (nothing to do if the source is unchanged)"
    ):
        ours = build.build(release, "--no-lintian")
    with ExitStack() as stack:
        with clock.step("prepare", f"preparing a {release} root (fetched on the first run only)"):
            bed = stack.enter_context(Bed(release=release))
        machine = bed.machine("node1")
        with clock.step("boot", "booting a machine"):
            machine.boot()
        with clock.step("fetch", "fetching what the packages need (on the first run only)"):
            machine.add_repository(bed.repository(ours))
        if keep:
            bed.keep()
        try:
            with clock.step("install", "apt install -y oj-judicator oj-executor"):
                machine.run("apt install -y oj-judicator oj-executor", timeout_s=600)
            with clock.step("start", "systemctl start oj-judicator oj-executor"):
                machine.run("systemctl start oj-judicator oj-executor", timeout_s=120)
            mistakes = judge(machine, clock)
            show_page(machine, clock)
            return mistakes
        except BedError:
            title("the journal's last words")
            print(machine.journal("--lines=60", *(f"--unit={unit}" for unit in UNITS)), flush=True)
            raise
        finally:
            show_units(machine)
            clock.show()
            if keep:
                say_how_to_go_on(bed, machine)


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="packaging/demo",
        description="Build oj, install it on a freshly booted Debian machine, and judge a C++ and "
        "a Python program there, then start the gateway. Needs root on Debian 12 or 13, with or "
        "without systemd; installs what it needs, and removes the machine in the end.",
    )
    parser.add_argument(
        "--release",
        choices=root.RELEASES,
        default=root.HOST,
        help="of Debian on the machine; packages are built for it (default: the host's)",
    )
    parser.add_argument(
        "--keep", action="store_true", help="leave the machine running, and say how to enter it"
    )
    arguments = parser.parse_args()
    if os.geteuid() != 0:
        print("packaging/demo: needs root: it boots a machine", file=sys.stderr)
        return 1
    try:
        mistakes = demonstrate(arguments.keep, arguments.release)
    except BedError as mistake:
        print(f"packaging/demo: {mistake}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        return 130
    for text in mistakes:
        print(f"packaging/demo: {text}", file=sys.stderr)
    return 1 if mistakes else 0


if __name__ == "__main__":
    sys.exit(main())
