"""Looks at the cluster from outside, past the product: what etcd and mongod themselves say."""

from __future__ import annotations

import json
import urllib.error
import urllib.request
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from pymongo import MongoClient
from pymongo.errors import PyMongoError

from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.rpc import ttypes as rpc

JUDICATOR, ETCD, MONGOD = 7500, 7501, 7503
ANSWER_S = 2.0


class Looking:
    def __init__(self) -> None:
        self._clients: dict[str, MongoClient[Any]] = {}
        self._pool = ThreadPoolExecutor(max_workers=16)

    def look(self, hosts: list[str]) -> dict[str, Any]:
        """For each host what its etcd, mongod and judicator say; None where nothing is said."""
        asked = {
            (kind, host): self._pool.submit(ask, host)
            for kind, ask in (
                ("etcd", ask_etcd),
                ("mongod", self.ask_mongod),
                ("judicator", ask_judicator),
            )
            for host in hosts
        }
        found: dict[str, Any] = {"etcd": {}, "mongod": {}, "judicator": {}}
        for (kind, host), answer in asked.items():
            found[kind][host] = answer.result()
        return found

    def mongod(self, host: str) -> MongoClient[Any]:
        if host not in self._clients:
            limit_ms = int(ANSWER_S * 1000)
            self._clients[host] = MongoClient(
                host, MONGOD, directConnection=True, serverSelectionTimeoutMS=limit_ms,
                connectTimeoutMS=limit_ms, socketTimeoutMS=10_000, maxPoolSize=2,
            )  # fmt: skip
        return self._clients[host]

    def ask_mongod(self, host: str) -> dict[str, Any] | None:
        try:
            said = self.mongod(host).admin.command("replSetGetStatus")
        except PyMongoError:
            return None
        members = {
            member["name"].partition(":")[0]: {
                "state": member["stateStr"],
                "optime": [
                    member.get("optime", {}).get("t", -1),
                    *_stamp(member.get("optime", {}).get("ts")),
                ],
            }
            for member in said["members"]
        }
        return {
            "state": said["myState"],
            "term": said["term"],
            "members": members,
            "voters": said["votingMembersCount"],
        }


def _stamp(stamp: Any) -> list[int]:
    return [stamp.time, stamp.inc] if stamp is not None else [0, 0]


def ask_etcd(host: str) -> dict[str, Any] | None:
    try:
        status = _post(host, "maintenance/status")
        listed = _post(host, "cluster/member/list")["members"]
    except (OSError, ValueError, KeyError):
        return None
    names = {member["ID"]: member.get("name", "") for member in listed}
    return {
        "name": names.get(status["header"]["member_id"], ""),
        "leader": names.get(status.get("leader", "0"), ""),
        "learner": bool(status.get("isLearner")),
        "members": sorted(names.values()),
        "learners": sorted(m.get("name", "") for m in listed if m.get("isLearner")),
    }


def _post(host: str, path: str) -> dict[str, Any]:
    request = urllib.request.Request(f"http://{host}:{ETCD}/v3/{path}", b"{}")
    try:
        with urllib.request.urlopen(request, timeout=ANSWER_S) as answer:
            return dict(json.load(answer))
    except urllib.error.HTTPError as error:
        error.close()
        raise


def ask_judicator(host: str) -> dict[str, Any] | None:
    def ask(what: Callable[[Deadline], Any]) -> Any:
        return what(Deadline(ANSWER_S))

    channel = Judicators([(host, JUDICATOR)], learn=False).channel(ANSWER_S)
    try:
        with channel:
            ask(channel.ping)
            judicators: list[rpc.JudicatorInfo] = ask(channel.judicators)
            executors: list[rpc.ExecutorInfo] = ask(channel.executors)
    except Unavailable:
        return None
    return {
        "judicators": sorted(info.name for info in judicators),
        "leader": next((info.name for info in judicators if info.leader), ""),
        "executors": sorted(
            info.name
            for info in executors
            if not info.silent and info.facts and info.facts.state == "ok"
        ),
    }
