"""The Thrift server: one thread per connection, everything bounded.

A connection's thread reads a frame, has it answered, and sends the answer, one
at a time. Whatever comes in wrong costs that connection and nothing else:
frames are bounded before they are read, a frame that has begun must be complete
in time, idle connections are closed, and large frames share a budget of memory.
Threads are cheap while they wait: a small stack, and no timer of their own.
"""

from __future__ import annotations

import _thread
import contextlib
import logging
import select
import socket
import struct
import threading
import time
from collections.abc import Callable
from io import BytesIO
from typing import Any

from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated
from thrift.Thrift import TApplicationException, TException, TMessageType
from thrift.transport.TTransport import CReadableTransport, TMemoryBuffer, TTransportBase

from oj.errors import Unavailable
from oj.judicator.frames import FRAME_BYTES, MOST_ITEMS, Budget, Malformed, check_message
from oj.judicator.settings import format_address
from oj.redact import say

log = logging.getLogger("oj.judicator.server")

STACK_BYTES = 512 << 10
IDLE_S = 600
FRAME_S = 10
SLOWEST_BYTES_PER_S = 256 << 10
SEND_S = 30
READ_BYTES = 8 << 10  # most calls are smaller and come with one read
LARGE_BYTES = 64 << 10
LARGE_TOTAL_BYTES = 48 << 20
STOP_S = 5.0


class Connection:
    """One peer's connection, used by its own thread."""

    def __init__(self, sock: socket.socket, peer: str, budget: Budget) -> None:
        self.peer = peer
        # What the answer of the call under way wants done if it cannot be sent.
        self.on_undelivered: Callable[[], None] | None = None
        self._sock = sock
        self._buffer = b""
        self._budget = budget
        self._reserved = 0
        self._timeout_s = 0
        sock.settimeout(None)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 5)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 2)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3)
        # The kernel counts the time: a wait in recv is then one system call.
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", SEND_S, 0))
        self._wait_at_most(IDLE_S)

    @property
    def host(self) -> str:
        """The address that the peer has, as it is seen from here."""
        return self.peer.rpartition(":")[0].removeprefix("::ffff:")

    def read_frame(self) -> BytesIO | None:
        """The next frame, or None when the peer is through or has gone silent."""
        if not self._buffer:
            self._wait_at_most(IDLE_S)
            if not self._receive():
                return None
        end_s = time.monotonic() + FRAME_S
        while len(self._buffer) < 4:
            self._wait_until(end_s)
            if not self._receive():
                return None
        size: int = struct.unpack_from("!I", self._buffer)[0]
        if not 0 < size <= FRAME_BYTES:
            raise Malformed(f"a frame of {size} bytes")
        if size > LARGE_BYTES:
            if not self._budget.take(size, FRAME_S):
                raise Malformed("no memory for a large frame just now")
            self._reserved = size
            end_s += size / SLOWEST_BYTES_PER_S
        end = 4 + size
        frame = BytesIO(self._buffer[4:end])
        have, self._buffer = min(size, len(self._buffer) - 4), self._buffer[end:]
        if have == size:
            return frame
        # The rest goes where it belongs, so that a large frame is in memory once.
        frame.seek(size - 1)
        frame.write(b"\0")
        frame.seek(0)
        with frame.getbuffer() as view:
            while have < size:
                self._wait_until(end_s)
                count = self._sock.recv_into(view[have:])
                if not count:
                    return None
                have += count
        return frame

    def _receive(self) -> bool:
        data = self._sock.recv(READ_BYTES)
        self._buffer += data
        return bool(data)

    def _wait_until(self, end_s: float) -> None:
        left_s = end_s - time.monotonic()
        if left_s <= 0:
            raise TimeoutError("the frame did not come to its end")
        self._wait_at_most(max(1, int(left_s)))

    def _wait_at_most(self, seconds: int) -> None:
        if seconds != self._timeout_s:
            self._timeout_s = seconds
            packed = struct.pack("ll", seconds, 0)
            self._sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVTIMEO, packed)

    def release(self) -> None:
        """The frame and its answer are through."""
        if self._reserved:
            self._budget.give(self._reserved)
            self._reserved = 0

    def send_frame(self, body: bytes) -> None:
        try:
            self._sock.sendall(struct.pack("!I", len(body)) + body)
        except OSError:
            if self.on_undelivered:
                self.on_undelivered()
            raise
        finally:
            self.on_undelivered = None

    def stands(self) -> bool:
        """False once the peer has closed; asked while a call of its is parked."""
        try:
            poller = select.poll()
            poller.register(self._sock, select.POLLIN | select.POLLRDHUP)
            for _, events in poller.poll(0):
                if events & (select.POLLRDHUP | select.POLLHUP | select.POLLERR | select.POLLNVAL):
                    return False
        except (OSError, ValueError):
            return False
        return True

    def stop_reading(self) -> None:
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RD)

    def close(self) -> None:
        self.release()
        with contextlib.suppress(OSError):
            self._sock.close()


