"""Runs commands in the cgroup v2 machine: tests/vm/run 'uname -a' 'ls'."""

from __future__ import annotations

import argparse
import os
import sys

from . import install, run_all


def main() -> int:
    parser = argparse.ArgumentParser(
        prog="tests/vm/run",
        description="Runs shell commands, each at the top of a copy of the tree, in one boot of a "
        "virtual machine with a stock Debian kernel and cgroup v2, and shows what they print. "
        "Exits with the first exit code that is not 0.",
    )
    parser.add_argument("--timeout", type=float, default=900, metavar="SECONDS")
    parser.add_argument("command", nargs="+")
    options = parser.parse_args()
    install()
    os.environ["OJ_VM_SHOW"] = "1"
    ended = run_all(options.command, timeout_s=options.timeout)
    return next((one.exit_code for one in ended if one.exit_code), 0)


sys.exit(main())
