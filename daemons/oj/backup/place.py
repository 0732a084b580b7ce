"""Where the database of a judicator's node is."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from typing import Any

from pymongo.database import Database

from oj.errors import Unavailable
from oj.judicator.settings import make_uri
from oj.judicator.store.database import connect
from oj.registry import Registry
from oj.settings import parse_address


@contextlib.contextmanager
def open_database(values: Mapping[str, Any]) -> Iterator[Database[Any]]:
    """By the settings of a judicator: as they say, and whoever is registered in etcd."""
    seeds = [tuple(address) for address in values["mongodb"]]
    with contextlib.suppress(Unavailable), Registry(values["etcd"], values["etcd_prefix"]) as etcd:
        seeds += map(parse_address, etcd.get_prefix("mongodb/member/").values())
    client: Any = connect(make_uri(list(dict.fromkeys(seeds)), values["replica_set"]))
    try:
        yield client[values["database"]]
    finally:
        client.close()
