"""The command line of `oj`: every verb, option and help text, and no behaviour.

Nothing slow is imported here, because `oj --help` and completion wait for it.
"""

from __future__ import annotations

import argparse
import shlex
from collections.abc import Callable
from typing import Any, NoReturn

from oj import __version__
from oj.cli import node_arguments

ETC = "/etc/oj"
CONFIG = f"{ETC}/client.conf"

STATUSES = (
    "pending",
    "compiling",
    "running",
    "retrying",
    "success",
    "compile_failed",
    "run_failed",
    "cancelled",
    "internal_error",
)
VERDICTS = (
    "accepted",
    "wrong_answer",
    "presentation_error",
    "time_limit",
    "wall_limit",
    "memory_limit",
    "output_limit",
    "runtime_error",
    "compile_error",
    "judge_error",
)
ROLES = ("submit", "read", "admin")
COMPARES = ("exact", "tokens", "floats")

EXITS = """\
exit code: 0 accepted (or the question was answered), 1 any other verdict,
           2 a usage or input error, 3 the cluster could not answer"""


def _parsed(parse: Callable[[str], Any], text: str) -> Any:
    try:
        return parse(text)
    except ValueError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def duration(text: str) -> float:
    from oj.settings import parse_duration

    seconds: float = _parsed(parse_duration, text)
    return seconds


def size(text: str) -> int:
    from oj.settings import parse_size

    size_bytes: int = _parsed(parse_size, text)
    return size_bytes


def address(text: str) -> tuple[str, int]:
    from oj.settings import parse_address

    host, port = _parsed(parse_address, text)
    return host, port


def command(text: str) -> tuple[str, ...]:
    words = _parsed(shlex.split, text)
    if not words:
        raise argparse.ArgumentTypeError("the command is empty")
    return tuple(words)


def count(text: str) -> int:
    number = _parsed(int, text) if text.isdigit() else 0
    if number < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1")
    return int(number)


def rate(text: str) -> float:
    number: float = _parsed(float, text)
    if not 0 < number <= 100_000:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number above 0")
    return number


class Parser(argparse.ArgumentParser):
    """Says what is wrong in one line, and where to find help."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"oj: {message}\nTry '{self.prog} --help'.\n")


def _common(parser: argparse.ArgumentParser, default: Any) -> None:
    group = parser.add_argument_group("where and how")
    group.add_argument(
        "--judicator",
        metavar="HOST:PORT",
        type=address,
        action="append",
        default=default,
        help="a judicator to ask; may be repeated (also: OJ_JUDICATOR)",
    )
    group.add_argument(
        "--server",
        metavar="URL",
        default=default,
        help="a gateway to go through, from outside the cluster (also: OJ_SERVER)",
    )
    group.add_argument(
        "--token-file",
        metavar="FILE",
        default=default,
        help="holds the token for the gateway (also: OJ_TOKEN, the token itself)",
    )
    group.add_argument(
        "--config", metavar="FILE", default=default, help=f"configuration (default: {CONFIG})"
    )
    group.add_argument(
        "--timeout",
        metavar="TIME",
        type=duration,
        default=default,
        help="how long to try to reach the cluster (default: 10s)",
    )
    group.add_argument(
        "--json", action="store_true", default=default, help="print JSON, for programs"
    )


def build_parser() -> Parser:
    parser = Parser(
        prog="oj",
        description="Judges programs on a cluster: submit, watch, search, look after it.",
        epilog=f"{EXITS}\n\n'oj VERB --help' tells more of each.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )
    parser.add_argument("--version", action="version", version=f"oj {__version__}")
    _common(parser, None)
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True)

    def verb(name: str, summary: str, **more: Any) -> argparse.ArgumentParser:
        return verbs.add_parser(
            name,
            help=summary,
            description=more.pop("description", summary[0].upper() + summary[1:] + "."),
            formatter_class=argparse.RawDescriptionHelpFormatter,
            allow_abbrev=False,
            **more,
        )

    _submit(
        verb(
            "submit",
            "judge a program",
            epilog=f"""\
examples:
  oj submit hello.cpp --tests tests/ --time 2s --memory 256M --wait
  oj submit answer.py --input 1.in --expected 1.ans --wait
  oj submit --command '/bin/echo hello' --wait

