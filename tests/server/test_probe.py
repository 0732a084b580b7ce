"""The call `probe`: a judicator connects back to whoever asks, and to nobody else."""

from __future__ import annotations

import contextlib
import socket
import threading
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest
from oj import incarnation, model
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.judicator.connect_back import MOST_AT_ONCE, MOST_OF_ONE, Rate
from oj.node import preflight
from oj.node.preflight import Port, Preflight, Target
from oj.rpc import ttypes as rpc

WORD = "a-word-of-this-test"


@contextlib.contextmanager
def listening(said: bytes, host: str = "127.0.0.1") -> Iterator[tuple[int, list[bytes]]]:
    """A port where each caller is told something; and what callers have sent."""
    heard: list[bytes] = []
    threads: list[threading.Thread] = []

    def answer(sock: socket.socket) -> None:
        with sock:
            sock.sendall(said)
            sock.settimeout(20)
            with contextlib.suppress(OSError):
                heard.append(sock.recv(100))

    def accept() -> None:
        with contextlib.suppress(OSError):
            while True:
                sock, _ = server.accept()
                threads.append(threading.Thread(target=answer, args=(sock,)))
                threads[-1].start()

    with socket.create_server((host, 0)) as server:
        acceptor = threading.Thread(target=accept)
        acceptor.start()
        yield server.getsockname()[1], heard
        server.shutdown(socket.SHUT_RDWR)
        acceptor.join()
    for thread in threads:
        thread.join()


def test_what_is_reached_and_whether_it_is_the_caller_is_told(caller: Caller) -> None:
    closed = servers.free_port()
    with (
        listening(WORD.encode()) as (own, heard),
        listening(b"220 somebody else") as (other, _),
        listening(b"") as (silent, heard_there),
    ):
        told = caller.probe([own, other, silent, closed], WORD)
    assert told.address == "127.0.0.1"
    found = {one.port: (one.connected, one.answered) for one in told.ports}
    assert found == {
        own: (True, True),
        other: (True, False),
        silent: (True, False),
        closed: (False, False),
    }
    assert told.ports[3].problem == "connection refused"
    # A service that happens to be there is sent nothing.
    assert (heard, heard_there) == ([b""], [b""])


def test_a_longer_or_shorter_word_is_another_one(caller: Caller) -> None:
    with (
        listening(WORD.encode() + b"!") as (longer, _),
        listening(WORD.encode()[:-1]) as (shorter, _),
    ):
        told = caller.probe([longer, shorter], WORD)
    assert [(one.connected, one.answered) for one in told.ports] == [(True, False)] * 2


def test_only_the_address_of_the_caller_is_tried(judicator: JudicatorUnderTest) -> None:
    with (
        listening(WORD.encode(), "127.0.0.9") as (port, heard),
        contextlib.closing(Caller(judicator.port)) as caller,
    ):
        assert not caller.probe([port], WORD).ports[0].connected
        assert heard == []


def test_the_clock_is_told_without_a_port(caller: Caller) -> None:
    told = caller.probe([], "")
    assert told.ports == [] and told.time > 1_600_000_000_000


@pytest.mark.parametrize(
    ("ports", "word"),
    [
        (list(range(1, model.MAX_PROBES + 2)), WORD),
        ([0], WORD),
        ([65536], WORD),
        ([-1], WORD),
        ([7500], ""),
        ([7500], "x" * 200),
        ([7500], "a\nb"),
    ],
)
def test_what_may_not_be_asked_is_refused(caller: Caller, ports: list[int], word: str) -> None:
    with pytest.raises(rpc.InvalidRequest):
        caller.probe(ports, word)


def test_who_asks_too_often_is_refused_for_a_while(
    start_judicator: Callable[..., JudicatorUnderTest],
) -> None:
    caller = start_judicator().call()
    for _ in range(MOST_OF_ONE):
        caller.probe([], "")
    with pytest.raises(rpc.Unavailable, match="too often"):
        caller.probe([], "")


# --- how often ---------------------------------------------------------------------------------


