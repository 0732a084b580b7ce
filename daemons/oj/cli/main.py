"""From the command line to an exit code: connection, errors, broken pipes."""

from __future__ import annotations

import argparse
import os
import sys
import traceback
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

from oj.cli.arguments import CONFIG, address, build_parser
from oj.errors import BadSettings, Oversized, Rejected, Throttled, Unavailable

if TYPE_CHECKING:
    from oj.calls import Calls
    from oj.client import Judicators

EXIT_INPUT = 2
EXIT_CLUSTER = 3
EXIT_BUG = 70
EXIT_INTERRUPTED = 130
EXIT_PIPE = 141
# Verbs about the machine they run on; they never go through a gateway.
INSIDE = frozenset({"doctor", "setup", "leave", "remove", "recover", "backup", "restore"})


def main() -> NoReturn:
    code = EXIT_INTERRUPTED
    try:
        code = run()
        sys.stdout.flush()
    except KeyboardInterrupt:
        pass
    except BrokenPipeError:
        # The reader has seen enough; the interpreter must not flush into the pipe again.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = EXIT_PIPE
    except Exception:  # noqa: BLE001 - Python's own 1 would say that there is a verdict
        traceback.print_exc()
        code = EXIT_BUG
    sys.exit(code)


def run() -> int:
    for stream in (sys.stdout, sys.stderr):
        # A terminal that cannot show a character shows another one: no traceback.
        stream.reconfigure(errors="backslashreplace")  # type: ignore[union-attr]
    arguments = build_parser().parse_args()
    try:
        from oj.cli import verbs

        if arguments.server and arguments.judicator:
            raise Rejected("--server and --judicator do not go together")
        if arguments.verb not in INSIDE:
            return verbs.VERBS[arguments.verb](arguments, _connect)
        if arguments.server:
            raise Rejected(
                f"'oj {arguments.verb}' works on a node of the cluster, not through a gateway: "
                "run it there without --server"
            )
        return verbs.VERBS[arguments.verb](arguments, _judicators)
    except BadSettings as error:
        return _fail(EXIT_INPUT, *error.mistakes)
    except Oversized as error:
        return _fail(EXIT_INPUT, f"too large: {error.message}")
    except Rejected as error:
        return _fail(EXIT_INPUT, error.message)
    except UnicodeEncodeError as error:
        # Python keeps what is not UTF-8 of a command line, but nothing can carry it further.
        return _fail(EXIT_INPUT, f"'{error.object}' is not UTF-8")
    except Throttled as error:
        return _fail(EXIT_CLUSTER, error.message)
    except Unavailable as error:
        return _fail(EXIT_CLUSTER, f"the cluster does not answer: {error.message}")


def _fail(code: int, *lines: str) -> int:
    from oj.cli.terminal import clean

    for line in lines:
        # A server's words may be in it.
        print(f"oj: {clean(line, lines=True)}", file=sys.stderr)
    return code


def _connect(arguments: argparse.Namespace, *, long: bool = False) -> Calls:
    """The gateway or the judicators: of the command line, else of the environment, else of
    the configuration; in each of them the gateway goes first."""
    if arguments.judicator:
        return _judicators(arguments, long=long)
    server = arguments.server or os.environ.get("OJ_SERVER", "").strip()
    if not server and os.environ.get("OJ_JUDICATOR", "").strip():
        return _judicators(arguments, long=long)
    settings = _settings(arguments.config)
    server = server or settings["server"]
    if not server:
        return _judicators(arguments, long=long)
    from oj.cli.remote.gateway import Gateway

    gateway = Gateway(
        server,
        _read_token(arguments.token_file, settings["token_file"]),
        timeout_s=arguments.timeout or settings["timeout"],
    )
    if gateway.place.is_open:
        print(f"oj: to {gateway.place.name} without https, others can read along", file=sys.stderr)
    return gateway


def _read_token(given: str | None, configured: str) -> str:
    """The token's secret: of --token-file, else of OJ_TOKEN, else of the configuration."""
    path = given or ("" if os.environ.get("OJ_TOKEN") else configured)
    if not path:
        secret, where = os.environ.get("OJ_TOKEN", "").strip(), "OJ_TOKEN"
    else:
        where = path
        try:
            secret = Path(path).expanduser().read_text(encoding="utf-8").strip()
        except (OSError, UnicodeDecodeError) as error:
            raise Rejected(f"{path}: {getattr(error, 'strerror', None) or error}") from None
        if not secret:
            raise Rejected(f"{path} holds no token")
    if not (secret.isascii() and secret.isprintable()) or " " in secret:
        raise Rejected(f"{where} holds something else than one token")
    return secret


def _judicators(arguments: argparse.Namespace, *, long: bool = False) -> Judicators:
    """Those of the command line, else of OJ_JUDICATOR, else of the configuration."""
    from oj.client import Judicators

    given = list(arguments.judicator or ())
    if not given:
        words = os.environ.get("OJ_JUDICATOR", "").replace(",", " ").split()
        try:
            given = [address(word) for word in words]
        except argparse.ArgumentTypeError as error:
            raise Rejected(f"OJ_JUDICATOR: {error}") from None
    settings = _settings(arguments.config)
    return Judicators(
        given or settings["judicators"],
        None if given else settings["etcd"],
        timeout_s=arguments.timeout or settings["timeout"],
        learn=long,
        # Whoever asks how the cluster is wants to know that it is not there.
        hopeless=_none_starts if arguments.verb in ("status", "doctor") else bool,
    )


def _none_starts() -> bool:
    """Whether no judicator is about to come up on this machine, as far as systemd knows."""
    from oj.node import units

    try:
        unit = units.look(["judicator"]).get("judicator")
    except Unavailable:
        return True
    return unit is None or unit.state not in ("activating", "deactivating", "reloading")


def _settings(path: str | None) -> dict[str, Any]:
    if path is None and not Path(CONFIG).exists():
        return {
            "judicators": [("127.0.0.1", 7500)],
            "etcd": [],
            "timeout": 10.0,
            "server": "",
            "token_file": "",
        }
    from oj import settings

    return settings.read(path or CONFIG, "client")
