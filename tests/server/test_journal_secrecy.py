"""No daemon logs sources, inputs, outputs or secrets, whether all goes well or much fails."""

from __future__ import annotations

import base64
import os
import re
import secrets
import signal
import socket
import struct
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pymongo
import pytest
from bson import ObjectId
from pymongo.errors import PyMongoError

import loopback
import servers
from gateways import Gateway

WORDS = (
    "source data input expected stdout stderr compiler address body query wrong thrift document"
).split()


class Canaries(dict[str, str]):
    """A word for each kind of thing that must not be found."""

    def find_in(self, log: str) -> list[str]:
        return [
            kind for kind, word in self.items() if any(form in log for form in self._forms(word))
        ]

    @staticmethod
    def _forms(word: str) -> Iterator[str]:
        yield word
        # What programs print is stored as bytes, which mongod shows so, wherever the word begins.
        for before in range(3):
            text = base64.b64encode(b" " * before + word.encode()).decode()
            yield text[4 if before else 0 : -4]


class Everything:
    """All daemons that have users' data, with mongod telling of every command."""

    def __init__(self, etcd: servers.Etcd, directory: Path) -> None:
        self.canaries = Canaries({kind: f"{kind}-{secrets.token_hex(12)}" for kind in WORDS})
        self.mongod = servers.Mongod(directory / "unused")
        self.mongodb = servers.start_daemon(
            "mongodb",
            f"name = n1\ndata = {directory}/mongod\nlisten = {self.mongod.address}\n"
            f"etcd = {etcd.address}\nprefix = /secrecy-{secrets.token_hex(6)}/\n"
            f"[mongod]\nprogram = {servers.find_mongod()}\noplog = 64M\n",
            arguments=["--debug"],
        )
        self.cluster = loopback.Cluster(etcd, self.mongod)
        port = servers.free_port()
        self.judicator = servers.start_daemon(
            "judicator", self.cluster.judicator_config("j1", port), arguments=["--debug"]
        )
        self.cluster.ports.append(port)
        languages = directory / "languages.d"
        languages.mkdir()
        for name in ("bash", "c"):
            (languages / f"{name}.conf").write_text(
                (loopback.LANGUAGES / f"{name}.conf").read_text()
            )
        self.executor = self.cluster.add_executor(languages=languages)
        self.gateway = Gateway(
            self.cluster.addresses, "timeout = 8s\n[webhooks]\nallow = 127.0.0.0/8"
        )
        self.client: Any = pymongo.MongoClient(self.mongod.uri)
        self.client.admin.command("profile", 0, slowms=0)
        self.database = self.client[self.cluster.database_name]

    def close(self) -> None:
        self.client.close()
        self.gateway.close()
        self.cluster.__exit__()
        self.judicator.close()
        self.mongodb.close()

    def logs(self) -> dict[str, str]:
        daemons = (self.mongodb, self.judicator, self.executor, self.gateway.daemon)
        return {daemon.role: daemon.log() for daemon in daemons}


@pytest.fixture(scope="module")
def everything(
    etcd: servers.Etcd, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Everything]:
    loopback.prepare()
    directory = tmp_path_factory.mktemp("secrecy")
    one = Everything(etcd, directory)
    yield one
    one.close()


def judge(gateway: Gateway, task: dict[str, Any], token: str) -> Any:
    made = gateway.call("POST", "/api/v1/tasks", task, token=token)
    assert made.status == 201, made.body
    path = f"/api/v1/tasks/{made.json['id']}/wait?timeout=20"
    return servers.wait_until(
        lambda: (answer := gateway.call("GET", path, token=token).json)["done"] and answer,
        60,
        "a verdict",
    )