def test_the_rate_counts_addresses_apart_and_forgets() -> None:
    now = [0.0]
    rate = Rate(lambda: now[0])

    def ask(host: str) -> None:
        with rate.admitted(host):
            pass

    for _ in range(MOST_OF_ONE):
        ask("a")
    with pytest.raises(Unavailable):
        ask("a")
    ask("b")
    now[0] += 61
    ask("a")


def test_few_are_answered_at_the_same_time() -> None:
    rate = Rate()
    with contextlib.ExitStack() as stack:
        for number in range(MOST_AT_ONCE):
            stack.enter_context(rate.admitted(f"h{number}"))
        with pytest.raises(Unavailable, match="busy"), rate.admitted("late"):
            pass
    with rate.admitted("late"):
        pass


# --- as `oj setup` uses it -----------------------------------------------------------------------


def make_preflight(judicator: JudicatorUnderTest, **fields: Any) -> Preflight:
    fields.setdefault("judicators", (("j1", ("127.0.0.1", judicator.port)),))
    return Preflight(joins=True, member=True, address="127.0.0.3", source="127.0.0.3", **fields)


def test_setup_is_reached_on_ports_where_nothing_runs_yet(judicator: JudicatorUnderTest) -> None:
    ports = tuple(Port(servers.free_port(), what, what) for what in ("judicator", "mongod"))
    seen = make_preflight(judicator, ports=ports).look(Deadline(30))
    (heard,) = seen.heard
    assert (heard.problem, heard.seen_as, heard.closed, heard.strange) == ("", "127.0.0.3", (), ())
    assert abs(heard.behind_s) < preflight.TOLD_S
    assert preflight.judge(seen) == preflight.Judgement((), ())


def test_setup_hears_of_ports_that_are_closed(judicator: JudicatorUnderTest) -> None:
    port = Port(servers.free_port(), "mongod", "mongodb")
    seen = make_preflight(judicator, ports=(port,)).look(Deadline(30), listen=False)
    assert seen.heard[0].closed == ((port, "connection refused"),)


def test_what_a_judicator_finds_at_another_address_is_no_hindrance(
    judicator: JudicatorUnderTest,
) -> None:
    port = Port(servers.free_port(), "mongod", "mongodb")
    trial = replace(make_preflight(judicator, ports=(port,)), source="127.0.0.4")
    judged = preflight.judge(trial.look(Deadline(30), listen=False))
    assert judged.refusals == ()
    assert "j1 sees this node at 127.0.0.4, not at 127.0.0.3" in judged.notes[0]
    assert f"{port}: connection refused" in judged.notes[0]


def test_setup_knows_what_else_answers_in_its_place(judicator: JudicatorUnderTest) -> None:
    with listening(b"hello", "127.0.0.3") as (number, _):
        port = Port(number, "mongod", "mongodb")
        trial = make_preflight(judicator, ports=(port,))
        # Its own daemon, which runs already, does so rightly; another program does not.
        assert trial.look(Deadline(30)).taken == (port,)
        seen = replace(trial, held=frozenset({number})).look(Deadline(30))
        assert (seen.taken, seen.heard[0].strange, seen.heard[0].closed) == ((), (), ())


def test_something_else_in_the_place_of_a_port_that_was_free_is_noticed(
    judicator: JudicatorUnderTest,
) -> None:
    # As another machine at the address would: it answers where nothing listens here.
    with listening(b"hello", "127.0.0.3") as (number, _):
        free = Port(servers.free_port(), "judicator", "judicator")
        there = Port(number, "mongod", "mongodb")
        with preflight.Listeners("127.0.0.3", [free], WORD) as listeners:
            j1 = ("j1", ("127.0.0.1", judicator.port))
            said = preflight._ask(j1, "127.0.0.3", [free, there], WORD, listeners, Deadline(30))
    assert (said.problem, said.closed, said.strange) == ("", (), (there,))


def test_a_setup_that_is_late_does_not_blame_the_daemons_of_its_own_machine(
    judicator: JudicatorUnderTest,
) -> None:
    with listening(b"", "127.0.0.3") as (number, _):
        port = Port(number, "mongod", "mongodb")
        seen = make_preflight(judicator, ports=(port,)).look(Deadline(30), listen=False)
    assert (seen.heard[0].problem, seen.heard[0].strange) == ("", ())
    # No false cause, and so the ports that must be open are told.
    assert preflight.judge(seen).refusals == ()


