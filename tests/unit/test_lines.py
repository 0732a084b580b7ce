"""Which connections are ended, and that nothing else is touched."""

from __future__ import annotations

import socket
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from oj.judicator.store import lines

FDS = Path("/proc/self/fd")


@pytest.fixture
def listener():
    with socket.create_server(("127.0.0.1", 0)) as found:
        yield found


def test_a_thread_that_waits_for_an_answer_is_woken(listener: socket.socket) -> None:
    address = listener.getsockname()
    with socket.create_connection(address) as client:
        answers: list[bytes] = []
        waiting = threading.Thread(target=lambda: answers.append(client.recv(1)))
        waiting.start()
        assert lines.hang_up(address) == 1
        waiting.join(10)
        assert answers == [b""]


def test_other_connections_and_descriptors_are_left_alone(listener: socket.socket) -> None:
    before = set(FDS.iterdir())
    with (
        socket.create_server(("127.0.0.1", 0)) as elsewhere,
        socket.create_connection(elsewhere.getsockname()) as client,
        Path("/dev/null").open("rb"),
    ):
        # The listener's own end of a connection has the port on this side, not on the other.
        with socket.create_connection(listener.getsockname()), listener.accept()[0] as inside:
            assert lines.hang_up(listener.getsockname()) == 1
            inside.settimeout(5)
            assert inside.recv(1) == b""
        client.sendall(b"x")
        with elsewhere.accept()[0] as other:
            assert other.recv(1) == b"x"
    assert set(FDS.iterdir()) <= before


def test_a_name_that_nobody_knows_ends_nothing() -> None:
    assert lines.hang_up(("no-such-host.invalid", 1)) == 0


def _answer(address: tuple[str, int], elected: int | None, primary: bool = True) -> Any:
    document = {"ismaster": primary} | ({"electionId": elected} if elected is not None else {})
    return SimpleNamespace(connection_id=address, reply=SimpleNamespace(document=document))


def test_only_a_later_election_ends_the_connections_to_the_primary_before(
    listener: socket.socket,
) -> None:
    old, new = listener.getsockname(), ("127.0.0.1", 1)
    watch = lines.Hangup()
    with socket.create_connection(old) as client:
        client.setblocking(False)

        def lives() -> bool:
            try:
                return client.recv(1) != b""
            except BlockingIOError:
                return True

        watch.succeeded(_answer(old, 5))
        watch.succeeded(_answer(old, 5))
        watch.succeeded(_answer(new, None, primary=False))
        watch.succeeded(_answer(new, 4))  # one that was cut off, and does not know
        watch.failed(SimpleNamespace(connection_id=old))  # type: ignore[arg-type]
        assert lives()
        watch.succeeded(_answer(old, 6))
        assert lives()
        watch.succeeded(_answer(new, 7))
        assert not lives()