class FrameTransport(TTransportBase, CReadableTransport):
    """Reads from a frame as it is: Thrift's own TMemoryBuffer starts with a copy of its bytes, and
    that of a large frame would double its memory."""

    def __init__(self, frame: BytesIO) -> None:
        self._frame = frame

    def read(self, size: int) -> bytes:
        return self._frame.read(size)

    # What Thrift's accelerated decoder reads from.

    @property
    def cstringio_buf(self) -> BytesIO:
        return self._frame

    def cstringio_refill(self, partial: bytes, needed: int) -> BytesIO:
        raise EOFError("the frame ends within a value")


class Server:
    """Accepts connections and has their calls answered by a Thrift processor."""

    def __init__(
        self, address: tuple[str, int], processor: Any, current: threading.local, most: int
    ) -> None:
        self._processor = processor
        self._current = current
        self._most = most
        self._budget = Budget(LARGE_TOTAL_BYTES)
        self._lock = threading.Lock()
        self._connections: set[Connection] = set()
        # What `version` answers, after the head: hundreds of executors that wait ask for it each
        # second, to see whether we live.
        self._version = b""
        self._stopping = False
        self._refused_s = 0.0
        family = socket.AF_INET6 if ":" in address[0] else socket.AF_INET
        try:
            self._listener = socket.create_server(address, family=family, backlog=1024)
        except OSError as error:
            # Python's own text goes on to repeat the address.
            why = str(error.strerror or error).partition(" (while")[0]
            raise Unavailable(f"cannot listen on {format_address(*address)}: {why}") from error
        self.port: int = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._accept, name="accept", daemon=True)

    def __enter__(self) -> Server:
        threading.stack_size(STACK_BYTES)
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def full(self) -> bool:
        return len(self._connections) >= self._most

    def stop(self) -> None:
        """Accepts no more, lets calls under way end, for a bounded time."""
        self._stopping = True
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            left = list(self._connections)
        for connection in left:
            connection.stop_reading()
        end_s = time.monotonic() + STOP_S
        while self._connections and time.monotonic() < end_s:
            time.sleep(0.01)
        for connection in left:
            connection.close()

    def _accept(self) -> None:
        while not self._stopping:
            try:
                sock, peer = self._listener.accept()
            except OSError as error:
                if self._stopping:
                    return
                log.warning("cannot accept a connection: %s", error)
                time.sleep(0.1)  # out of file descriptors: they come back
                continue
            try:
                self._start(sock, f"{peer[0]}:{peer[1]}")
            except (OSError, RuntimeError) as error:
                log.warning("cannot serve %s: %s", peer[0], error)
                sock.close()

    def _start(self, sock: socket.socket, peer: str) -> None:
        if self.full:
            sock.close()
            if time.monotonic() - self._refused_s > 10:
                self._refused_s = time.monotonic()
                log.warning("refusing connections: %d are open", self._most)
            return
        connection = Connection(sock, peer, self._budget)
        with self._lock:
            self._connections.add(connection)
        try:
            # Not threading.Thread, whose start() waits until the thread runs.
            _thread.start_new_thread(self._serve, (connection,))
        except RuntimeError:
            self._end(connection)
            raise

    def _end(self, connection: Connection) -> None:
        connection.close()
        with self._lock:
            self._connections.discard(connection)

    def _serve(self, connection: Connection) -> None:
        self._current.connection = connection
        try:
            while not self._stopping:
                frame = connection.read_frame()
                if frame is None:
                    return
                name, number = check_message(frame.getbuffer())
                body, go_on = self._answer(frame, name, number, connection)
                del frame
                connection.send_frame(body)
                connection.release()
                if not go_on:
                    return
        except Malformed as error:
            log.warning("closing the connection of %s: %s", connection.peer, error)
        except OSError as error:
            log.debug("connection of %s ended: %s", connection.peer, error)
        except Exception:
            log.exception("closing the connection of %s", connection.peer)
        finally:
            self._end(connection)

    def _answer(
        self, frame: BytesIO, name: str, number: int, connection: Connection
    ) -> tuple[bytes, bool]:
        """The answer's bytes, and whether the connection may go on."""
        if name == "version" and self._version:
            return pack_reply(name, number, self._version), True
        source = TBinaryProtocolAccelerated(
            FrameTransport(frame),
            True,
            string_length_limit=FRAME_BYTES,
            container_length_limit=MOST_ITEMS,
        )
        out = TMemoryBuffer()
        try:
            self._processor.process(source, TBinaryProtocolAccelerated(out))
        except (TException, EOFError, TypeError, ValueError, OverflowError) as error:
            # The arguments could not be decoded, as errors of the handler stay inside.
            log.warning("%s: cannot read a call of '%s': %s", connection.peer, name, say(error))
            log.debug("where it failed", exc_info=True)
            return _refusal(name, number, f"cannot read the arguments: {say(error)}"), False
        answer = out.getvalue()
        head = pack_reply(name, number, b"")
        if name == "version" and answer.startswith(head):
            self._version = answer[len(head) :]
        return answer, True


