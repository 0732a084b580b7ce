"""Bodies of requests: read after admission, in time, and only so many at once.

Theory of operation. uWSGI hands a request over when its headers are there; the body comes in while
the application reads, and a thread is held for as long as that takes. So nothing is read before the
guard (auth) has let the request in, and then

- whoever sends a body has a seat: so many of one client, so many of all. A newcomer who finds none
  takes that of one who does not keep the pace, so that whoever sends at once is served beside any
  number of those who do not send. What has arrived by then is read nevertheless: a small body that
  came with its headers loses nothing by losing its seat before the thread got around to read it;
- a seat lasts for a grace of some seconds and for as long as the pace is kept. uWSGI's own timeouts
  are those of one read each, which a byte now and then keeps alive for ever, and a read that waits
  cannot be called off; so one thread looks at the seats and shuts down the reading side of the
  connection of each whose time is up. The read then ends, and the answer can still be written;
- the memory that a body takes is charged to the client a little before it is read (limits.Memory),
  so that what was announced and does not come costs others nothing. Where there is no more of it,
  a body is called off, the one of a client that has most to come (BodySeats.give_way): the others
  get to their end, and a body is never waited for by one that it waits for itself;
- what is not wanted of a body is read nevertheless, and forgotten, so that its client sees why; in
  larger steps and with pauses, which costs a fraction of what it costs to follow the sender. It
  takes only a seat that is free and that nobody waits for, and is the first to lose it.

Log-ins, which anybody may send a body to, have seats of their own. They are as many as half of the
threads that long requests leave at the time, and who comes takes that of the oldest: beside 400
connections that send next to nothing each still has a few hundred milliseconds, in which the body
of an honest log-in comes that is a packet behind its headers.

Behind a web server that holds bodies back until they are whole, as nginx does, all of this costs
nothing and changes nothing.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import Any

from flask import Flask, Response, current_app, g, request

from oj.errors import Oversized
from oj.gateway.addresses import find_client, network_of
from oj.gateway.app import SECURITY_HEADERS, settings
from oj.gateway.limits import Bill, Memory, Seats, Threads
from oj.gateway.problems import Problem, respond, write_body, write_headers

try:
    import uwsgi  # type: ignore[import-untyped]  # there is one only inside uWSGI
except ImportError:
    uwsgi = None

GRACE_S = 10.0
PIECE_BYTES = 16 << 10  # small, so that it is known how much has come
LARGE_PIECE_BYTES = 64 << 10  # when it is known to come
BEGIN_BYTES = 256 << 10
AHEAD_BYTES = 1 << 20  # of what has come, that are charged
STRANGERS_BYTES = 256 << 10  # that are read of who has no token, to tell of the refusal
YOUNG_S = 0.25  # a body of some size is not called slow before that
ROOM_S = 2.0  # that a request waits for a seat, where all keep the pace
STOP_S = 1.0  # for the next piece of a body that is told to stop
DRAIN_S = 2.0
DRAIN_PAUSE_S = 0.002  # 32 MB a second
LOOK_S = 0.25
SMALL_BYTES = 64 << 10  # of calls that take a few words
LOGIN_BYTES = 4 << 10
LOGIN_PATH = "/api/v1/session"
ARRIVED = "oj.body"  # in the environment of a request whose body is there
ARRIVED_BYTES = 8 << 10  # so much has come with the headers
# Larger ones count while they are sent; what the socket to uWSGI's router takes (208 KiB, unless
# net.core.wmem_default is another) holds no thread.
ANSWER_BYTES = 192 << 10
NEEDED = "another request needed its place"
NO_MEMORY = "large requests fill the gateway's memory"


Environ = dict[str, Any]
StartResponse = Callable[..., Any]


@dataclass(eq=False)
class Seat:
    """A body on its way in, which is kept, or forgotten if `drains`."""

    client: str
    connection: int  # the descriptor; -1 where there is none to shut down
    length: int
    begun_s: float
    pace: float  # bytes a second
    received: int = 0
    ended: str = ""  # why it was called off
    grace_s: float = field(default=GRACE_S)
    drains: bool = False
    bill: Bill | None = None  # what it is charged to
    stop_s: float = 0.0  # when it was told to stop at the next piece, rather than cut off

    def is_late(self, now_s: float) -> bool:
        return now_s > self.begun_s + self.grace_s + self.received / self.pace

    def keeps_pace(self, now_s: float) -> bool:
        if self.length > ARRIVED_BYTES and now_s < self.begun_s + YOUNG_S:
            return True  # nobody can have sent it yet
        return self.received >= (now_s - self.begun_s) * self.pace


class BodySeats:
    """Bodies on their way in, and the thread that calls off those that come too slowly."""

    def __init__(
        self,
        of_one: int | None,
        of_all: int | Callable[[], int],
        pace: float,
        waiting: int | None = None,
    ) -> None:
        """`of_all` is asked for where it changes. Without a number one client may have all of
        them; and as many may wait for a seat as there are, without another number."""
        self._of_all = of_all
        self._of_one = of_one
        self._pace = pace
        self.most_waiting = self.most if waiting is None else waiting
        self._lock = threading.Lock()
        self._filled = threading.Condition(self._lock)
        self._freed = threading.Condition(self._lock)
        self._seats: list[Seat] = []  # the oldest first
        self._stopped: list[Seat] = []  # called off, and about to see that
        self._waiting = 0
        self._started = False

    @property
    def most(self) -> int:
        return self._of_all if isinstance(self._of_all, int) else self._of_all()

    @property
    def most_of_one(self) -> int:
        return self.most if self._of_one is None else self._of_one

    @property
    def total(self) -> int:
        return len(self._seats)

    @property
    def waiting(self) -> int:
        return self._waiting

    def enter(
        self, client: str, connection: int, length: int = 0, grace_s: float = GRACE_S
    ) -> Seat:
        with self._lock:
            give_up_s = time.monotonic() + ROOM_S
            while not self._has_room(client, time.monotonic()):
                left_s = give_up_s - time.monotonic()
                if left_s <= 0 or self._waiting >= self.most_waiting:
                    raise Problem(
                        503, "too many bodies are on their way", headers={"Retry-After": "1"}
                    )
                self._waiting += 1
                self._freed.wait(min(left_s, YOUNG_S / 4))
                self._waiting -= 1
            seat = Seat(client, connection, length, time.monotonic(), self._pace, grace_s=grace_s)
            self._add(seat)
        return seat

    def enter_to_drain(self, client: str, connection: int, length: int) -> Seat | None:
        """A seat for a body that is read and forgotten; None if somebody else could need it."""
        with self._lock:
            own = sum(one.client == client for one in self._seats)
            if self._waiting or own >= self.most_of_one or len(self._seats) >= self.most:
                return None
            seat = Seat(client, connection, length, time.monotonic(), self._pace)
            seat.grace_s, seat.drains = DRAIN_S, True
            self._add(seat)
        return seat

    def _add(self, seat: Seat) -> None:
        self._seats.append(seat)
        if not self._started:
            self._started = True
            threading.Thread(target=self._watch, name="bodies", daemon=True).start()
        self._filled.notify()

    def leave(self, seat: Seat) -> None:
        with self._lock:
            for some in (self._seats, self._stopped):
                if seat in some:
                    some.remove(seat)
            self._freed.notify()

    def give_way(self, asker: Seat, amount_bytes: int, memory: Memory, of_own: bool) -> Seat | None:
        """The body that was called off because the asker needs memory: of the client that holds
        most if that is more than twice what the asker's would, else of the asker's own; None if
        the asker has most to come of those.

        Twice, or two clients with large bodies would take turns in calling off what has all but
        come; and who holds two thirds of all has more than one body, of which one is left.
        """
        with self._lock:
            filled = [one for one in self._seats if one.bill is not None and one.bill.held]
            heaviest = asker.client
            if not of_own:
                most = 2 * (memory.held_by(asker.client) + amount_bytes)
                for one in filled:
                    if memory.held_by(one.client) > most:
                        heaviest, most = one.client, memory.held_by(one.client)
            candidates = [one for one in filled if one.client == heaviest and one is not asker]
            if heaviest == asker.client:
                candidates.append(asker)
            gone = max(candidates, key=lambda one: one.length - one.received)
            if gone is asker:
                return None
            self._call_off(gone, NO_MEMORY)
            return gone

    def _has_room(self, client: str, now_s: float) -> bool:
        """Whether there is a seat, if need be that of a drain, of a slow one, or of who has more of
        them."""
        own = [one for one in self._seats if one.client == client]
        if len(own) >= self.most_of_one:
            return self._take_slowest(own, now_s)
        if len(self._seats) < self.most or self._take_slowest(self._seats, now_s):
            return True
        by_client: dict[str, list[Seat]] = {}
        for one in self._seats:
            by_client.setdefault(one.client, []).append(one)
        most = max(by_client.values(), key=len)
        if len(most) <= len(own) + 1:
            return False
        self._call_off(most[-1], NEEDED)
        return True

    def _take_slowest(self, seats: list[Seat], now_s: float) -> bool:
        behind = [one for one in seats if one.drains or not one.keeps_pace(now_s)]
        if behind:
            self._call_off(self._find_first(behind), NEEDED)
        return bool(behind)

    def _find_first(self, seats: list[Seat]) -> Seat:
        """Which is given up: drains first, then one of who has most seats, then the oldest.

        By age alone one address that begins 500 log-ins a second would take all of the others'.
        """
        held = Counter(one.client for one in self._seats)
        return min(seats, key=lambda one: (not one.drains, -held[one.client]))

    def _call_off(self, seat: Seat, why: str) -> None:
        """With the lock held: a seat in the list belongs to a request that still reads.

        Of who sends at speed it stops by itself at the next piece, and what follows may be drained:
        the sender of a connection that is cut off would see that, and not the answer. It is cut
        off nevertheless if the next piece does not come in a moment, and there are few of those:
        a thread is held meanwhile, beside that of who took the seat.
        """
        now_s = time.monotonic()
        stops = not seat.drains and seat.length > ARRIVED_BYTES and seat.keeps_pace(now_s)
        seat.ended = why
        self._seats.remove(seat)
        if stops and len(self._stopped) < max(1, self.most // 4):
            seat.stop_s = now_s
            self._stopped.append(seat)
            self._filled.notify()
        else:
            self._cut(seat)

    def _cut(self, seat: Seat) -> None:
        seat.stop_s = 0.0  # what has arrived is read nevertheless
        if seat.connection < 0:
            return
        with contextlib.suppress(OSError):
            borrowed = socket.socket(fileno=seat.connection)
            try:
                borrowed.shutdown(socket.SHUT_RD)
            finally:
                borrowed.detach()

    def _watch(self) -> None:
        while True:
            with self._filled:
                self._filled.wait_for(lambda: bool(self._seats or self._stopped))
                now_s = time.monotonic()
                for seat in [one for one in self._seats if one.is_late(now_s)]:
                    self._call_off(seat, "it came too slowly")
                for _ in range(len(self._seats) - self.most):
                    self._call_off(self._find_first(self._seats), NEEDED)
                for seat in [one for one in self._stopped if now_s > one.stop_s + STOP_S]:
                    self._stopped.remove(seat)
                    self._cut(seat)
            time.sleep(LOOK_S)


def install(app: Flask) -> None:
    found = app.extensions["oj.settings"]
    memory_bytes = found.limits.memory_bytes
    app.extensions["oj.memory"] = Memory(memory_bytes * 3 // 4, memory_bytes)
    threads = app.extensions["oj.threads"] = Threads(found.long_threads)
    app.extensions["oj.bodies"] = BodySeats(
        min(found.limits.bodies, max(1, found.body_threads // 2)),
        found.body_threads,
        found.limits.pace_bytes,
        found.body_threads - found.login_threads,
    )
    app.extensions["oj.logins"] = BodySeats(
        None,
        lambda: max(found.login_threads, (threads.most - threads.held) // 2),
        found.limits.pace_bytes,
        0,
    )
    app.extensions["oj.downloads"] = Seats(
        "large downloads",
        found.limits.streams,
        found.long_threads // 2,
        app.extensions["oj.threads"],
        5,
    )
    app.wsgi_app = LogInBodies(app)  # type: ignore[method-assign]
    app.after_request(_charge_answer)
    app.after_request(_drain)
    app.teardown_request(_close_bill)


def bill() -> Bill:
    """What the request at hand has taken of memory."""
    if "bill" not in g:
        memory: Memory = current_app.extensions["oj.memory"]
        g.bill = memory.open(g.payer)
    found: Bill = g.bill
    return found


def read_body(
    most_bytes: int | None = None, look: Callable[[bytes], None] = lambda _: None
) -> bytes:
    """The whole body, once; 408 if it does not come in time. `look` is shown each piece as it
    comes, and may refuse it."""
    most_bytes = min(most_bytes or settings().limits.body_bytes, settings().limits.body_bytes)
    length = request.content_length or 0
    if length > most_bytes:
        raise Oversized(f"the body is larger than {most_bytes} bytes", most_bytes)
    if not length:
        return b""
    arrived: bytes | None = request.environ.get(ARRIVED)
    if arrived is not None:
        return arrived
    seats: BodySeats = current_app.extensions["oj.bodies"]
    try:
        g.body = seats.enter(g.payer, _connection(), length)
    except Problem:
        g.no_seat = True  # nor is there one to tell that at leisure
        raise
    g.body.bill = bill()
    return _read(seats, g.body, request.environ, look)


def _read(
    seats: BodySeats, seat: Seat, environ: Environ, look: Callable[[bytes], None] = lambda _: None
) -> bytes:
    source = environ["wsgi.input"]
    pieces = []
    charged = 0
    try:
        # Also when it was called off: what has arrived by then can still be read, without waiting.
        while seat.received < seat.length and not seat.stop_s:
            step = PIECE_BYTES if seat.received < BEGIN_BYTES else LARGE_PIECE_BYTES
            if seat.bill is not None and charged < min(seat.length, seat.received + step):
                more = min(AHEAD_BYTES, seat.length - charged)
                _charge(seats, seat, seat.bill, 2 * more)  # the pieces, and the whole
                charged += more
            piece = source.read(min(step, seat.length - seat.received))
            if not piece:
                break
            seat.received += len(piece)
            look(piece)
            pieces.append(piece)
    except OSError:
        pass  # uWSGI's way to say that nothing came, or that the connection is gone
    finally:
        seats.leave(seat)
    if seat.received < seat.length:
        seat.ended = seat.ended or "it did not come"
        again = {"Retry-After": "2"} if seat.ended == NO_MEMORY else {}
        raise Problem(
            503 if again else 408,
            f"the body of {seat.length} bytes was not read: {seat.ended}",
            headers={"Connection": "close", **again},
        )
    return b"".join(pieces)


def _charge(seats: BodySeats, seat: Seat, owed: Bill, amount_bytes: int) -> None:
    """Takes memory for what comes next of a body, if need be from another one on its way."""
    give_up_s = time.monotonic() + ROOM_S
    gone: Seat | None = None
    while True:
        try:
            owed.add(amount_bytes)
            return
        except Problem as refused:
            if time.monotonic() > give_up_s:
                raise
            if gone is None or gone.bill is None or not gone.bill.held:
                of_own = refused.status == HTTPStatus.TOO_MANY_REQUESTS
                gone = seats.give_way(seat, amount_bytes, owed.memory, of_own)
            if gone is None or seat.ended:
                raise
        owed.memory.wait_for_less(YOUNG_S / 4)


class LogInBodies:
    """In front of the application: has the body of a log-in there before anything else is done.

    It is the one body that is read for whoever sends it, so it has to be cheap not to get it:
    refused here it costs a tenth of what a request costs that goes through all of Flask.
    """

    def __init__(self, app: Flask) -> None:
        self._inner = app.wsgi_app
        self._seats: BodySeats = app.extensions["oj.logins"]
        self._proxies = app.extensions["oj.settings"].access.proxies
        self._count = app.extensions["oj.requests"]

    def __call__(self, environ: Environ, start_response: StartResponse) -> Iterable[bytes]:
        length = environ.get("CONTENT_LENGTH") or ""
        if (
            environ.get("PATH_INFO") == LOGIN_PATH
            and environ["REQUEST_METHOD"] == "POST"
            and length.isascii()
            and length.isdigit()
            and len(length) < 5
            and 0 < int(length) <= LOGIN_BYTES
        ):
            client = find_client(
                environ.get("REMOTE_ADDR", ""),
                environ.get("HTTP_X_FORWARDED_FOR", ""),
                self._proxies,
            )
            try:
                seat = self._seats.enter(network_of(client), _connection(), int(length))
                environ[ARRIVED] = _read(self._seats, seat, environ)
            except Problem as problem:
                self._count.labels(LOGIN_PATH, "POST", str(problem.status)).inc()
                headers = {**SECURITY_HEADERS, **write_headers(problem)}
                status = f"{problem.status} {HTTPStatus(problem.status).phrase}"
                start_response(status, list(headers.items()))
                return [write_body(problem, LOGIN_PATH)]
        return self._inner(environ, start_response)


def _connection() -> int:
    return -1 if uwsgi is None else int(uwsgi.connection_fd())


def _drain(answer: Response) -> Response:
    """Reads and forgets the body of a request that is refused: a client that is still sending when
    the connection is closed would not see why."""
    length = request.content_length or 0
    if "body" in g:
        # Who was cut off sends no more; the others may still be at it.
        length = length - g.body.received if g.body.stop_s or not g.body.ended else 0
    left = min(length, settings().limits.body_bytes if "visitor" in g else STRANGERS_BYTES)
    if answer.status_code < 400 or left <= ARRIVED_BYTES or "payer" not in g or "no_seat" in g:
        return answer
    seats: BodySeats = current_app.extensions["oj.bodies"]
    seat = seats.enter_to_drain(g.payer, _connection(), left)
    if seat is None:
        return answer
    _close_bill(None)  # what was read is forgotten, too
    with contextlib.suppress(OSError):
        try:
            while seat.received < left and not seat.ended:
                piece = request.environ["wsgi.input"].read(
                    min(LARGE_PIECE_BYTES, left - seat.received)
                )
                if not piece:
                    break
                seat.received += len(piece)
                time.sleep(DRAIN_PAUSE_S)
        finally:
            seats.leave(seat)
    return answer


def _charge_answer(answer: Response) -> Response:
    """A large answer holds a thread until the client has taken it, however slowly it does, and its
    memory unless it is read bit by bit. That goes for what is open to everybody as well; the files
    of the page are small enough when they are sent compressed."""
    if "payer" not in g or answer.mimetype == "text/event-stream":
        return answer  # streams have places of their own
    size_bytes = answer.content_length or 0
    if size_bytes <= ANSWER_BYTES:
        return answer
    payer = g.payer
    downloads: Seats = current_app.extensions["oj.downloads"]
    try:
        if not answer.is_streamed:
            bill().add(size_bytes)
        downloads.enter(payer)
    except Problem as problem:
        answer.close()
        return respond(problem)
    answer.call_on_close(lambda: downloads.leave(payer))
    owed: Bill | None = g.pop("bill", None)
    if owed is not None:
        answer.call_on_close(owed.close)
    return answer


def _close_bill(_: BaseException | None) -> None:
    owed: Bill | None = g.pop("bill", None)
    if owed is not None:
        owed.close()
