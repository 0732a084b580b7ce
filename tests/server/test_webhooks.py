"""Webhooks of slow receivers, and of addresses that stand for others; over real sockets."""

from __future__ import annotations

import contextlib
import ipaddress
import socket
import threading
import time
from collections.abc import Iterator

import pytest

import loopback
import servers
from gateways import Gateway
from oj.gateway.settings import Webhooks
from oj.gateway.webhooks import (
    CALL_S,
    PLACES_OF_ONE,
    Forbidden,
    Places,
    choose_address,
    receiver_of,
)

ANSWER = b"HTTP/1.1 204 No Content\r\nConnection: close\r\n\r\n"
PAUSE_S = 0.2  # between bytes: no wait for one of them lasts long


class Receiver:
    """Takes calls one byte of its answer at a time; `begin` comes first, then `rest` for ever."""

    def __init__(self, begin: bytes = b"", rest: bytes = b"x", *, good: bool = False) -> None:
        self.lasted_s: list[float] = []  # of calls that the gateway ended
        self.most = self.now = self.calls = 0
        self._begin, self._rest, self._good = begin, rest, good
        self._lock = threading.Lock()
        self._socket = socket.create_server(("127.0.0.1", 0), backlog=128)
        self.port = self._socket.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                connection, _ = self._socket.accept()
                threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection: socket.socket) -> None:
        begun_s = time.monotonic()
        with self._lock:
            self.calls += 1
            self.now += 1
            self.most = max(self.most, self.now)
        with contextlib.suppress(OSError), connection:
            if self._good:
                connection.recv(65536)
                connection.sendall(ANSWER)
            else:
                connection.sendall(self._begin)
                while True:
                    connection.sendall(self._rest)
                    time.sleep(PAUSE_S)
        with self._lock:
            self.now -= 1
            self.lasted_s.append(time.monotonic() - begun_s)

    def close(self) -> None:
        self._socket.close()


@pytest.fixture(scope="module")
def cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    with loopback.Cluster(etcd, mongod) as one:
        yield one.start(executors=0)


@pytest.fixture(scope="module")
def gateway(cluster: loopback.Cluster) -> Iterator[Gateway]:
    one = Gateway(cluster.addresses, "[webhooks]\nallow = 127.0.0.0/8")
    yield one
    one.close()


@pytest.fixture
def receivers() -> Iterator[list[Receiver]]:
    made: list[Receiver] = []
    yield made
    for one in made:
        one.close()


def end_tasks(gateway: Gateway, user: str, urls: list[str]) -> list[str]:
    token = gateway.make_token("submit", user=user)
    ids = []
    for url in urls:
        task = {"execute": {"command": ["/bin/true"]}, "webhook": url}
        made = gateway.call("POST", "/api/v1/tasks", task, token=token)
        assert made.status == 201, made.body
        ids.append(made.json["id"])
        gateway.call("POST", f"/api/v1/tasks/{ids[-1]}/cancel", token=token)
    return ids


def test_slow_receivers_are_hung_up_on_and_hold_up_nobody_else(
    gateway: Gateway, receivers: list[Receiver]
) -> None:
    header = b"HTTP/1.1 204 No Content\r\nX: "
    body = b"HTTP/1.1 200 OK\r\nContent-Length: 100000\r\n\r\n"
    hello = b"\x16\x03\x03\x40\x00\x02\x00\x3f\xfc\x03\x03"  # a long TLS record and its beginning
    slow = [Receiver(), Receiver(header), Receiver(body), Receiver(hello)]
    fast = Receiver(good=True)
    receivers += [*slow, fast]
    urls = [f"http{'s' if one is slow[3] else ''}://127.0.0.1:{one.port}/" for one in slow]
    # More than there are places, and due before what somebody else is waiting for.
    end_tasks(gateway, "slow", urls * 12)
    servers.wait_until(lambda: sum(one.now for one in slow) > 0, 30, "a slow call")
    ids = end_tasks(gateway, "fast", [f"http://127.0.0.1:{fast.port}/"] * 10)
    servers.wait_until(lambda: fast.calls == len(ids), 60, "the calls of the other user")
    # Two rounds of the slow user's calls at most: otherwise the others would have waited for all.
    assert sum(len(one.lasted_s) for one in slow) <= 2 * PLACES_OF_ONE

    servers.wait_until(lambda: all(one.lasted_s for one in slow), 120, "an end to each slow call")
    assert max(one.most for one in slow) <= PLACES_OF_ONE
    # The receiver sees it a pause later. Without a deadline it would last for hours.
    assert min(min(one.lasted_s) for one in slow) > CALL_S / 2
    assert max(max(one.lasted_s) for one in slow) < 3 * CALL_S

    log = servers.wait_until(
        lambda: "took longer than 10 s" in (text := gateway.daemon.log()) and text, 30, "the reason"
    )
    assert "Traceback" not in log


