"""`oj token`: who may use the gateways, and for what."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import Any

from oj import plain
from oj.calls import Calls
from oj.cli.terminal import clean, paint, table
from oj.cli.verbs import each
from oj.rpc import ttypes as rpc


def add(arguments: argparse.Namespace, cluster: Calls) -> int:
    expires = None
    if arguments.expires is not None:
        expires = int((time.time() + arguments.expires) * 1000)
    made, secret = cluster.issue_token(
        rpc.Token(
            name=arguments.name,
            user=arguments.user or "",
            roles=set(arguments.role or ["submit"]),
            quota=arguments.quota,
            expires=expires,
        )
    )
    if arguments.json:
        value = {**plain.token(made), "secret": secret, "webhook_secret": made.webhook_secret}
        plain.print_json(value)
        return 0
    # Only the secret goes to standard output, for TOKEN=$(oj token add ...).
    print(
        f"oj: token {made.id} for user '{clean(made.user or '')}', "
        f"roles {', '.join(sorted(made.roles))}; it is shown this once:",
        file=sys.stderr,
    )
    print(secret)
    return 0


def show(arguments: argparse.Namespace, cluster: Calls) -> int:
    tokens = cluster.tokens()
    if arguments.json:
        plain.print_json([plain.token(token) for token in tokens])
    elif tokens:
        head = ["ID", "NAME", "USER", "ROLES", "TASKS/H", "MADE", "EXPIRES"]
        print("\n".join(table(head, [_row(token) for token in tokens])))
    else:
        print(paint("no tokens; 'oj token add NAME' makes one", "dim"))
    return 0


def _row(token: Any) -> list[str]:
    value = plain.token(token)
    return [
        value["id"],
        clean(value["name"]),
        clean(value["user"]),
        ",".join(value["roles"]),
        "-" if value["quota"] is None else str(value["quota"]),
        (value["made"] or "")[:10],
        # To the minute: a token of an exam lives for hours.
        (value["expires"] or "never")[:16].replace("T", " "),
    ]


def remove(arguments: argparse.Namespace, cluster: Calls) -> int:
    def tell(removed: Mapping[str, None]) -> None:
        if arguments.json:
            plain.print_json({"removed": list(removed)})
        elif removed:
            print(f"removed {', '.join(removed)}, with the sessions opened with it")

    return each(arguments.id, cluster.remove_token, tell)


ACTIONS = {"add": add, "list": show, "remove": remove}
