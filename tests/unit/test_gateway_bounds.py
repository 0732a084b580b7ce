"""Bounds of the gateway that need no server: JSON before it is parsed, seats, memory, archives."""

from __future__ import annotations

import contextlib
import io
import json
import random
import re
import socket
import subprocess
import threading
import zipfile
from collections import Counter
from collections.abc import Callable
from ipaddress import ip_network
from pathlib import Path

import pytest
from flask import Flask

import servers
from oj import archive
from oj.errors import BadSettings, Oversized, Rejected, Unavailable, UnknownCall
from oj.gateway import bodies, json_bounds
from oj.gateway.addresses import find_client, network_of
from oj.gateway.bodies import GRACE_S, NO_MEMORY, YOUNG_S, BodySeats, Seat
from oj.gateway.ini import (
    BACKLOG,
    CONNECTION_BYTES,
    CONNECTIONS,
    WORKER_BYTES,
    find_backlog,
    worker_bytes,
    write_ini,
)
from oj.gateway.limits import Memory, Seats, Threads, Turns
from oj.gateway.main import OWN_BYTES, find_memory_limit
from oj.gateway.problems import Problem
from oj.gateway.reading import parse_json, read_batch
from oj.gateway.settings import load
from oj.gateway.storage import Storage
from oj.gateway.storage import measure as measure_tasks
from oj.model import Data, File, Step, Task
from oj.model import Test as TestOfTask
from oj.rpc import ttypes as rpc
from oj.settings import parse_size
from servers import wait_until

KB = 1 << 10
MB = 1 << 20


def count(value: object) -> tuple[int, int]:
    """Values and depth of something of JSON, as the bounds count them."""
    if isinstance(value, dict):
        inner = [count(one) for one in value.values()]
    elif isinstance(value, list):
        inner = [count(one) for one in value]
    else:
        return 0, 0
    commas = max(0, len(inner) - 1)
    return 1 + commas + sum(n for n, _ in inner), 1 + max((d for _, d in inner), default=0)


def make_value(random: random.Random, depth: int) -> object:
    kind = random.randrange(6 if depth else 3)
    if kind == 0:
        # What looks like structure, in a string, with every way to escape a quote.
        return "".join(random.choice('[]{},:"\\ aé🙂') for _ in range(random.randrange(40)))
    if kind in (1, 2):
        return random.choice([1, -2.5, True, None])
    inner = [make_value(random, depth - 1) for _ in range(random.randrange(4))]
    if kind == 3:
        return {f'k"{n}\\[': one for n, one in enumerate(inner)}
    return inner