def test_no_log_has_what_users_write_and_what_programs_print(everything: Everything) -> None:
    gateway, words = everything.gateway, everything.canaries
    root = gateway.make_token("admin", user="root")
    made = gateway.call(
        "POST", "/api/v1/tokens", {"name": "site", "user": "s", "roles": ["submit"]}, token=root
    ).json
    token = made["secret"]
    words.update(token=token, root=root, webhook_secret=made["webhook_secret"])

    # Everyday tasks, one with a webhook that nobody answers.
    closed = servers.free_port()
    script = (
        f"# {words['source']}\ncat data.txt; echo {words['stdout']}; echo {words['stderr']} >&2\n"
    )
    task = {
        "language": "bash",
        "source": [{"name": "main.sh", "text": script}],
        "data": [
            {"name": "data.txt", "text": words["data"]},
            {"name": "large", "text": words["data"] * 5000},
        ],
        "tests": [
            {"input": words["input"], "expected": words["expected"]},
            {"input": words["input"] * 5000, "expected": words["expected"] * 5000},
        ],
        "webhook": f"http://127.0.0.1:{closed}/hook?secret={words['address']}",
    }
    done = judge(gateway, task, token)
    assert done["verdict"] == "wrong_answer"
    broken = {"language": "c", "source": [{"name": "m.c", "text": f"#error {words['compiler']}"}]}
    assert judge(gateway, broken, token)["verdict"] == "compile_error"
    servers.wait_until(lambda: "webhook of task" in gateway.daemon.log(), 60, "a failed call")

    # Requests that make no sense.
    for body in (f'{{"{words["body"]}": '.encode(), f'["{words["body"]}"]'.encode(), b"\xff" * 9):
        assert gateway.call("POST", "/api/v1/tasks", body, token=token).status >= 400
        assert gateway.call("POST", "/api/v1/session", body).status >= 400
    assert gateway.call("GET", f"/api/v1/tasks?token={words['query']}").status == 401
    assert gateway.call("GET", "/api/v1/tasks", token=words["wrong"]).status == 401
    call_with_rubbish(everything.cluster.address, words["thrift"].encode())

    # What the database refuses, and documents that nobody can read.
    things = everything.database.things
    document = {"_id": words["document"], "more": [words["document"]]}
    things.insert_one(document)
    for bad in (
        lambda: things.insert_one(document),
        lambda: things.update_one({}, {"$set": {"_id": words["document"] * 2}}),
        lambda: things.update_one({}, {"$push": {"_id": words["document"]}}),
        lambda: list(things.aggregate([{"$project": {"x": {"$divide": [words["document"], 1]}}}])),
        lambda: things.find_one({"$where": words["document"]}),
    ):
        with pytest.raises(PyMongoError):
            bad()
    spoilt = {"s": words["document"], "u": {words["document"]: 1}, "r": words["document"]}
    everything.database.tasks.update_one({"_id": ObjectId(done["id"])}, {"$set": spoilt})
    assert gateway.call("GET", f"/api/v1/tasks/{done['id']}", token=root).status >= 500

    everything.client.close()  # which would wait for a database that has gone

    # The database hangs, and ends, while tasks come in.
    [mongod] = [pid for pid in everything.mongodb.children() if is_mongod(pid)]
    os.kill(mongod, signal.SIGSTOP)
    try:
        assert gateway.call("POST", "/api/v1/tasks", broken, token=token).status >= 500
    finally:
        os.kill(mongod, signal.SIGCONT)
    os.kill(mongod, signal.SIGKILL)
    everything.mongodb.wait(60)
    assert gateway.call("POST", "/api/v1/tasks", broken, token=token).status >= 500

    logs = everything.logs()
    assert {role: found for role, log in logs.items() if (found := words.find_in(log))} == {}
    # All that was in fact told of.
    for told in ('"ns": "loopback_', "Slow query", '"durationMillis": ', "insert"):
        assert told in logs["mongodb"], told
    assert "Traceback" in logs["judicator"]
    assert re.search("cannot read a call of 'add'|closing the connection", logs["judicator"])
    assert "judged: wrong_answer" in logs["executor"]


def call_with_rubbish(address: tuple[str, int], content: bytes) -> None:
    """Calls of 'add' whose task has a name that is no UTF-8, or longer than the call."""
    for text, length in ((b"\xff" + content, 1 + len(content)), (content, 1000)):
        call = struct.pack("!II3sI", 0x80010001, 3, b"add", 1)
        call += struct.pack("!bhbhI", 12, 1, 11, 1, length) + text + b"\0\0"
        with socket.create_connection(address, 10) as connection:
            connection.sendall(struct.pack("!I", len(call)) + call)
            connection.settimeout(10)
            connection.recv(1000)  # a refusal, or the end


def is_mongod(pid: int) -> bool:
    return Path(f"/proc/{pid}/comm").read_text().strip() == "mongod"
