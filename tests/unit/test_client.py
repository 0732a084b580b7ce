"""What the client decides without a judicator: addresses, blobs, and hostile peers."""

import contextlib
import socket
import struct
import threading
import time

import pytest

from oj import client, model
from oj.calls import BATCH_INLINE_BYTES, choose_blobs
from oj.client import DEAD_S, Channel, Judicators, Places
from oj.clock import Deadline
from oj.errors import Unavailable
from servers import assert_within, wait_until

A, B, C = ("a", 1), ("b", 2), ("c", 3)


def task(*inputs: bytes) -> model.Task:
    return model.Task(
        execute=model.Step(("true",)),
        tests=tuple(model.Test(input=model.Data(inline=content)) for content in inputs),
    )


def test_small_data_stays_inline():
    assert choose_blobs([task(b"x" * model.INLINE_BYTES)]) == []


def test_data_above_the_inline_limit_becomes_a_blob():
    large = b"x" * (model.INLINE_BYTES + 1)
    assert choose_blobs([task(b"small", large)]) == [large]


def test_the_largest_data_become_blobs_until_the_task_fits():
    contents = [bytes([n]) * 60_000 for n in range(20)]
    chosen = choose_blobs([task(*contents, b"small")])
    kept_bytes = sum(len(c) for c in contents if c not in chosen)
    assert b"small" not in chosen
    assert kept_bytes <= model.TASK_INLINE_BYTES < kept_bytes + 60_000 + 5


def test_many_tasks_together_fit_into_one_request():
    tasks = [task(*(struct.pack("!II", n, m) * 5000 for m in range(20))) for n in range(40)]
    chosen = set(choose_blobs(tasks))
    kept = [t.input.inline for each in tasks for t in each.tests if t.input.inline not in chosen]
    assert sum(map(len, kept)) <= BATCH_INLINE_BYTES


def test_addresses_keep_their_order_and_the_one_that_works_comes_first():
    places = Places([A, B, C], None, learn=False)
    assert places.ranked() == [A, B, C]
    places.works(C)
    assert places.ranked() == [C, A, B]


def test_those_that_failed_come_last_the_longest_ago_first():
    places = Places([A, B, C], None, learn=False)
    places.works(A)
    places.fails([A])
    places.fails([B])
    assert places.ranked() == [C, A, B]


def test_etcd_is_asked_only_when_all_that_is_known_has_failed(monkeypatch):
    monkeypatch.setattr(client, "LOOK_S", 60.0)
    asked = []

    def find():
        asked.append(1)
        return [C]

    places = Places([A], find, learn=False)
    assert places.ranked() == [A]
    assert not asked
    places.fails([A])
    wait_until(lambda: places.ranked() == [C, A], 60, "what etcd knows")
    places.fails([C])
    places.ranked()
    assert len(asked) == 1  # not again so soon


def test_nobody_waits_for_etcd_who_knows_an_address():
    answer = threading.Event()

    def find():
        answer.wait(60)
        return [C]

    places = Places([A], find, learn=False)
    places.fails([A])
    assert places.ranked() == [A]
    answer.set()
    wait_until(lambda: places.ranked() == [C, A], 60, "what etcd knows")


def test_without_any_address_etcd_is_waited_for():
    assert Places([], lambda: [C], learn=False).ranked() == [C]


def test_a_failure_of_long_ago_is_no_reason_to_ask_etcd(monkeypatch):
    asked = []
    places = Places([A, B], lambda: asked.append(1) or [C], learn=False)
    now_s = time.monotonic()
    places.fails([A])
    monkeypatch.setattr(client.time, "monotonic", lambda: now_s + DEAD_S + 1)
    places.fails([B])
    assert places.ranked() == [A, B]
    assert not asked


def test_an_etcd_that_is_away_leaves_what_is_known():
    def find():
        raise Unavailable("etcd is away")

    places = Places([A], find, learn=False)
    places.fails([A])
    assert places.ranked() == [A]


