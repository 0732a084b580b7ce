"""oj-mongodb's settings and mongod's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from oj.errors import BadSettings
from oj.mongodb import argv


def load(tmp_path: Path, text: str) -> argv.Settings:
    path = tmp_path / "mongodb.conf"
    path.write_text(text)
    return argv.load(path)


def test_the_shipped_file_makes_a_mongod_on_loopback() -> None:
    found = argv.load(Path(__file__).parents[2] / "etc" / "mongodb.conf")
    assert found.advertise == "127.0.0.1:7503"
    assert found.etcd == (("127.0.0.1", 7501),)
    words = argv.command(found, "/usr/bin/mongod")
    assert words[0] == "/usr/bin/mongod"
    assert {
        "--replSet=oj",
        "--dbpath=/var/lib/oj/mongodb",
        "--bind_ip=127.0.0.1",
        "--port=7503",
        "--wiredTigerCacheSizeGB=0.25",
        "--oplogSize=1024",
    } <= set(words)
    assert "--ipv6" not in words


def test_an_ipv6_address_is_switched_on(tmp_path: Path) -> None:
    found = load(tmp_path, "listen = [::]:7503\nadvertise = n1:7503\n")
    assert "--ipv6" in argv.command(found, "mongod")
    assert found.local == ("::1", 7503)


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("name = a b\nreplica_set = a/b\n", ["1: name:", "2: replica_set:"]),
        ("data = here\n", ["1: data:"]),
        ("listen = 127.0.0.1:0\n", ["1: listen:"]),
        ("listen = 0.0.0.0:7503\n", [" advertise:"]),
        ("advertise = n1\n", ["1: advertise:"]),
        ("etcd = ,\n", ["1: etcd:"]),
        ("grace = 1s\n", ["1: grace:"]),
        ("[mongod]\nprogram = /nonexistent\n", ["2: mongod.program:"]),
        ("[mongod]\ncache = 1M\noplog = 1M\n", ["2: mongod.cache:", "3: mongod.oplog:"]),
        ("[election]\ntimeout = 300ms\n", ["2: election.timeout:"]),
        ("[election]\nheartbeat = 1ms\n", ["2: election.heartbeat:"]),
    ],
)
def test_settings_that_do_not_fit_are_refused(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    with pytest.raises(BadSettings) as caught:
        load(tmp_path, text)
    assert len(caught.value.mistakes) == len(mistakes), caught.value.mistakes
    for told, expected in zip(caught.value.mistakes, mistakes, strict=True):
        assert expected in told
