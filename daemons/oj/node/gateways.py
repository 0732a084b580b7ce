"""What the judicators have on their list of gateways, when a machine is one no more."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable

from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Rejected, Unavailable
from oj.rpc import ttypes as rpc

ASK_S = 20.0

Address = tuple[str, int]


def forget(name: str, judicators: Iterable[Address], etcd: Iterable[Address] = ()) -> None:
    """Takes a gateway off the list, if anybody hears it; else it is listed for an hour more."""
    with (
        contextlib.suppress(Rejected, Unavailable),
        Judicators(judicators, etcd, timeout_s=ASK_S) as client,
    ):
        client.announce(rpc.GatewayInfo(name), leaving=True, deadline=Deadline(ASK_S))
