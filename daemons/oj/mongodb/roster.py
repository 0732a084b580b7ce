"""What etcd knows of the replica set: who makes it, who is registered, and who its members are.

Keys below mongodb/:
- init: the one node that may make the set; for good.
- set: the set's id and its members, as its primary saw them last; for good. By it a node that has
  lost its data knows that there is a set, also when no other node is registered.
- member/NAME: HOST:PORT of a node, with a lease as long as the grace time.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from oj import loopback_guard
from oj.registry import Registry
from oj.settings import is_loopback, parse_address

INIT = "mongodb/init"
SET = "mongodb/set"
MEMBERS = "mongodb/member/"


@dataclass(frozen=True)
class Record:
    """The set as it was last."""

    id: str
    members: Mapping[str, str] = field(default_factory=dict)  # name -> host

    def is_only(self, name: str) -> bool:
        """Whether nobody else can have its data."""
        return set(self.members) <= {name}


def read_record(registry: Registry) -> Record | None:
    text = registry.get(SET)
    if text is None:
        return None
    found = json.loads(text)
    return Record(found["id"], found["members"])


def write_record(registry: Registry, record: Record) -> None:
    registry.put(SET, json.dumps({"id": record.id, "members": dict(record.members)}))


def name_hosts(
    hosts: Iterable[str], registered: Mapping[str, str], before: Mapping[str, str]
) -> dict[str, str]:
    """Names for the members: as registered, else as they were known before, else their hosts."""
    names = {host: name for name, host in before.items() if name not in registered}
    names |= {host: name for name, host in registered.items()}
    return {names.get(host, host): host for host in hosts}


def read_registered(registry: Registry) -> dict[str, str]:
    return registry.get_prefix(MEMBERS)


def demand_address(registry: Registry, name: str, own: str) -> None:
    """Raises Refused if a node would enter a set of several machines with a loopback address."""
    if not is_loopback(parse_address(own)[0]):
        return
    record = read_record(registry)
    known = {**(record.members if record else {}), **read_registered(registry)}
    others = (host for other, host in known.items() if other != name)
    loopback_guard.demand_address("mongodb.conf", own, others)


def deregister(registry: Registry, name: str) -> bool:
    """Takes a node off the list: the primary then removes it from the set. Whether it was on it.

    A node that lives and has not left puts itself on the list again.
    """
    if registry.get(INIT) == name and registry.get(SET) is None:
        # It was to make the set, and never did: another one may.
        registry.delete(INIT)
    return registry.delete(MEMBERS + name)
