"""What a judicator tells of the cluster, also when parts of it are away."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from thrift.Thrift import TMessageType

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest
from oj.client import Judicators
from oj.errors import Rejected
from oj.rpc import Judicator

StartJudicator = Callable[..., JudicatorUnderTest]


@pytest.fixture
def own_mongod() -> Iterator[servers.Mongod]:
    server = servers.Mongod()
    yield server.start()
    server.close()


@pytest.fixture
def own_etcd() -> Iterator[servers.Etcd]:
    server = servers.Etcd()
    yield server.start()
    server.close()


def wait_for_cluster(caller: Caller, is_so: Callable[[Any], bool], what: str) -> Any:
    """The first picture that is so: each neighbour has little time to answer."""
    return servers.wait_until(lambda: found if is_so(found := caller.cluster()) else None, 60, what)


def is_well(cluster: Any) -> bool:
    """Whether every part is there, and well."""
    parts = (cluster.etcd, cluster.database, cluster.judicators)
    return all(members and all(one.healthy for one in members) for members in parts)


def test_the_cluster_is_told_with_its_members_and_leaders(
    start_judicator: StartJudicator, etcd: servers.Etcd, mongod: servers.Mongod
) -> None:
    one = start_judicator(name="j1")
    two = start_judicator(name="j2", database=one.database, prefix=one.prefix)
    caller = two.call()
    servers.wait_until(lambda: any(j.leader for j in caller.judicators()), 60, "a leader")
    cluster = wait_for_cluster(
        caller,
        lambda seen: (
            is_well(seen)
            and [words[:25] for words in seen.troubles] == ["no executor takes tasks, "]
        ),
        "health, but for executors",
    )
    (member,) = cluster.etcd
    assert (member.address, member.healthy, member.leader) == (etcd.address, True, True)
    (member,) = cluster.database
    assert (member.address, member.state, member.healthy) == (mongod.address, "primary", True)
    assert member.voter and member.lag_ms == 0
    assert [(j.name, j.healthy, bool(j.version)) for j in cluster.judicators] == [
        ("j1", True, True),
        ("j2", True, True),
    ]
    assert cluster.seen_from == "j2"
    ex = FakeExecutor(one.port, "ex")
    ex.report()
    servers.wait_until(lambda: not caller.cluster().troubles, 60, "no trouble left")
    one.daemon.pause()
    try:
        # Without its lease it stays registered, however long it takes to be found silent.
        etcd.ctl("put", f"{one.prefix}judicator/service/j1", f"127.0.0.1:{one.port}")
        wait_for_cluster(
            caller,
            lambda seen: (
                any("judicator j1 does not answer" in words for words in seen.troubles)
                and [j.healthy for j in seen.judicators] == [False, True]
            ),
            "the trouble with j1, and with nobody else",
        )
    finally:
        one.daemon.resume()
    ex.close()


def test_a_judicator_on_loopback_serves_whatever_databases_are_elsewhere(
    start_judicator: StartJudicator, etcd: servers.Etcd
) -> None:
    prefix = "/loopback-and-databases/"
    # As of this machine's own mongod under another name, or of a database on another machine.
    etcd.ctl("put", f"{prefix}mongodb/member/n9", "10.9.0.9:7503")
    one = start_judicator(prefix=prefix)
    assert [j.name for j in one.call().judicators()] == ["j1"]


def test_a_judicator_on_loopback_is_not_told_to_judicators_elsewhere(
    start_judicator: StartJudicator, etcd: servers.Etcd
) -> None:
    prefix = "/loopback-and-judicators/"
    etcd.ctl("put", f"{prefix}judicator/service/n9", "10.9.0.9:7500")
    one = start_judicator(prefix=prefix)
    # It serves, but nobody else is led to himself.
    assert [(j.name, j.address) for j in one.call().judicators()] == [("n9", "10.9.0.9:7500")]
    assert "Run: oj setup judicator --join 10.9.0.9" in one.daemon.log()
    one.daemon.wait_status("serving this machine only")


def test_the_cluster_is_told_while_etcd_and_the_database_are_away(
    start_judicator: StartJudicator, own_mongod: servers.Mongod, own_etcd: servers.Etcd
) -> None:
    judicator = start_judicator(own_etcd.address, own_mongod.address)
    caller = judicator.call()
    # What is told later is as known last.
    cluster = wait_for_cluster(caller, is_well, "health")
    assert cluster.etcd[0].name == "test"
    assert own_etcd.process and own_mongod.process
    own_etcd.process.pause()
    own_mongod.process.pause()
    begun = time.monotonic()
    cluster = caller.cluster()
    took_s = time.monotonic() - begun
    assert [(m.name, m.healthy) for m in cluster.etcd] == [("test", False)]
    assert [(m.state, m.healthy) for m in cluster.database] == [("unknown", False)]
    assert [j.name for j in cluster.judicators] == [judicator.name]
    assert "etcd does not answer" in cluster.troubles[0]
    assert "the database does not answer" in cluster.troubles[1]
    assert took_s < 10  # two seconds, on a machine with nothing else to do
    own_etcd.process.resume()
    own_mongod.process.resume()
    wait_for_cluster(caller, is_well, "health")


def test_the_version_is_told_under_the_number_of_each_call(judicator: JudicatorUnderTest) -> None:
    with Caller(judicator.port) as caller:
        told = []
        for number in (0, 7, -1, (1 << 31) - 1):
            caller.client._seqid = number
            caller.client.send_version()
            protocol = caller.client._iprot
            name, kind, answered = protocol.readMessageBegin()
            result = Judicator.version_result()
            result.read(protocol)
            protocol.readMessageEnd()
            assert (name, kind, answered) == ("version", TMessageType.REPLY, number)
            told.append((result.success.oj, result.success.protocol))
        assert len(set(told)) == 1 and told[0][1] >= 2


def test_a_call_that_a_judicator_does_not_know_is_rejected(judicator: JudicatorUnderTest) -> None:
    """As an older judicator does with cluster(): the caller can do without."""

    class Newer(Judicator.Client):
        def send_novelty(self) -> None:
            self._oprot.writeMessageBegin("novelty", 1, 0)
            Judicator.cluster_args().write(self._oprot)
            self._oprot.writeMessageEnd()
            self._oprot.trans.flush()

        recv_novelty = Judicator.Client.recv_cluster

    with Judicators([("127.0.0.1", judicator.port)], learn=False).channel() as client:
        client.ping()
        link = client._link
        assert link is not None
        link._client = Newer(link._client._iprot)
        with pytest.raises(Rejected, match="does not know the call novelty"):
            client._call("novelty")
        client.ping()