def test_a_call_is_not_waited_for_when_another_found_the_judicator_hung(monkeypatch):
    monkeypatch.setattr(client, "QUIET_S", 60.0)  # it would not find out by itself
    ended = []
    with socket.create_server(("127.0.0.1", 0)) as silent:
        places = Places([silent.getsockname()], None, learn=False)
        channel = Channel(places, 60.0)

        def call():
            try:
                channel._call("version", once=True)
            except Unavailable as error:
                ended.append(error)

        waiting = threading.Thread(target=call, daemon=True)
        waiting.start()
        with silent.accept()[0] as connection:
            assert connection.recv(1)
            channel.leave_hung()
            waiting.join(0.2)
            assert not ended  # nobody has found that
            places.fails([silent.getsockname()], hangs=True)
            channel.leave_hung()
            waiting.join(60)
    assert ended


def test_no_address_at_all_is_an_answer():
    with pytest.raises(Unavailable, match="no judicator is known"):
        Judicators([]).ping(Deadline(0.2))


@pytest.fixture
def peer():
    """A peer that answers every connection with the bytes that are put into it."""
    listener = socket.create_server(("127.0.0.1", 0))
    answers = [b""]

    def serve():
        while True:
            try:
                connection, _ = listener.accept()
            except OSError:
                return
            threading.Thread(target=talk, args=(connection,), daemon=True).start()

    def talk(connection):
        with connection, contextlib.suppress(ConnectionResetError):
            while connection.recv(65536):
                if not answers[0]:
                    return
                connection.sendall(answers[0])

    threading.Thread(target=serve, daemon=True).start()
    yield listener.getsockname(), answers
    listener.close()


@pytest.mark.parametrize(
    "answer",
    [
        b"",  # closes
        b"HTTP/1.1 400 Bad Request\r\n\r\n",  # reads as a frame of 1.2 GB
        struct.pack("!I", 0),
        struct.pack("!I", 5) + b"hello",
        struct.pack("!I", 12) + b"\x80\x01\x00\x02" + struct.pack("!Ii", 0x7FFFFFFF, 1),
        # a reply whose list claims two billion entries
        struct.pack("!I", 30)
        + b"\x80\x01\x00\x02\x00\x00\x00\x04ping\x00\x00\x00\x00"
        + b"\x0f\x00\x00\x0b\x7f\xff\xff\xff"
        + b"\x00" * 6,
    ],
    ids=["close", "http", "empty", "rubbish", "long-name", "long-list"],
)
def test_a_peer_that_talks_rubbish_is_unavailable_within_the_deadline(peer, answer):
    address, answers = peer
    answers[0] = answer

    def ask():
        begun = time.monotonic()
        with pytest.raises(Unavailable), Judicators([address], learn=False) as judicators:
            judicators.executors(Deadline(0.5))
        return time.monotonic() - begun

    assert_within(1.5, ask)


def test_a_peer_that_never_answers_costs_no_more_than_the_deadline():
    with socket.create_server(("127.0.0.1", 0)) as deaf:

        def ask():
            begun = time.monotonic()
            with pytest.raises(Unavailable), Judicators([deaf.getsockname()]) as judicators:
                judicators.ping(Deadline(0.4))
            took_s = time.monotonic() - begun
            assert took_s > 0.3
            return took_s

        assert_within(0.8, ask)


def test_a_refused_connection_names_the_address():
    with socket.create_server(("127.0.0.1", 0)) as listener:
        address = listener.getsockname()
    with pytest.raises(Unavailable, match=f"127.0.0.1:{address[1]}: Connection refused"):
        Judicators([address]).ping(Deadline(0.3))


@pytest.mark.parametrize("coming", [False, True])
def test_where_nobody_listens_on_this_machine_waiting_is_for_one_that_comes_up(coming):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = taken.getsockname()[:2]
    asked = []

    def hopeless():
        asked.append(place)
        return not coming or len(asked) > 2

    with (
        Judicators([place], learn=False, timeout_s=30, hopeless=hopeless) as judicators,
        pytest.raises(Unavailable, match="refused"),
    ):
        judicators.ping()
    # At once, or again until there is no hope.
    assert (len(asked) > 1) is coming


def test_no_wait_is_given_up_where_another_may_answer():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        place = taken.getsockname()[:2]
    asked = []
    elsewhere = ("192.0.2.1", 1)  # kept free for documentation
    with (
        Judicators(
            [place, elsewhere], learn=False, timeout_s=0.3, hopeless=lambda: not asked.append(1)
        ) as judicators,
        pytest.raises(Unavailable),
    ):
        judicators.ping()
    assert not asked
