"""One look at the cluster, and what is not yet well in it. Pure."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

MOST_LAG_S = 3
MOST_VOTERS = 7


@dataclass(frozen=True)
class View:
    """What inside/looking.py saw; per host, None where nothing was said."""

    etcd: Mapping[str, Any]
    mongod: Mapping[str, Any]
    judicator: Mapping[str, Any]

    @property
    def etcd_leader(self) -> str:
        return next((said["leader"] for said in self.etcd.values() if said and said["leader"]), "")

    @property
    def primary(self) -> str:
        return next((host for host, said in self.mongod.items() if said and said["state"] == 1), "")

    @property
    def secondary(self) -> str:
        return next((host for host, said in self.mongod.items() if said and said["state"] == 2), "")

    @property
    def leader(self) -> str:
        """The leading judicator."""
        said = (one["leader"] for one in self.judicator.values() if one and one["leader"])
        return next(said, "")

    def troubles(self, judicators: Collection[str], executors: Collection[str]) -> list[str]:
        """What differs from a healthy cluster of these nodes."""
        return [
            *self._of_etcd(judicators),
            *self._of_mongod(judicators),
            *self._of_judicators(judicators, executors),
        ]

    def _of_etcd(self, judicators: Collection[str]) -> list[str]:
        found = []
        for host in judicators:
            said = self.etcd.get(host)
            if not said:
                found.append(f"etcd of {host} does not answer")
            elif not said["leader"]:
                found.append(f"etcd of {host} knows no leader")
            elif said["members"] != sorted(judicators):
                found.append(f"etcd of {host} has the members {', '.join(said['members'])}")
            elif said["learners"]:
                found.append(f"etcd of {host} has learners: {', '.join(said['learners'])}")
        return found

    def _of_mongod(self, judicators: Collection[str]) -> list[str]:
        said = self.mongod.get(self.primary)
        if not said:
            return ["mongod has no primary"]
        members = said["members"]
        found = []
        if len(members) != len(judicators):
            found.append(f"the replica set has {len(members)} members")
        if said["voters"] != min(len(judicators), MOST_VOTERS):
            found.append(f"the replica set has {said['voters']} voters")
        found += [
            f"mongod of {name} is {member['state']}"
            for name, member in members.items()
            if member["state"] not in ("PRIMARY", "SECONDARY")
        ]
        newest_s = max(member["optime"][1] for member in members.values())
        found += [
            f"mongod of {name} is {newest_s - member['optime'][1]} s behind"
            for name, member in members.items()
            if newest_s - member["optime"][1] > MOST_LAG_S
        ]
        found += [
            f"mongod of {host} does not answer" for host in judicators if not self.mongod.get(host)
        ]
        return found

    def _of_judicators(self, judicators: Collection[str], executors: Collection[str]) -> list[str]:
        found = []
        for host in judicators:
            said = self.judicator.get(host)
            if not said:
                found.append(f"judicator {host} does not serve")
                continue
            if said["judicators"] != sorted(judicators):
                found.append(f"judicator {host} knows {', '.join(said['judicators'])}")
            if not said["leader"]:
                found.append(f"judicator {host} knows no leader")
            if not set(executors) <= set(said["executors"]):
                found.append(f"judicator {host} has the executors {', '.join(said['executors'])}")
        return found
