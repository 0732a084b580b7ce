"""One connection to a judicator: opening it, framing, and telling slow from dead.

Thrift's own framed transport trusts the length that the peer sends and counts
its timeout anew for every byte; this one bounds the frame and keeps one
deadline over a whole call.
"""

from __future__ import annotations

import contextlib
import errno
import os
import selectors
import socket
import struct
import time
from collections import deque
from collections.abc import Callable, Iterable
from io import BytesIO
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException, TException
from thrift.transport.TTransport import CReadableTransport, TTransportBase

from oj.clock import Deadline
from oj.errors import Oversized
from oj.rpc import Judicator

Address = tuple[str, int]

FRAME_BYTES = 16 << 20
RECEIVE_BYTES = 64 << 10
CONTAINER_ITEMS = 1 << 20
CONNECT_S = 1.0
STAGGER_S = 0.2  # the head start of each address before the next is tried beside it
SEND_S = 10.0
# Silence after which a judicator is asked whether it lives, in a call that is answered at once and
# in one that is meant to wait (there may be 500 of us), and how long it may take to say so:
# together less than the two seconds in which a client has to be somewhere else.
QUIET_S = 0.8
PARKED_QUIET_S = 1.0
PROBE_S = 0.6
# The same when there is no other judicator to go to: rather believe that this one is busy.
ALONE_PROBE_S = 5.0
# The kernel gives a host up that acknowledges nothing for this long.
USER_TIMEOUT_MS = 1500

# What may go wrong with a connection, in whatever layer it shows.
BROKEN = (OSError, EOFError, TException)
# What Thrift's decoder raises besides, when the peer's answer makes no sense.
_RUBBISH = (ValueError, TypeError, OverflowError, MemoryError, SystemError)


class Link(TTransportBase, CReadableTransport):
    """A connection that carries whole frames, within the deadline that is set."""

    def __init__(self, sock: socket.socket, address: Address) -> None:
        self.address = address
        self.names: set[Address] = {address, sock.getpeername()[:2]}
        self.used = False  # an answer came over it
        self.answered_s = time.monotonic()  # the last time, or when it was opened
        self.lived_s = 0.0  # when it last told that it lives, while it kept a call waiting
        self.deadline = Deadline(CONNECT_S)
        self.quiet_s: float | None = QUIET_S
        self.patience_s = PROBE_S
        self._peer: Address = sock.getpeername()[:2]
        self._probe: Link | None = None
        self._sock = sock
        self._in = BytesIO()
        self._out = BytesIO()
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        # A host that lost its power, or its network, sends nothing any more: the kernel asks each
        # second, and notices at the second time.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, USER_TIMEOUT_MS)
        self._client = Judicator.Client(
            TBinaryProtocolAccelerated(
                self,
                True,
                string_length_limit=FRAME_BYTES,
                container_length_limit=CONTAINER_ITEMS,
            )
        )

    def call(self, method: str, *arguments: Any) -> Any:
        """One call and its answer; raises BROKEN, or an exception of the IDL."""
        getattr(self._client, f"send_{method}")(*arguments)
        try:
            return getattr(self._client, f"recv_{method}")()
        except _RUBBISH as error:
            raise ConnectionError(f"sent rubbish ({error})") from None

    def close(self) -> None:
        self._sock.close()
        self._close_probe()

    def interrupt(self) -> None:
        """Ends the call that another thread is waiting in."""
        with contextlib.suppress(OSError):  # it is closed already
            self._sock.shutdown(socket.SHUT_RDWR)

    def write(self, data: bytes) -> None:
        self._out.write(data)

    def flush(self) -> None:
        body = self._out.getvalue()
        self._out = BytesIO()
        if len(body) > FRAME_BYTES:
            raise Oversized(f"the request is larger than {FRAME_BYTES} bytes", FRAME_BYTES)
        self._sock.settimeout(self.deadline.cap(SEND_S))
        self._sock.sendall(struct.pack("!I", len(body)) + body)

    def read(self, size: int) -> bytes:
        data = self._in.read(size)
        if not data and size:
            self._in = BytesIO(self._read_frame())
            data = self._in.read(size)
        return data

    def _read_frame(self) -> bytes:
        # An answer mostly comes in one piece, with its length: one look at the socket.
        data = self._receive()
        while len(data) < 4:
            data += self._receive()
        (size,) = struct.unpack_from("!I", data)
        if not 0 < size <= FRAME_BYTES:
            raise ConnectionError("sent a frame of a wrong size")
        while len(data) < 4 + size:
            data += self._receive()
        if len(data) > 4 + size:
            raise ConnectionError("sent more than an answer")
        return bytes(memoryview(data)[4:])

    def _receive(self) -> bytearray:
        while True:
            quiet_s = self.quiet_s if self.quiet_s is not None else self.deadline.left_s
            self._sock.settimeout(self.deadline.cap(quiet_s))
            try:
                piece = self._sock.recv(RECEIVE_BYTES)
            except TimeoutError:
                if self.deadline.expired:
                    raise TimeoutError(errno.ETIMEDOUT, "no answer in time") from None
                if not self._lives():
                    raise TimeoutError(errno.ETIMEDOUT, "hangs") from None
                self.lived_s = time.monotonic()
                continue
            if not piece:
                raise ConnectionResetError(errno.ECONNRESET, "closed the connection")
            return bytearray(piece)

    def _lives(self) -> bool:
        """Whether the judicator at the other end still answers anything at all.

        A process that is stopped keeps its connections, and the kernel accepts new
        ones for it; only an answer tells it from one that is just slow. The second
        connection on which it is asked stays: asking again is cheap for both.
        """
        deadline = Deadline(self.deadline.cap(self.patience_s))
        for _ in range(2):
            kept = self._probe is not None
            try:
                if self._probe is None:
                    self._probe = connect([self._peer], deadline, lambda *_: None)
                self._probe.deadline, self._probe.quiet_s = deadline, None
                self._probe.call("version")
                return True
            except BROKEN:
                self._close_probe()
                if not kept or deadline.expired:
                    return False  # else it was closed as an idle one
        return False

    def _close_probe(self) -> None:
        if self._probe is not None:
            self._probe.close()
            self._probe = None

    @property
    def cstringio_buf(self) -> BytesIO:
        return self._in

    def cstringio_refill(self, partial: bytes, size: int) -> BytesIO:
        # One frame is one message: nothing may reach past its end.
        raise EOFError("sent a message that is cut short")