PRIVATE = [
    "64:ff9b::10.0.0.1",
    "64:ff9b::169.254.169.254",
    "64:ff9b:1::8.8.8.8",
    "fec0::1",
    "feff::1",
    "fe80::1",
    "fd00::1",
    "::10.0.0.1",
    "::8.8.8.8",
    "::ffff:10.0.0.1",
    "::ffff:0:10.0.0.1",
    "2002:0a00:0001::1",
    "2002:7f00:0001::1",
    "2002:a9fe:a9fe::1",
    "2001:0:0a00:1::f5ff:fffe",
    "2001:0:808:808::f5ff:fffe",
    "2001:db8::1",
    "100::1",
    "4000::1",
    "ff02::1",
    "::",
    "::1",
    "192.88.99.1",
    "100.64.0.1",
    "192.0.0.8",
    "198.18.0.1",
    "240.0.0.1",
    "255.255.255.255",
]
PUBLIC = [
    "8.8.8.8",
    "2606:4700::1111",
    "2001:4860:4860::8888",
    "::ffff:8.8.8.8",
    "64:ff9b::8.8.8.8",
    "2002:808:808::1",
]


@pytest.mark.parametrize("host", PRIVATE)
def test_an_address_that_is_or_means_a_private_one_is_not_called(host: str) -> None:
    with pytest.raises(Forbidden):
        choose_address(host, 80, Webhooks(send=True, allow=()))


@pytest.mark.parametrize("host", PUBLIC)
def test_an_address_that_is_or_means_a_public_one_is_called(host: str) -> None:
    assert ipaddress.ip_address(choose_address(host, 80, Webhooks(send=True, allow=()))) == (
        ipaddress.ip_address(host)
    )


@pytest.mark.parametrize("host", ["10.0.0.1", "::ffff:10.0.0.1", "64:ff9b::10.0.0.1"])
def test_an_allowed_network_may_be_reached_by_nat64_too(host: str) -> None:
    allowed = Webhooks(send=True, allow=(ipaddress.ip_network("10.0.0.0/8"),))
    assert choose_address(host, 80, allowed)


def test_a_user_and_a_receiver_get_a_part_of_the_places() -> None:
    places = Places()
    assert places.look() == (PLACES_OF_ONE, [], [])
    places.take("ann", "http://a")
    assert places.look() == (PLACES_OF_ONE - 1, [], [])
    for number in range(PLACES_OF_ONE - 1):
        places.take("ann", f"http://{number}")
    assert places.look() == (PLACES_OF_ONE - 1, ["ann"], [])
    for user in ("bob", "cid", "dan"):
        places.take(user, "http://a")
    assert places.look() == (PLACES_OF_ONE - 1, ["ann"], ["http://a"])
    for number in range(100, 125):
        places.take(f"user-{number}", f"http://{number}")
    assert places.look()[0] == 0, "all are taken"
    places.give_back("bob", "http://a")
    assert places.look() == (1, ["ann"], [])


def test_a_receiver_is_a_host_with_its_port() -> None:
    assert receiver_of("https://A.example:8443/x/https://b?c") == "https://a.example:8443"
    assert receiver_of("http://a.example") == "http://a.example"
