"""What the judicators have on their list of executors, when a machine is one no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Rejected, Unavailable

ASK_S = 20.0

Address = tuple[str, int]


def forget(name: str, judicators: Iterable[Address], etcd: Iterable[Address] = ()) -> None:
    """Takes an executor off the list, if anybody hears it; else it is listed for an hour more."""
    with (
        contextlib.suppress(Rejected, Unavailable),
        Judicators(judicators, etcd, timeout_s=ASK_S) as client,
    ):
        client.forget(name, Deadline(ASK_S))