def connect(
    addresses: Iterable[Address], deadline: Deadline, failed: Callable[[Address, OSError], None]
) -> Link:
    """The first that accepts: tried in order, each a moment after the one before,
    so that hosts that do not even refuse cost no full timeout each."""
    queue: deque[tuple[Address, tuple[int, Any] | None]] = deque((a, None) for a in addresses)
    begun: dict[socket.socket, Address] = {}
    next_at = 0.0
    with selectors.DefaultSelector() as ready:
        try:
            while queue or begun:
                if queue and (not begun or time.monotonic() >= next_at):
                    address, spot = queue.popleft()
                    try:
                        if spot is None:
                            found = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
                            queue.extendleft((address, (f[0], f[4])) for f in reversed(found))
                            continue
                        sock = _begin(*spot)
                    except OSError as error:
                        failed(address, error)
                        continue
                    begun[sock] = address
                    ready.register(sock, selectors.EVENT_WRITE)
                    next_at = time.monotonic() + STAGGER_S
                elif deadline.expired:
                    break
                else:
                    pause_s = next_at - time.monotonic() if queue else deadline.left_s
                    for key, _ in ready.select(deadline.cap(max(0.0, pause_s))):
                        assert isinstance(key.fileobj, socket.socket)
                        sock = key.fileobj
                        ready.unregister(sock)
                        address = begun.pop(sock)
                        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
                        if code == 0:
                            return Link(sock, address)
                        sock.close()
                        failed(address, OSError(code, os.strerror(code)))
                        next_at = 0.0
            for address in begun.values():
                failed(address, TimeoutError(errno.ETIMEDOUT, "no answer in time"))
        finally:
            for sock in begun:
                sock.close()
    raise ConnectionError("no judicator accepts a connection")


def open_from(source: str, address: Address, deadline: Deadline) -> Link:
    """A connection that comes from this address of the machine; from any when it is empty, or
    where it is no address of the other end's family."""
    failure: OSError | None = None
    for family, kind, protocol, _, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        sock = socket.socket(family, kind, protocol)
        try:
            sock.settimeout(deadline.cap(CONNECT_S))
            if source and (":" in source) == (family == socket.AF_INET6):
                sock.bind((source, 0))
            sock.connect(place)
        except OSError as error:
            failure = error
            sock.close()
            continue
        link = Link(sock, address)
        link.deadline, link.quiet_s = deadline, None
        return link
    raise failure or OSError(f"{address[0]} has no address")


def is_unknown_call(error: BaseException) -> bool:
    """Whether a judicator has answered that it is older than the call."""
    return (
        isinstance(error, TApplicationException)
        and error.type == TApplicationException.UNKNOWN_METHOD
    )


def _begin(family: int, place: Any) -> socket.socket:
    sock = socket.socket(family, socket.SOCK_STREAM)
    sock.setblocking(False)
    code = sock.connect_ex(place)
    if code not in (0, errno.EINPROGRESS):
        sock.close()
        raise OSError(code, os.strerror(code))
    return sock