{EXITS}""",
        )
    )
    get = verb("get", "show one task")
    get.add_argument("id", metavar="ID")
    get.add_argument("--outputs", action="store_true", help="show what each test printed, too")
    get.add_argument(
        "--save", metavar="DIR", help="write its files, tests and outputs to a new directory"
    )
    watch = verb(
        "watch",
        "follow one task until it is done, or the whole cluster on a live screen",
        epilog=f"Without ID, 'q' ends it; where there is no terminal, events are lines.\n\n{EXITS}",
    )
    watch.add_argument("id", metavar="ID", nargs="?")
    _search(verb("search", "list tasks, newest first"))
    cancel = verb("cancel", "end tasks that are not done")
    cancel.add_argument("id", metavar="ID", nargs="+")
    verb("executors", "list the executors")
    verb("judicators", "list the judicators")
    verb("languages", "list the languages that programs can be in now")
    _bench(
        verb(
            "bench",
            "measure a running cluster with tasks of its own",
            description="Adds tasks that do next to nothing and measures how they fare.\n"
            "This is load on the cluster: tasks of others wait meanwhile.",
            epilog="exit code: 0 all were accepted, 1 not all, 2 and 3 as elsewhere\n"
            "An interrupt (^C) cancels what is not done and shows what was measured.",
        )
    )
    status = verb(
        "status",
        "show the whole cluster on one screen",
        epilog="exit code: 0 it was told, 1 all was not well in time (--wait), 3 nobody answers",
    )
    status.add_argument(
        "--wait",
        metavar="TIME",
        type=duration,
        help="until all is well, at most so long, as between two nodes of an upgrade",
    )
    drain = verb("drain", "let an executor finish what it runs and take no more")
    drain.add_argument("executor", metavar="EXECUTOR")
    drain.add_argument("--off", action="store_true", help="put it back into service")
    doctor = verb(
        "doctor",
        "check this machine and the cluster, and say how to repair what is wrong",
        epilog="exit code: 0 nothing is broken, 1 something is\nRun it as root to try the sandbox.",
    )
    doctor.add_argument(
        "--etc",
        metavar="DIR",
        default=ETC,
        help="configuration of this node (default: %(default)s)",
    )
    _token(verb("token", "make, list and remove tokens for the gateways' users"))
    rejudge = verb("rejudge", "judge tasks again, each as a new task")
    rejudge.add_argument("id", metavar="ID", nargs="+")
    node_arguments.add_verbs(verb)
    _backup(
        verb(
            "backup",
            "write all tasks and blobs to a file, while the cluster runs",
            epilog="exit code: 0 it is whole, 1 it lacks blobs that are broken, 2 and 3 no backup",
        )
    )
    _restore(
        verb(
            "restore",
            "fill an empty cluster from a backup, and read all of it back",
            epilog="After an interruption, run it again with the same file: it goes on.",
        )
    )
    for subparser in verbs.choices.values():
        _common(subparser, argparse.SUPPRESS)
    return parser


def _submit(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("file", metavar="FILE", nargs="*", help="source files of one program; '-': standard input")
    add("--archive", metavar="FILE", help="source files in a zip or tar archive")
    add("-l", "--language", metavar="L", help="default: by the first file's extension")
    add("--name", metavar="NAME", help="name of the source file that '-' gives")
    add("-w", "--wait", action="store_true", help="follow it until it is done, show the verdict")

    tests = parser.add_argument_group("tests")
    tests.add_argument("--input", metavar="F", help="standard input of the one test")
    tests.add_argument("--expected", metavar="F", help="its expected output")
    tests.add_argument(
        "--tests", metavar="DIR", help="directory of NAME.in and NAME.ans (or NAME.out) pairs"
    )
    tests.add_argument(
        "--compare", choices=COMPARES, help="how outputs are compared (default: tokens)"
    )
    tests.add_argument(
        "--tolerance", metavar="X", type=float, help="for --compare floats (default: 1e-6)"
    )
    tests.add_argument(
        "--stop-on-failure", action="store_true", help="skip what follows the first failed test"
    )

    limits = parser.add_argument_group("limits (default: the language's)")
    for option, kind, text in (
        ("time", duration, "CPU time of each test, as 2s or 500ms"),
        ("wall", duration, "wall-clock time of each test"),
        ("memory", size, "memory, as 256M"),
        ("output", size, "standard output, and standard error"),
        ("disk", size, "what it may write to files"),
        ("processes", count, "processes at the same time"),
    ):
        metavar = {duration: "TIME", size: "SIZE"}.get(kind, "N")
        limits.add_argument(f"--{option}", metavar=metavar, type=kind, help=text)
    for option, kind in (("time", duration), ("wall", duration), ("memory", size)):
        metavar = "TIME" if kind is duration else "SIZE"
        limits.add_argument(
            f"--compile-{option}", metavar=metavar, type=kind, help="the same of the compile step"
        )

    more = parser.add_argument_group("more")
    more.add_argument("--command", metavar="COMMAND", type=command, help="how to run it")
    more.add_argument("--compile-command", metavar="COMMAND", type=command, help="how to compile")
    more.add_argument(
        "--data", metavar="FILE", action="append", default=[], help="a file for the run only"
    )
    more.add_argument(
        "--data-archive",
        metavar="FILE",
        action="append",
        default=[],
        help="files for the run only, in a zip or tar archive",
    )
    more.add_argument("--user", metavar="USER", help="whose share of the cluster it uses")
    more.add_argument("--priority", metavar="N", type=int, default=0, help="-100 to 100")
    more.add_argument("--tag", metavar="TAG", action="append", default=[], help="may be repeated")
    more.add_argument(
        "--key", metavar="KEY", help="submitting again with the same key gives the first task"
    )
    more.add_argument("--webhook", metavar="URL", help="a gateway calls it once the task is done")


def _bench(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("-n", "--count", metavar="N", type=count, default=200, help="tasks (default: %(default)s)")
    add(
        "-l",
        "--language",
        metavar="L",
        help="compile and run a tiny program in it (default: run /bin/true)",
    )
    add("--rate", metavar="X", type=rate, help="tasks a second (default: as they are done)")
    add(
        "--parallel",
        metavar="N",
        type=count,
        help="at most so many at a time (default: twice the slots; with --rate more)",
    )
    add("--user", metavar="USER", help="whose share of the cluster they use")
    add("--priority", metavar="N", type=int, default=0, help="-100 to 100")


def _backup(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="where to; '-': standard output")
    parser.add_argument(
        "--verify", action="store_true", help="only check a FILE that was written before"
    )
    _etc(parser)


def _restore(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="what 'oj backup' has written")
    _etc(parser)


def _etc(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--etc",
        metavar="DIR",
        default=ETC,
        help="configuration of this node, a judicator's (default: %(default)s)",
    )


def _token(parser: argparse.ArgumentParser) -> None:
    actions = parser.add_subparsers(dest="action", metavar="ACTION", required=True)
    add = actions.add_parser("add", help="make a token and print its secret, once")
    add.add_argument("name", metavar="NAME", help="for people: 'course site'")
    add.add_argument("--user", metavar="USER", help="whose tasks are added with it")
    add.add_argument(
        "--role",
        choices=ROLES,
        action="append",
        help="submit: add tasks and see one's own; read: see all; admin: everything "
        "(default: submit); may be repeated",
    )
    add.add_argument("--quota", metavar="N", type=count, help="tasks an hour (default: no limit)")
    add.add_argument(
        "--expires", metavar="TIME", type=duration, help="as 30d from now (default: never)"
    )
    actions.add_parser("list", help="list them")
    remove = actions.add_parser("remove", help="remove some, with the sessions opened with them")
    remove.add_argument("id", metavar="ID", nargs="+")
    for action in actions.choices.values():
        _common(action, argparse.SUPPRESS)


def _search(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--user", metavar="USER")
    add("--status", choices=STATUSES, action="append", metavar="STATUS", help=", ".join(STATUSES))
    add("--verdict", choices=VERDICTS, action="append", metavar="VERDICT", help=", ".join(VERDICTS))
    add("--tag", metavar="TAG", action="append", help="the task has all of these")
    add("--language", metavar="L")
    add("--executor", metavar="EXECUTOR")
    add("--since", metavar="WHEN", help="as 2h or 7d ago, or a date such as 2025-03-01T12:00")
    add("--limit", metavar="N", type=count, default=20, help="at most (default: %(default)s)")
    add("--oldest-first", action="store_true")
