"""The registry against a real etcd: directly, and through etcd's gRPC proxy."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator

import pytest

import servers
from oj.errors import Unavailable
from oj.registry import Election, Registry
from oj.settings import parse_address
from servers import wait_until

Connect = Callable[[], Registry]


@pytest.fixture(scope="module")
def proxy(etcd: servers.Etcd) -> Iterator[servers.EtcdProxy]:
    server = servers.EtcdProxy(etcd.address)
    yield server
    server.close()


@pytest.fixture(params=["member", "proxy"])
def address(request: pytest.FixtureRequest, etcd: servers.Etcd) -> str:
    """Tests that take `connect` hold for both ways to etcd."""
    if request.param == "member":
        return etcd.address
    return request.getfixturevalue("proxy").address


@pytest.fixture
def connect(address: str, prefix: str) -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Registry(parse_address(address), prefix))


@pytest.fixture
def connect_member(etcd: servers.Etcd, prefix: str) -> Iterator[Connect]:
    with contextlib.ExitStack() as stack:
        yield lambda: stack.enter_context(Registry(parse_address(etcd.address), prefix))


@pytest.fixture
def own_etcd() -> Iterator[servers.Etcd]:
    """One to be killed."""
    server = servers.Etcd()
    try:
        yield server.start()
    finally:
        server.close()


def test_a_key_is_put_read_listed_and_deleted(connect: Connect) -> None:
    registry = connect()
    assert registry.get("a/1") is None
    registry.put("a/1", "eins")
    registry.put("a/2", "zwei ✓")
    registry.put("b", "other")
    assert registry.get("a/1") == "eins"
    assert registry.get_prefix("a/") == {"1": "eins", "2": "zwei ✓"}
    assert registry.delete("a/1") is True
    assert registry.delete("a/1") is False
    assert registry.get_prefix("a/") == {"2": "zwei ✓"}


def test_prefixes_keep_apart(etcd: servers.Etcd, prefix: str) -> None:
    address = parse_address(etcd.address)
    with Registry(address, prefix + "x/") as one, Registry(address, prefix + "y/") as other:
        one.put("key", "1")
        assert other.get("key") is None


def test_of_many_who_put_if_absent_one_wins_and_all_agree(connect: Connect) -> None:
    answers: list[tuple[bool, str]] = []

    def race(name: str) -> None:
        won, entry = registries[name].put_if_absent("init", name)
        answers.append((won, entry.value))

    registries = {f"n{number}": connect() for number in range(8)}
    threads = [threading.Thread(target=race, args=(name,)) for name in registries]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert [won for won, _ in answers].count(True) == 1
    assert len({value for _, value in answers}) == 1


def test_replace_fails_when_the_key_changed_meanwhile(connect_member: Connect) -> None:
    registry = connect_member()
    _, first = registry.put_if_absent("key", "one")
    assert registry.replace("key", first, "two") is True
    assert registry.replace("key", first, "three") is False
    assert registry.get("key") == "two"


def test_a_registration_outlives_its_time_to_live_and_goes_when_closed(connect: Connect) -> None:
    registry = connect()
    other = connect()
    lease = registry.register("judicator/service/n1", "h:7500", ttl_s=10)
    assert lease.wait(20)
    first = lease.id
    assert other.judicators() == {"n1": "h:7500"}
    # Longer than the time to live, with a second for the proxy: kept only if it is renewed.
    end = time.monotonic() + 12
    while time.monotonic() < end:
        assert other.judicators() == {"n1": "h:7500"}
        time.sleep(0.2)
    assert lease.id == first
    assert lease.valid
    lease.close()
    assert other.judicators() == {}


def test_a_registration_that_is_not_revoked_outlives_its_keeper_by_its_time(
    connect_member: Connect,
) -> None:
    registry, other = connect_member(), connect_member()
    lease = registry.register("member/n1", "h:1", ttl_s=3)
    assert lease.wait(20)
    lease.close(revoke=False)
    assert other.get("member/n1") == "h:1"
    wait_until(lambda: other.get("member/n1") is None, 20, "the end of the lease")


def test_a_lease_that_etcd_dropped_is_granted_again_with_its_key(
    connect: Connect, etcd: servers.Etcd
) -> None:
    registry = connect()
    lease = registry.register("member/n1", "h:1", ttl_s=3)
    assert lease.wait(20)
    first = lease.id
    etcd.ctl("lease", "revoke", f"{first:x}")
    wait_until(lambda: lease.id not in (0, first), 20, "a new lease")
    assert registry.get("member/n1") == "h:1"


def test_a_key_of_a_restarted_daemon_does_not_go_with_its_old_lease(
    connect_member: Connect,
) -> None:
    old, new = connect_member(), connect_member()
    lease = old.register("member/n1", "h:1", ttl_s=2)
    assert lease.wait(20)
    lease.close(revoke=False)  # as a killed daemon leaves it
    again = new.register("member/n1", "h:2", ttl_s=30)
    assert again.wait(20)
    end = time.monotonic() + 3.5
    while time.monotonic() < end:
        assert new.get("member/n1") == "h:2"
        time.sleep(0.1)


def test_an_election_has_one_leader_and_hands_over_on_resign_and_on_close(
    connect: Connect,
) -> None:
    heard: list[tuple[str, bool]] = []
    with contextlib.ExitStack() as stack:
        elections = {
            name: stack.enter_context(
                Election(
                    connect(),
                    "judicator/leader",
                    name,
                    ttl_s=3,
                    on_change=lambda leading, name=name: heard.append((name, leading)),
                )
            )
            for name in ("n1", "n2")
        }

        def leader() -> str | None:
            leading = [name for name, election in elections.items() if election.leading]
            assert len(leading) <= 1
            return leading[0] if leading else None

        first = wait_until(leader, 20, "a leader")
        second = {"n1": "n2", "n2": "n1"}[first]
        fence = elections[first].fence
        assert fence > 0
        assert elections[second].fence == 0
        assert elections[second].leader() == first
        elections[first].resign()
        assert not elections[first].leading
        wait_until(lambda: leader() == second, 20, "the other to lead")
        assert elections[second].fence > fence
        wait_until(lambda: (first, False) in heard, 20, "the first to be told")
        elections[second].close()
        assert heard.count((second, False)) == 1
        wait_until(lambda: leader() == first, 20, "the first to lead again")


def test_leadership_passes_on_when_the_leader_falls_silent(connect_member: Connect) -> None:
    silent, other = connect_member(), connect_member()
    held = silent.register("leader", "gone", ttl_s=2)
    assert held.wait(20)
    held.close(revoke=False)  # nobody keeps it any more
    with Election(other, "leader", "n2", ttl_s=2) as election:
        assert not election.leading
        wait_until(lambda: election.leading, 20, "leadership")


def test_a_leader_stops_leading_when_its_key_is_taken_away(
    connect_member: Connect, etcd: servers.Etcd, prefix: str
) -> None:
    with Election(connect_member(), "leader", "n1", ttl_s=5) as election:
        wait_until(lambda: election.leading, 20, "leadership")
        etcd.ctl("put", prefix + "leader", "someone else")
        wait_until(lambda: not election.leading, 20, "the end of leadership")


def test_leases_and_elections_survive_kill_and_return_of_etcd(own_etcd: servers.Etcd) -> None:
    address = parse_address(own_etcd.address)
    with Registry(address) as registry, Election(registry, "leader", "n1", ttl_s=3) as election:
        lease = registry.register("judicator/service/n1", "127.0.0.1:7500", ttl_s=3)
        assert lease.wait(20)
        wait_until(lambda: election.leading, 20, "leadership")
        own_etcd.kill()
        started = time.monotonic()
        with pytest.raises(Unavailable):
            registry.get("x")
        assert time.monotonic() - started < 10
        # By its own clock it must not lead longer than etcd's lease could have lasted.
        wait_until(lambda: not election.leading, 5, "the end of leadership")
        wait_until(lambda: not lease.valid, 20, "the lease to become doubtful")
        own_etcd.start()
        wait_until(lambda: lease.valid, 20, "the lease")
        wait_until(lambda: election.leading, 20, "leadership again")
        assert registry.judicators() == {"n1": "127.0.0.1:7500"}


def test_a_registration_returns_although_etcd_came_back_empty(own_etcd: servers.Etcd) -> None:
    with Registry(parse_address(own_etcd.address)) as registry:
        lease = registry.register("member/n1", "h:1", ttl_s=30)
        assert lease.wait(20)
        own_etcd.kill()
        (own_etcd.directory / "etcd").rename(own_etcd.directory / "lost")
        own_etcd.start()
        other = Registry(parse_address(own_etcd.address))
        wait_until(lambda: other.get("member/n1") == "h:1", 30, "the key")
        other.close()


def test_a_stopped_etcd_costs_a_bounded_time_and_the_lease_returns(
    own_etcd: servers.Etcd,
) -> None:
    with Registry(parse_address(own_etcd.address), timeout_s=1) as registry:
        lease = registry.register("member/n1", "h:1", ttl_s=2)
        assert lease.wait(20)
        assert own_etcd.process is not None
        own_etcd.process.pause()
        started = time.monotonic()
        with pytest.raises(Unavailable, match="no answer in time"):
            registry.ping()
        assert time.monotonic() - started < 8
        wait_until(lambda: not lease.valid, 20, "the lease to become doubtful")
        own_etcd.process.resume()
        wait_until(lambda: lease.valid, 20, "the lease")
        assert registry.get("member/n1") == "h:1"


def test_registering_while_etcd_is_away_takes_effect_when_it_comes() -> None:
    server = servers.Etcd()
    try:
        with Registry(parse_address(server.address)) as registry:
            lease = registry.register("member/n1", "h:1", ttl_s=5)
            assert not lease.wait(0.5)
            server.start()
            assert lease.wait(20)
            assert registry.get("member/n1") == "h:1"
    finally:
        server.close()


def test_with_several_endpoints_a_dead_one_is_passed_over(etcd: servers.Etcd, prefix: str) -> None:
    dead = ("127.0.0.1", servers.free_port())
    with Registry([dead, parse_address(etcd.address)], prefix) as registry:
        registry.put("key", "value")
        assert registry.get("key") == "value"
        lease = registry.register("member/n1", "h:1", ttl_s=3)
        assert lease.wait(20)


def test_closing_while_etcd_is_away_is_quick(own_etcd: servers.Etcd) -> None:
    registry = Registry(parse_address(own_etcd.address), timeout_s=1)
    election = Election(registry, "leader", "n1", ttl_s=5).start()
    lease = registry.register("member/n1", "h:1", ttl_s=5)
    assert lease.wait(20)
    own_etcd.kill()
    started = time.monotonic()
    election.close()
    registry.close()
    assert time.monotonic() - started < 10
    with pytest.raises(Unavailable):
        registry.get("key")