@pytest.mark.parametrize("ascii_only", [True, False])
@pytest.mark.parametrize("chunk_bytes", [1, 2, 3, 7, 64 * KB])
def test_values_and_depth_are_counted_as_a_parser_finds_them(
    chunk_bytes: int, ascii_only: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(json_bounds, "_CHUNK_BYTES", chunk_bytes)
    seeded = random.Random(7)
    for _ in range(200):
        value = make_value(seeded, 5)
        content = json.dumps(value, ensure_ascii=ascii_only).encode()
        values, depth = count(value)
        assert json_bounds.check(content, values, depth) >= values
        if values:
            with pytest.raises(Rejected, match="values"):
                json_bounds.check(content, values - 1, depth)
            with pytest.raises(Rejected, match="nested"):
                json_bounds.check(content, values, depth - 1)


def test_what_is_in_strings_does_not_count() -> None:
    program = json.dumps({"text": "int a[] = {1, 2, 3};\n" * 100_000}).encode()
    assert program.count(b",") > 2 * json_bounds.MOST_VALUES // 3
    json_bounds.check(program, 10, 2)


@pytest.mark.parametrize(
    ("content", "told"),
    [
        (b"[" * 100_000, "nested"),
        (b'{"a":' * 100_000, "nested"),
        (b"[" + b"[]," * 1_000_000 + b"[]]", "values"),
        (b"[" + b"0," * 1_000_000 + b"0]", "values"),
        (b"[" + b'"",' * 1_000_000 + b'""]', "values"),
    ],
    ids=["lists", "objects", "empty lists", "numbers", "texts"],
)
def test_texts_that_cost_more_than_they_look_are_refused(content: bytes, told: str) -> None:
    with pytest.raises(Rejected, match=told):
        json_bounds.check(content)


def test_wide_characters_cost_what_they_take() -> None:
    plain = b'"' + b"a" * KB + b'"'
    assert json_bounds.cost_bytes(plain, 0) == 2 * len(plain)
    wide = plain[:-1] + "é".encode() + b'"'
    assert json_bounds.cost_bytes(wide, 0) == 4 * len(wide)
    astral = plain[:-1] + "🙂".encode() + b'"'
    assert json_bounds.cost_bytes(astral, 0) == 8 * len(astral)


@pytest.mark.parametrize(
    ("place", "most", "make"),
    [
        ("tasks", 1000, lambda items: {"tasks": items}),
        ("tasks[0].tests", 1000, lambda items: {"tasks": [{"tests": items}]}),
        ("tasks[0].source", 256, lambda items: {"tasks": [{"source": items}]}),
        ("tasks[0].data", 256, lambda items: {"tasks": [{"data": items}]}),
        ("tasks[0].tags", 32, lambda items: {"tasks": [{"tags": items}]}),
        (
            "tasks[0].execute.command",
            256,
            lambda items: {"tasks": [{"execute": {"command": items}}]},
        ),
    ],
)
def test_a_list_that_is_too_long_is_not_looked_into(
    place: str, most: int, make: Callable[[list[int]], object]
) -> None:
    for length in (most, most + 1, 100_000):
        with pytest.raises(Rejected) as refused:
            read_batch(make([0] * length))
        # What is wrong with the first of them would be said otherwise.
        if length > most:
            assert refused.value.message == f"{place} has more than {most} entries"
            assert refused.value.field == place
        else:
            assert refused.value.field == f"{place}[0]"


@pytest.mark.parametrize("coding", ["utf-16-le", "utf-16-be", "utf-16", "utf-32-le", "utf-32"])
def test_json_is_utf8_whatever_else_a_parser_takes(coding: str) -> None:
    # The bytes of one letter are a quote and another one, which would hide all that follows.
    content = ('["\u2241",' + "[]," * 50_000 + "[]]").encode(coding)
    with pytest.raises(Rejected):
        parse_json(content)
    with pytest.raises(Rejected, match="JSON"):
        parse_json('{"token": "\u2241"}'.encode(coding))
    assert parse_json('\ufeff{"token": "\u2241"}'.encode()) == {"token": "\u2241"}


def test_what_is_no_json_is_counted_to_where_a_parser_stops() -> None:
    assert json_bounds.check(b"[[]]]" + b"[" * 70_000, most_depth=2) >= 2
    with pytest.raises(Rejected, match="not JSON"):
        parse_json(b"[[]]]" + b"[" * 70_000)


@pytest.mark.parametrize("piece_bytes", [1, 2, 3, 5])
def test_a_backslash_at_the_end_of_a_piece_belongs_to_what_follows(piece_bytes: int) -> None:
    for backslashes in range(9):
        text = b'["' + b"\\" * backslashes + (b'"' if backslashes % 2 else b"") + b'",[[]]]'
        json.loads(text)
        whole = json_bounds.Count()
        for start in range(0, len(text), piece_bytes):
            whole.add(text[start : start + piece_bytes])
        assert whole.values == 4  # a list, a comma, two lists


# -------------------------------------------------------------------- seats


class Wire:
    """A connection that a body comes by, with the end that reads it."""

    def __init__(self) -> None:
        self.near, self.far = socket.socketpair()
        self.number = self.near.fileno()

    def is_cut(self) -> bool:
        """Whether a read on it ends; else there would be nothing to read yet."""
        self.near.setblocking(False)
        try:
            return self.near.recv(1) == b""
        except BlockingIOError:
            return False


def test_who_sends_nothing_loses_the_seat_to_who_comes_next() -> None:
    seats = BodySeats(of_one=2, of_all=4, pace=1000.0)
    wires = [Wire() for _ in range(3)]
    held = [seats.enter("eve", wire.number) for wire in wires]
    assert seats.total == 2
    assert [bool(seat.ended) for seat in held] == [True, False, False]
    assert [wire.is_cut() for wire in wires] == [True, False, False]
    for seat in held:
        seats.leave(seat)
    assert seats.total == 0


def test_a_large_body_is_given_a_moment_to_begin() -> None:
    seats = BodySeats(of_one=1, of_all=2, pace=1e9)
    wires = [Wire(), Wire()]
    first = seats.enter("ann", wires[0].number, 1 << 20)
    assert first.keeps_pace(first.begun_s + YOUNG_S / 2)
    second = seats.enter("ann", wires[1].number, 1 << 20)  # waits for that moment to be over
    assert first.ended and second.begun_s >= first.begun_s + YOUNG_S


def test_what_has_arrived_can_be_read_after_the_seat_was_lost() -> None:
    seats = BodySeats(of_one=1, of_all=2, pace=1e9)
    wire = Wire()
    wire.far.sendall(b"all of it")
    seat = seats.enter("ann", wire.number, 9)
    seats.enter("ann", Wire().number, 9)
    assert seat.ended
    assert wire.near.recv(9) == b"all of it" and wire.near.recv(9) == b""


def test_who_has_many_seats_gives_one_to_who_has_none() -> None:
    seats = BodySeats(of_one=4, of_all=4, pace=1e-9)  # all of them keep this pace
    wires = [Wire() for _ in range(5)]
    held = [seats.enter("eve", wire.number) for wire in wires[:4]]
    for seat in held:
        seat.received = 1
    seats.enter("ann", wires[4].number)
    assert [bool(seat.ended) for seat in held] == [False, False, False, True]


def test_a_log_in_a_packet_behind_its_headers_is_not_called_off() -> None:
    """Beside 400 connections of the same address that come again a second after each answer."""
    free = 104  # threads of each of two processes
    seats = BodySeats(None, lambda: free // 2, 16384.0, 0)
    honest = seats.enter("school", -1, 100)
    hostile = 400 / 2 * 0.15  # that come within 150 ms
    for _ in range(int(hostile)):
        seats.enter("school", -1, 1000).received = 1
    assert not honest.ended


def test_who_has_most_seats_gives_up_the_oldest() -> None:
    """However many log-ins an address begins, it takes the place of its own."""
    seats = BodySeats(None, lambda: 8, 16384.0, 0)
    honest = [seats.enter(client, -1, 100) for client in ("ann", "ben")]
    hostile = [seats.enter("eve", -1, 1000) for _ in range(500)]
    assert not any(seat.ended for seat in honest)
    assert [bool(seat.ended) for seat in hostile] == [True] * 494 + [False] * 6
    # Where nobody has more than others, the oldest gives way.
    others = [seats.enter(f"c{number}", -1, 100) for number in range(5)]
    assert not any(seat.ended for seat in (*honest, *others)) and hostile[-2].ended
    late = seats.enter("c5", -1, 100)
    assert honest[0].ended and not late.ended and not hostile[-1].ended


def test_seats_that_long_requests_need_are_given_back() -> None:
    free = 8
    seats = BodySeats(None, lambda: free, 1e-9, 0)
    held = [seats.enter(f"c{number}", -1, 100) for number in range(8)]
    for seat in held:
        seat.received = 50
    free = 2
    wait_until(lambda: seats.total == 2, 60, "the oldest to be called off")
    assert [bool(seat.ended) for seat in held] == [True] * 6 + [False] * 2


def test_a_request_waits_for_a_seat_where_all_keep_the_pace() -> None:
    seats = BodySeats(of_one=1, of_all=1, pace=1e-9)
    first = seats.enter("ann", -1)
    first.received = 1
    entered = threading.Event()

    def enter() -> None:
        seats.enter("ann", -1)
        entered.set()

    waiter = threading.Thread(target=enter)
    waiter.start()
    wait_until(lambda: seats.waiting == 1, 60, "the second one to wait")
    seats.leave(first)
    waiter.join()
    assert entered.is_set()


def test_a_request_that_finds_no_seat_is_told_to_come_again() -> None:
    seats = BodySeats(of_one=1, of_all=1, pace=1e-9)
    seats.enter("ann", -1).received = 1
    with pytest.raises(Problem) as refused:
        seats.enter("ann", -1)
    assert refused.value.status == 503 and refused.value.headers["Retry-After"]


def test_a_drain_takes_only_what_is_free_and_loses_it_first() -> None:
    seats = BodySeats(of_one=3, of_all=3, pace=1e-9)  # all of them keep this pace
    wires = [Wire() for _ in range(3)]
    held = [seats.enter("ann", wires[0].number, 1 << 20)]
    drains = [seats.enter_to_drain("eve", wire.number, 1 << 20) for wire in wires[1:]]
    for seat in (*held, *drains):
        assert seat is not None
        seat.received = 1 << 19
    # Not for one that would have to wait, whoever has the seats.
    assert seats.enter_to_drain("ben", -1, 1 << 20) is None
    held += [seats.enter("ben", -1), seats.enter("ann", -1)]  # at once
    assert [wire.is_cut() for wire in wires] == [False, True, True]
    assert not any(seat.ended for seat in held)
    assert seats.enter_to_drain("eve", -1, 1 << 20) is None


def test_a_drain_gives_way_to_a_body_of_the_same_client() -> None:
    seats = BodySeats(of_one=1, of_all=3, pace=1e-9)
    drain = seats.enter_to_drain("ann", -1, 1 << 20)
    assert drain is not None and seats.enter_to_drain("ann", -1, 1 << 20) is None
    drain.received = 1 << 19
    body = seats.enter("ann", -1)
    assert drain.ended and not body.ended


def test_nothing_is_drained_while_somebody_waits() -> None:
    seats = BodySeats(of_one=1, of_all=2, pace=1e-9)
    first = seats.enter("ann", -1)
    first.received = 1
    waiter = threading.Thread(target=seats.enter, args=("ann", -1))
    waiter.start()
    wait_until(lambda: seats.waiting == 1, 60, "the second one to wait")
    assert seats.enter_to_drain("eve", -1, 1 << 20) is None
    seats.leave(first)
    waiter.join()


def test_a_body_that_comes_too_slowly_is_called_off() -> None:
    seats = BodySeats(of_one=1, of_all=1, pace=1e9)
    wire = Wire()
    seat = seats.enter("eve", wire.number, grace_s=0.01)
    # A read that waits ends by that: nothing else could end it.
    assert wire.near.recv(1) == b""
    assert seat.ended == "it came too slowly" and seats.total == 0
    seats.leave(seat)  # as its request does, later


@pytest.mark.parametrize("threads", [*range(8, 65), 100, 160, 161, 1023, 1024])
def test_threads_are_left_when_all_seats_are_taken(threads: int, tmp_path: Path) -> None:
    path = tmp_path / "gateway.conf"
    path.write_text(f"threads = {threads}\n")
    found = load(path)
    app = Flask(__name__)
    app.extensions.update({"oj.settings": found, "oj.requests": None})
    bodies.install(app)
    seats: BodySeats = app.extensions["oj.bodies"]
    long: Threads = app.extensions["oj.threads"]
    logins: BodySeats = app.extensions["oj.logins"]
    free = threads - max(1, threads // 10) - seats.most - seats.most_waiting
    for held in range(long.most + 1):
        long.held = held
        assert held + logins.most + logins.most_waiting <= free
        assert logins.most >= max(1, (long.most - held) // 2)
    assert seats.most >= 2 and long.most >= 3


def test_kinds_of_long_requests_share_the_threads() -> None:
    threads = Threads(6)
    streams, waits = Seats("streams", 2, 6, threads, 5), Seats("waits", 2, 2, threads, 5)
    for client in ("a", "b"):
        waits.enter(client)
    with pytest.raises(Problem) as refused:
        waits.enter("c")
    assert refused.value.status == 503
    for client in ("a", "b", "c", "c"):
        streams.enter(client)
    with pytest.raises(Problem) as refused:
        streams.enter("d")  # six of six
    assert refused.value.status == 503
    waits.leave("b")
    streams.enter("b")
    waits.leave("a")
    with pytest.raises(Problem) as refused:
        streams.enter("c")
    assert refused.value.status == 429 and refused.value.headers["Retry-After"] == "5"
    assert streams.total == 5


def test_all_kinds_of_long_requests_of_one_client_leave_threads_for_others() -> None:
    threads = Threads(9)
    kinds = [Seats(kind, 2, 9, threads, 5) for kind in ("streams", "waits", "downloads")]
    entered = []
    for kind in kinds * 2:
        try:
            kind.enter("eve")
            entered.append(kind)
        except Problem as refused:
            assert refused.status == 429 and refused.headers["Retry-After"] == "5"
            assert "you have 3 " in refused.detail
    assert len(entered) == threads.held == 3
    for kind in kinds:
        kind.enter("ann")
    for kind in entered:
        kind.leave("eve")
    assert threads.by_client == {"ann": 3}
    kinds[0].enter("eve")


def test_large_work_of_one_client_waits_for_its_turn() -> None:
    threads = Threads(6)  # two of one client
    turns = Turns("large bodies", 1, threads, 60.0)
    ran: list[str] = []
    release = threading.Event()

    def run(name: str) -> None:
        with turns.take("eve"):
            ran.append(name)
            release.wait()

    runners = [threading.Thread(target=run, args=(str(number),)) for number in range(3)]
    for number, runner in enumerate(runners):
        runner.start()
        wait_until(lambda number=number: len(ran) == 1 and threads.held == number, 60, "a turn")
    with pytest.raises(Problem) as refused, turns.take("eve"):
        pass
    assert refused.value.status == 429 and refused.value.headers["Retry-After"] == "1"
    with turns.take("ann"):
        assert len(ran) == 1
    release.set()
    for runner in runners:
        runner.join()
    assert len(ran) == 3 and threads.held == 0 and not threads.by_client


def test_a_turn_that_does_not_come_is_told_so() -> None:
    threads = Threads(6)
    turns = Turns("large bodies", 1, threads, 0.01)
    with turns.take("eve"), pytest.raises(Problem, match="take too long"), turns.take("eve"):
        pass
    with turns.take("eve"):
        assert threads.held == 0


def test_memory_is_bounded_for_one_and_for_all() -> None:
    memory = Memory(600 * KB, 1000 * KB)
    large = memory.open("eve")
    large.add(10_000 * KB)  # alone it is served, and counts as all that one may have
    assert memory.total_bytes == 600 * KB
    with pytest.raises(Problem) as refused:
        memory.open("eve").add(300 * KB)
    assert refused.value.status == 429
    with pytest.raises(Problem) as refused:
        memory.open("ann").add(500 * KB)
    assert refused.value.status == 503
    memory.open("ann").add(Memory.FREE_BYTES)
    assert memory.total_bytes == 600 * KB
    other = memory.open("ann")
    other.add(300 * KB)
    other.add(-100 * KB)
    large.close()
    assert memory.total_bytes == 0  # the other one is small now
    other.add(200 * KB)
    assert memory.total_bytes == 400 * KB
    other.close()
    assert memory.total_bytes == 0


class Sender:
    """A body that is read in a thread of its own, from a wire, as a request's is."""

    def __init__(self, seats: BodySeats, memory: Memory, client: str, length: int) -> None:
        self.wire = Wire()
        self.bill = memory.open(client)
        self.seat = seats.enter(client, self.wire.number, length)
        self.seat.bill = self.bill
        self.status = 0
        self._seats = seats
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        source = io.BufferedReader(socket.SocketIO(self.wire.near, "r"))
        try:
            bodies._read(self._seats, self.seat, {"wsgi.input": source})
            self.status = 200
        except Problem as problem:
            self.status = problem.status
        finally:
            self.bill.close()
        with contextlib.suppress(OSError):
            # What follows is forgotten, or the connection is closed, as when a request has ended.
            while self.seat.stop_s and self.wire.near.recv(64 * KB):
                pass
            self.wire.near.shutdown(socket.SHUT_RDWR)

    def send(self, amount_bytes: int) -> None:
        sent = self.seat.received + amount_bytes
        with contextlib.suppress(OSError):
            self.wire.far.sendall(bytes(amount_bytes))
        wait_until(lambda: self.seat.received >= sent or bool(self.status), 60, "the body")

    def end(self) -> int:
        self.wire.far.close()
        self._thread.join()
        return self.status


def test_a_body_is_charged_for_what_has_come() -> None:
    memory, seats = Memory(192 * MB, 256 * MB), BodySeats(20, 40, 1e-9)
    slow = [Sender(seats, memory, client, 64 * MB) for client in ("eve", "mal") for _ in range(8)]
    for one in slow:
        one.send(64 * KB)
    assert memory.total_bytes <= 16 * 2 * bodies.AHEAD_BYTES
    honest = Sender(seats, memory, "ann", MB)
    honest.send(MB)
    assert honest.end() == 200
    assert {one.end() for one in slow} == {408}
    assert memory.total_bytes == 0 and seats.total == 0


def test_bodies_that_fill_the_memory_give_way_to_who_holds_less() -> None:
    memory, seats = Memory(24 * MB, 32 * MB), BodySeats(20, 40, 1e-9)
    slow = [Sender(seats, memory, client, 16 * MB) for client in ("eve", "mal") for _ in range(2)]
    for one in slow:
        one.send(3 * MB + 512 * KB)
    assert memory.total_bytes == 32 * MB
    honest = Sender(seats, memory, "ann", 4 * MB)
    honest.send(4 * MB)
    assert honest.end() == 200
    gone = [one for one in slow if one.seat.ended]
    assert len(gone) == 1 and gone[0].end() == 503
    for one in slow:
        one.end()
    assert memory.total_bytes == 0 and seats.total == 0


def test_a_body_at_speed_is_told_to_stop_and_not_cut_off() -> None:
    memory, seats = Memory(24 * MB, 32 * MB), BodySeats(20, 40, 1e-9)
    fast = Sender(seats, memory, "eve", 16 * MB)
    fast.send(3 * MB)
    stopped = seats.give_way(Seat("ann", -1, MB, 0.0, 1.0), 20 * MB, memory, True)
    assert stopped is None  # she has nothing else that could
    with seats._lock:
        seats._call_off(fast.seat, NO_MEMORY)
    with contextlib.suppress(OSError):
        fast.wire.far.sendall(bytes(64 * KB))
    wait_until(lambda: fast.status == 503, 60, "the end of the body")
    assert fast.seat.stop_s and fast.seat.received < 4 * MB
    # What follows can be sent, and is forgotten.
    fast.wire.far.sendall(bytes(4 * MB))
    assert fast.end() == 503


def test_a_body_that_does_not_see_that_it_shall_stop_is_cut_off() -> None:
    memory, seats = Memory(24 * MB, 32 * MB), BodySeats(20, 40, 1e-9)
    stalled = Sender(seats, memory, "eve", 16 * MB)
    stalled.send(3 * MB)
    with seats._lock:
        seats._call_off(stalled.seat, NO_MEMORY)
    # It would wait for what does not come, on a thread that nobody counts.
    wait_until(lambda: stalled.status == 503, 60, "the end of the body")
    assert not stalled.seat.stop_s and seats.total == 0


def test_two_clients_with_large_bodies_do_not_take_turns_in_calling_them_off() -> None:
    memory, seats = Memory(24 * MB, 32 * MB), BodySeats(20, 40, 1e-9)
    memory.open("ben").add(6 * MB)  # by something else than a body
    # All but one MiB has come of it, and the others fill the rest.
    first = Sender(seats, memory, "eve", 8 * MB)
    first.send(7 * MB)
    others = [Sender(seats, memory, "mal", 8 * MB) for _ in range(3)]
    for _ in range(8):
        for one in others:
            if not one.status:
                one.send(MB)
    assert not first.seat.ended
    first.send(MB)
    assert first.end() == 200
    for one in others:
        one.end()
    assert seats.total == 0


def test_half_read_bodies_that_fill_the_memory_do_not_wait_for_each_other() -> None:
    memory, seats = Memory(24 * MB, 32 * MB), BodySeats(20, 40, 1e-9)
    large = [Sender(seats, memory, "ann", 11 * MB) for _ in range(4)]
    for _ in range(11):
        for one in large:
            if not one.status:
                one.send(MB)
    # Those that are ahead get to their end, one in front of the other if need be.
    statuses = Counter(one.end() for one in large)
    assert statuses[200] >= 1 and set(statuses) <= {200, 429, 503}
    assert memory.total_bytes == 0 and seats.total == 0


# ----------------------------------------------------------------- archives


def make_zip(files: int, size_bytes: int) -> bytes:
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w", zipfile.ZIP_DEFLATED) as file:
        for number in range(files):
            file.writestr(f"f{number}", bytes(size_bytes))
    return buffer.getvalue()


def test_archives_that_come_together_share_their_bounds() -> None:
    charged: list[int] = []
    budget = archive.Budget(500 * KB, charged.append, entries=10)
    content = make_zip(2, 100 * KB)
    assert len(archive.unpack(content, "a", budget=budget)) == 2
    assert len(archive.unpack(content, "b", budget=budget)) == 2
    assert sum(charged) == 400 * KB  # what is in hand when they are unpacked
    with pytest.raises(Oversized, match="together unpack to more than") as refused:
        archive.unpack(content, "c", budget=budget)
    assert refused.value.limit_bytes == 500 * KB
    several = archive.Budget(500 * KB, charged.append, entries=10)
    with pytest.raises(Rejected, match="together have more than 10 entries"):
        for _ in range(3):
            archive.unpack(make_zip(4, 1), "d", budget=several)


@pytest.mark.parametrize(
    ("address", "network"),
    [
        ("192.0.2.7", "192.0.2.7"),
        ("2001:db8:1:2:3:4:5:6", "2001:db8:1:2::/64"),
        ("::ffff:192.0.2.7", "::ffff:192.0.2.7"),
        ("no address", "no address"),
    ],
)
def test_a_client_of_ipv6_is_its_network(address: str, network: str) -> None:
    assert network_of(address) == network


@pytest.mark.parametrize(
    ("cgroups", "file", "content", "found"),
    [
        ("0::/a.slice/b.service\n", "a.slice/b.service/memory.max", "1048576\n", 1 << 20),
        ("0::/b.service\n", "b.service/memory.max", "max\n", None),
        ("4:memory:/b\n0::/b\n", "memory/b/memory.limit_in_bytes", "4096\n", 4096),
        ("0::/b.service\n", "other", "", None),
    ],
)
def test_the_units_bound_of_memory_is_found(
    cgroups: str, file: str, content: str, found: int | None, tmp_path: Path
) -> None:
    for path, text in (("proc/self/cgroup", cgroups), (f"sys/fs/cgroup/{file}", content)):
        (tmp_path / path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / path).write_text(text)
    assert find_memory_limit(tmp_path) == found


def test_the_units_bound_is_enough_for_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "gateway.conf"
    path.write_text("")
    settings = load(path)
    unit = (servers.TREE / "units" / "oj-gateway.service").read_text()
    high, most = (
        parse_size(re.search(rf"(?m)^{name}=(\S+)$", unit)[1])
        for name in ("MemoryHigh", "MemoryMax")
    )
    needed = settings.processes * worker_bytes(settings) + OWN_BYTES
    assert needed <= high < most
    # A router that takes more than its part is the largest of all, and the only one that goes.
    assert most - needed + CONNECTIONS * CONNECTION_BYTES > worker_bytes(settings)
    assert "\nOOMPolicy=continue\n" in unit


def test_the_backlog_is_what_the_kernel_takes_at_most(tmp_path: Path) -> None:
    limit = tmp_path / "somaxconn"
    assert find_backlog(limit) == BACKLOG  # hidden, as by the unit: then the kernel bounds it
    for told, found in (("128\n", 128), ("4096\n", BACKLOG), ("", BACKLOG)):
        limit.write_text(told)
        assert find_backlog(limit) == found


def test_the_guide_has_the_bounds_of_the_unit(tmp_path: Path) -> None:
    path = tmp_path / "gateway.conf"
    path.write_text("")
    worker = worker_bytes(load(path)) >> 20
    guide = (servers.TREE / "docs" / "administrator.md").read_text()
    [told] = re.findall(r"The unit bounds the memory of a gateway \((.*?)\)(.*?)\n\n", guide, re.S)
    numbers = [int(number) for number in re.findall(r"(\d+)M\b", " ".join(told))]
    high, most, each, own, rest, less = numbers
    assert each == worker and own << 20 == WORKER_BYTES
    assert rest << 20 >= OWN_BYTES
    unit = (servers.TREE / "units" / "oj-gateway.service").read_text()
    assert f"\nMemoryHigh={high}M\nMemoryMax={most}M\n" in unit
    assert high == 2 * each + rest and most == high + each - less
    # A router that takes more than its part is the largest of all then, whatever `memory` is.
    for one in (each // 2, each, 4 * each):
        free = rest - (OWN_BYTES >> 20) + one - less
        assert free + (CONNECTIONS * CONNECTION_BYTES >> 20) > one


def test_a_read_waits_longer_than_a_body_may_take_to_begin(tmp_path: Path) -> None:
    path = tmp_path / "gateway.conf"
    path.write_text("")
    [timeout] = re.findall(r"(?m)^socket-timeout = (\d+)$", write_ini(load(path), path))
    assert int(timeout) > GRACE_S


def test_rules_for_a_gateways_firewall_load() -> None:
    """What the guide shows, as nft itself reads it."""
    guide = (servers.TREE / "docs" / "administrator.md").read_text()
    [rules] = [one for one in re.findall(r"(?s)```nft\n(.*?)```", guide) if "inet gateway" in one]
    assert "ct count" in rules
    command = ["unshare", "--net", "nft", "--check", "--file", "-"]
    done = subprocess.run(command, input=rules, text=True, capture_output=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("peer", "forwarded", "client"),
    [
        ("198.51.100.1", "203.0.113.9", "198.51.100.1"),  # nobody we were told of
        ("10.0.0.1", "203.0.113.9", "203.0.113.9"),
        ("10.0.0.1", "1.2.3.4, 203.0.113.9", "203.0.113.9"),  # what it was told is not believed
        ("10.0.0.1", "203.0.113.9, 10.0.0.2", "203.0.113.9"),
        ("10.0.0.1", "", "10.0.0.1"),
    ],
)
def test_a_client_is_found_behind_known_proxies_only(
    peer: str, forwarded: str, client: str
) -> None:
    assert find_client(peer, forwarded, [ip_network("10.0.0.0/8")]) == client


# ------------------------------------------------------------------ storage


class Day:
    """A judicator's count of one user, and the calls for it."""

    def __init__(self) -> None:
        self.used = 0
        self.calls = 0

    def store(self, user: str, amount: int, most: int) -> rpc.Quota:
        self.calls += 1
        allowed = self.used + amount <= most
        self.used += amount if allowed else 0
        return rpc.Quota(allowed=allowed, left_bytes=most - self.used, reset_ms=60_000)


def test_small_tasks_share_a_call_and_all_of_the_day_can_be_used() -> None:
    most = 10 << 20
    day, storage = Day(), Storage(most)
    for _ in range(most // 1024):
        storage.charge("ann", 1024, day.store)
    assert day.used == most and day.calls <= 256
    with pytest.raises(Problem) as refused:
        storage.charge("ann", 1, day.store)
    assert refused.value.status == 429 and refused.value.headers["Retry-After"] == "60"
    assert refused.value.more == {"limit_bytes": most, "left_bytes": 0}


def test_what_does_not_fit_takes_nothing_from_what_is_left() -> None:
    day, storage = Day(), Storage(1 << 20)
    storage.charge("ann", 1000, day.store)
    with pytest.raises(Problem):
        storage.charge("ann", 2 << 20, day.store)
    storage.charge("ann", (1 << 20) - 1000, day.store)
    assert day.used == 1 << 20


def test_a_judicator_that_does_not_know_the_call_refuses_nothing() -> None:
    storage, calls = Storage(1000), 0

    def store(user: str, amount: int, most: int) -> rpc.Quota:
        nonlocal calls
        calls += 1
        raise UnknownCall("n1:7500 does not know the call store")

    for _ in range(10):
        storage.charge("ann", 5000, store)
    assert calls == 1


def test_no_other_refusal_lets_everybody_store_what_they_like() -> None:
    day, storage = Day(), Storage(10_000)

    def store(user: str, amount: int, most: int) -> rpc.Quota:
        raise Rejected("user has characters that cannot be printed", "user")

    with pytest.raises(Rejected, match="printed"):
        storage.charge("a\nb", 100, store)
    with pytest.raises(Problem, match="10000"):
        storage.charge("ann", 20_000, day.store)


@pytest.mark.parametrize(
    "failure", [Unavailable("nobody answers"), Rejected("no"), UnknownCall("")]
)
def test_what_was_taken_before_is_kept_when_no_more_can_be_taken(failure: Exception) -> None:
    day, storage = Day(), Storage(1 << 20)
    storage.charge("ann", 1000, day.store)
    left = day.used - 1000

    def store(user: str, amount: int, most: int) -> rpc.Quota:
        raise failure

    with contextlib.suppress(Unavailable, Rejected):
        storage.charge("ann", left + 1, store)
    calls = day.calls
    storage.charge("ann", left, day.store)
    assert day.calls == calls


def test_more_than_judicators_count_is_no_setting(tmp_path: Path) -> None:
    path = tmp_path / "gateway.conf"
    path.write_text("[limits]\nstored = 1024T\n")
    assert load(path).limits.stored_bytes == 1 << 50
    path.write_text("[limits]\nstored = 1025T\n")
    with pytest.raises(BadSettings, match="is more than 1024T"):
        load(path)


def test_all_of_a_task_counts_for_what_is_stored(tmp_path: Path) -> None:
    path = tmp_path / "gateway.conf"
    path.write_text("")
    app = Flask(__name__)
    app.extensions["oj.settings"] = load(path)

    def measure(**what: object) -> int:
        return measure_tasks([Task(user="ann", **what)])["ann"]

    with app.app_context():
        least = measure()
        word = "é" * 1000
        for what in (
            {"compile": Step((word,))},
            {"execute": Step((word,))},
            {"tags": frozenset({word})},
            {"key": word},
            {"webhook": word},
            {"language": word},
            {"tests": (TestOfTask(name=word),)},
            {"source": (File(word, Data(digest="a" * 64)),)},
            {"data": (File(word, Data(digest="a" * 64)),)},
        ):
            assert measure(**what) >= least + 2000, what
        many = tuple(TestOfTask("", Data(digest="a" * 64), Data(digest="b" * 64)) for _ in range(9))
        assert measure(tests=many) >= least + 9 * 128
        assert measure(execute=Step(("\ud800",))) > least