def test_setup_finds_living_executors_of_its_name(
    judicator: JudicatorUnderTest, tmp_path: Path
) -> None:
    place, wiped = tmp_path / "installation", tmp_path / "none"
    own = FakeExecutor(judicator.port, "a-name", installation=incarnation.keep_installation(place))
    other = FakeExecutor(judicator.port, "a-name-in-use")  # as of 0.1.0: no installation is known
    try:
        for executor in (own, other):
            executor.report(vacant=0)

        def refusals(name: str, installation: Path) -> tuple[str, ...]:
            trial = make_preflight(judicator, executor=name, installation=installation)
            return preflight.judge(trial.look(Deadline(30))).refusals

        for installation in (place, wiped):
            (told,) = refusals("a-name-in-use", installation)
            assert "an executor a-name-in-use that lives" in told
        # Its own name stays this machine's, whichever judicators its files know.
        assert refusals("a-name", place) == ()
        (told,) = refusals("a-name", wiped)
        assert "wait half a minute if it was just stopped" in told
        # A copy of the machine has its installation, and another address.
        trial = make_preflight(judicator, executor="a-name", installation=place)
        copied = replace(trial, member=False).look(Deadline(30))
        assert "an executor a-name that lives" in preflight.judge(copied).refusals[0]
        same = replace(trial, member=False, source="127.0.0.1").look(Deadline(30))
        assert preflight.judge(same).refusals == ()
    finally:
        own.close()
        other.close()


def test_setup_finds_a_port_that_it_does_not_reach(judicator: JudicatorUnderTest) -> None:
    target = Target("j1", ("127.0.0.1", servers.free_port()), "mongod")
    seen = make_preflight(judicator, targets=(target,)).look(Deadline(30))
    assert seen.unreached == ((target, preflight.REFUSED),)


def test_setup_reaches_judicators_of_the_other_family(
    start_judicator: Callable[..., JudicatorUnderTest],
) -> None:
    """A node with an IPv4 address connects to one that is registered with an IPv6 one."""
    judicator = start_judicator(host="[::1]")
    there = ("::1", judicator.port)
    trial = make_preflight(
        judicator, targets=(Target("j1", there, "judicator"),), judicators=(("j1", there),)
    )
    seen = trial.look(Deadline(30))
    assert seen.unreached == ()
    assert (seen.heard[0].problem, seen.heard[0].seen_as) == ("", "::1")
    assert preflight.judge(seen).refusals == ()


def test_after_its_time_setup_does_not_try_from_an_address_of_another_machine(
    judicator: JudicatorUnderTest,
) -> None:
    """Behind a translation one to one; nothing listens then that could tell by not being able."""
    port = Port(servers.free_port(), "mongod", "mongodb")
    target = Target("j1", ("127.0.0.1", judicator.port), "judicator")
    trial = make_preflight(judicator, ports=(port,), targets=(target,))
    trial = replace(trial, address="192.0.2.9", source="192.0.2.9")
    for listen in (True, False):
        seen = trial.look(Deadline(30), listen=listen)
        assert (seen.unreached, seen.heard[0].problem, seen.heard[0].closed) == ((), "", ())
        judged = preflight.judge(seen)
        assert judged.refusals == ()
        (told,) = judged.notes
        assert told.endswith("was not tried: 192.0.2.9 is no address of this machine")


def test_who_cannot_be_asked_is_told_with_the_reason(judicator: JudicatorUnderTest) -> None:
    trial = make_preflight(judicator, judicators=(("j9", ("127.0.0.1", servers.free_port())),))
    assert trial.look(Deadline(30)).heard[0].problem.lower() == preflight.REFUSED


def test_a_port_that_there_was_no_time_for_is_not_blamed_on_a_firewall(
    judicator: JudicatorUnderTest,
) -> None:
    target = Target("j1", ("127.0.0.1", judicator.port), "judicator")
    with pytest.raises(Unavailable, match="before anything is changed: no answer in time"):
        make_preflight(judicator, targets=(target,)).look(Deadline(0))