def pack_reply(name: str, number: int, rest: bytes) -> bytes:
    """An answer of which all that follows its head is known."""
    head = struct.pack("!II", 0x80010000 | TMessageType.REPLY, len(name))
    return head + name.encode("ascii") + struct.pack("!i", number) + rest


def _refusal(name: str, number: int, message: str) -> bytes:
    out = TMemoryBuffer()
    protocol = TBinaryProtocolAccelerated(out)
    protocol.writeMessageBegin(name, TMessageType.EXCEPTION, number)
    TApplicationException(TApplicationException.PROTOCOL_ERROR, message).write(protocol)
    protocol.writeMessageEnd()
    return bytes(out.getvalue())


def call_version(address: tuple[str, int], timeout_s: float) -> None:
    """Calls `version` over a new connection; raises OSError or Malformed."""
    out = TMemoryBuffer()
    protocol = TBinaryProtocolAccelerated(out)
    protocol.writeMessageBegin("version", TMessageType.CALL, 1)
    protocol.writeByte(0)  # no arguments
    protocol.writeMessageEnd()
    body = out.getvalue()
    with socket.create_connection(address, timeout_s) as sock:
        sock.sendall(struct.pack("!I", len(body)) + body)
        answer = b""
        while len(answer) < 4 or len(answer) < 4 + struct.unpack_from("!I", answer)[0]:
            piece = sock.recv(4096)
            if not piece:
                raise ConnectionResetError("closed the connection")
            answer += piece
    if check_message(answer[4:]) != ("version", 1):
        raise Malformed("answered something else")
