"""One HTTP server with a token: connections, proxies, repeated requests, typed errors, streams.

Each thread has a connection of its own, which is kept. The token goes to the named server alone:
a redirect is an error, never followed. Certificates are always verified, against the system's
authorities or those of SSL_CERT_FILE. What goes wrong becomes Rejected, Missing, Oversized,
Unavailable or Throttled here and nowhere else.
"""

from __future__ import annotations

import errno
import http.client
import json
import socket
import ssl
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, BinaryIO
from urllib.parse import urlencode

from oj import __version__
from oj.cli.remote.place import proxy_headers, read_url
from oj.clock import Deadline, backoff
from oj.errors import Missing, Oversized, Rejected, Throttled, Unavailable

MOST_BYTES = 256 << 20  # of an answer
PIECE_BYTES = 64 << 10
SILENCE_S = 45.0  # of a stream, whose server says something every 15 s
LINE_BYTES = 1 << 20  # of a stream


@dataclass(frozen=True)
class Answer:
    status: int
    headers: Mapping[str, str]
    body: bytes


@dataclass(frozen=True)
class Sent:
    """An event of a stream."""

    kind: str
    id: str
    data: str


class Server:
    def __init__(self, url: str, token: str, timeout_s: float) -> None:
        self.place = read_url(url)
        self._token = token
        self._timeout_s = timeout_s
        self._threads = threading.local()
        self._tls = ssl.create_default_context() if self.place.secure else None

    def close(self) -> None:
        """Closes this thread's connection."""
        connection = self._kept()
        self._threads.connection = None
        if connection is not None:
            connection.close()

    def _kept(self) -> http.client.HTTPConnection | None:
        """This thread's connection, unless it is closed."""
        found: http.client.HTTPConnection | None = getattr(self._threads, "connection", None)
        return found if found is not None and found.sock is not None else None

    def ask(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, Any] | None = None,
        wait_s: float = 0.0,
        deadline: Deadline | None = None,
        again: bool = True,
    ) -> Any:
        """The JSON that a call answers; a body that is no bytes or file goes as JSON.

        `wait_s`: how long the server may take on purpose. `again`: may be repeated.
        """
        headers = {"Accept": "application/json"}
        if body is not None:
            raw = isinstance(body, bytes) or hasattr(body, "read")
            headers["Content-Type"] = "application/octet-stream" if raw else "application/json"
            body = body if raw else json.dumps(body).encode()
        target = f"{self.place.path}{path}"
        if query:
            target += f"?{urlencode(query, doseq=True)}"
        give_up = deadline or Deadline(self._timeout_s)
        pauses = backoff(0.05, 0.5)
        while True:
            try:
                return self._read(self._try(method, target, body, headers, wait_s, fresh=not again))
            except Throttled:
                raise
            except Unavailable as error:
                pause_s = max(next(pauses), (error.retry_ms or 0) / 1000)
                if not again or give_up.left_s <= pause_s:
                    raise
                time.sleep(pause_s)

    def _try(
        self,
        method: str,
        target: str,
        body: bytes | BinaryIO | None,
        headers: dict[str, str],
        wait_s: float,
        *,
        fresh: bool,
    ) -> Answer:
        """One request. A kept connection that the server has closed meanwhile does not count."""
        if fresh:
            self.close()
        kept = self._kept() is not None
        try:
            return self._send(method, target, body, headers, wait_s)
        except _Lost as error:
            self.close()
            if not kept:
                raise Unavailable(f"{self.place.name}: {error}") from None
        except BaseException:
            # Half a call is in the connection: an answer would reach the wrong caller.
            self.close()
            raise
        return self._try(method, target, body, headers, wait_s, fresh=True)

    def _send(
        self,
        method: str,
        target: str,
        body: bytes | BinaryIO | None,
        headers: dict[str, str],
        wait_s: float,
    ) -> Answer:
        with _network():
            connection = self._open(self._timeout_s + wait_s)
            length = None
            if body is not None and not isinstance(body, bytes):
                length = body.seek(0, 2)
                body.seek(0)
            self._write(connection, method, target, body, length, headers)
            answer = connection.getresponse()
            content = answer.read(MOST_BYTES + 1)
            if answer.will_close or len(content) > MOST_BYTES:
                self.close()
            if len(content) > MOST_BYTES:
                raise Rejected(f"{self.place.name} answers with more than {MOST_BYTES} bytes")
        return Answer(answer.status, _lower(answer.getheaders()), content)

    def _write(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: Any,
        length: int | None,
        headers: Mapping[str, str],
    ) -> None:
        sent = {**self._headers(), **headers}
        if length is not None:
            sent["Content-Length"] = str(length)
        try:
            connection.request(method, self._absolute(target), body, sent)
        except (BrokenPipeError, ConnectionResetError):
            # It may have said no before it had read all; getresponse tells.
            if body is None or connection.sock is None:
                raise

    def _headers(self) -> dict[str, str]:
        headers = {"User-Agent": f"oj/{__version__}"}
        if self._token:
            headers["Authorization"] = f"Bearer {self._token}"
        proxy = self.place.find_proxy()
        if proxy is not None and not self.place.secure:
            headers |= proxy_headers(proxy)
            headers["Host"] = self.place.name
        return headers

    def _absolute(self, target: str) -> str:
        if self.place.find_proxy() is None or self.place.secure:
            return target
        return f"http://{self.place.name}{target}"

    def _open(self, timeout_s: float) -> http.client.HTTPConnection:
        """This thread's connection, or a new one."""
        connection = self._kept()
        if connection is None:
            connection = self._threads.connection = self._make(self._timeout_s)
            connection.connect()
        connection.sock.settimeout(timeout_s)
        return connection

    def _make(self, timeout_s: float) -> http.client.HTTPConnection:
        place, proxy = self.place, self.place.find_proxy()
        host, port = (place.host, place.port) if proxy is None else (proxy.hostname, proxy.port)
        connection: http.client.HTTPConnection
        if self._tls is not None:
            connection = http.client.HTTPSConnection(
                host, port or 80, timeout=timeout_s, context=self._tls
            )
            if proxy is not None:
                connection.set_tunnel(place.host, place.port, proxy_headers(proxy))
        else:
            connection = http.client.HTTPConnection(host, port or 80, timeout=timeout_s)
        return connection

    # -------------------------------------------------------------- answers

    def _read(self, answer: Answer) -> Any:
        if answer.status == 204 or (answer.status < 300 and not answer.body):
            return None
        if 200 <= answer.status < 300:
            try:
                return json.loads(answer.body)
            except (ValueError, RecursionError):
                raise self._no_gateway() from None
        raise self._problem(answer)

    def _no_gateway(self) -> Rejected:
        return Rejected(f"what answers at {self.place.name} is not a gateway of oj", "server")

    def _problem(self, answer: Answer) -> Exception:
        """What an answer that is no success means."""
        status = answer.status
        if 300 <= status < 400:
            where = answer.headers.get("location", "elsewhere")
            return Rejected(
                f"{self.place.name} sends us on to {where[:200]!r}, which the token does not "
                "follow; name that as --server if you trust it"
            )
        problem = _read_problem(answer)
        detail = str(problem.get("detail") or problem.get("title") or f"HTTP status {status}")
        field = problem.get("field") if isinstance(problem.get("field"), str) else None
        retry_ms = _retry_ms(answer.headers.get("retry-after", ""))
        if status == 429:
            when = f"; try again in {retry_ms // 1000} s" if retry_ms else ""
            return Throttled(detail + when, retry_ms)
        if status >= 500 or status == 408:
            return Unavailable(f"{self.place.name}: {detail}", retry_ms)
        if status == 401:
            hint = "" if self._token else " (--token-file FILE, or OJ_TOKEN)"
            return Rejected(detail + hint, "token")
        if status == 413:
            return Oversized(detail, int(problem.get("limit_bytes") or 0), field)
        if not problem:
            return self._no_gateway()
        return (Missing if status == 404 else Rejected)(detail, field)

    # -------------------------------------------------------------- streams

    def stream(self, path: str, last_id: str = "") -> Iterator[Sent]:
        """Server-sent events, on a connection of its own; ends when the server ends it.

        An event without kind and data is a sign of life.
        """
        headers = {"Accept": "text/event-stream"}
        if last_id:
            headers["Last-Event-ID"] = last_id
        with self._receive(path, headers) as (answer, sock):
            if not answer.headers.get("Content-Type", "").startswith("text/event-stream"):
                raise self._no_gateway()
            if sock is not None:
                sock.settimeout(SILENCE_S)
            yield Sent("", last_id, "")
            yield from _read_events(answer)

    def fetch(self, path: str) -> Iterator[bytes]:
        """A download in pieces; Unavailable if it ends too early."""
        with self._receive(path, {}) as (answer, _):
            left = answer.length or 0
            while piece := answer.read(PIECE_BYTES):
                left -= len(piece)
                yield piece
            if left > 0:
                raise ConnectionResetError(errno.ECONNRESET, "the download ended too early")

    @contextmanager
    def _receive(
        self, path: str, headers: Mapping[str, str]
    ) -> Iterator[tuple[http.client.HTTPResponse, socket.socket | None]]:
        """An answer that is read bit by bit, on a connection of its own."""
        try:
            with _network():
                connection = self._make(self._timeout_s)
                try:
                    target = self._absolute(f"{self.place.path}{path}")
                    connection.request("GET", target, headers={**self._headers(), **headers})
                    sock = connection.sock  # the connection lets go of it when it is the last
                    answer = connection.getresponse()
                    if answer.status != 200:
                        body = answer.read(PIECE_BYTES)
                        raise self._problem(
                            Answer(answer.status, _lower(answer.getheaders()), body)
                        )
                    yield answer, sock
                finally:
                    connection.close()
        except _Lost as error:
            raise Unavailable(f"{self.place.name}: {error}") from None


class _Lost(Exception):
    """The connection did not come about, or is gone."""


@contextmanager
def _network() -> Iterator[None]:
    """What http.client and what is below it raise, as _Lost or Rejected."""
    try:
        yield
    except ssl.SSLCertVerificationError as error:
        raise Rejected(
            f"the server's certificate does not hold: {error.verify_message} "
            "(SSL_CERT_FILE names further authorities)"
        ) from None
    except TimeoutError:
        raise _Lost("no answer in time") from None
    except OSError as error:
        raise _Lost(error.strerror or str(error)) from None
    except http.client.HTTPException as error:
        raise _Lost(f"sent no proper answer ({type(error).__name__})") from None


def _read_events(answer: http.client.HTTPResponse) -> Iterator[Sent]:
    kind, last_id, data = "message", "", []  # type: str, str, list[str]
    while True:
        raw = answer.readline(LINE_BYTES)
        if not raw:
            return
        line = raw.decode("utf-8", "replace").rstrip("\r\n")
        if not line:
            if data:
                yield Sent(kind, last_id, "\n".join(data))
            kind, data = "message", []
            continue
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if not name:
            yield Sent("", last_id, "")
        elif name == "event":
            kind = value
        elif name == "id":
            last_id = value
        elif name == "data":
            data.append(value)


def _lower(headers: list[tuple[str, str]]) -> dict[str, str]:
    return {name.lower(): value for name, value in headers}


def _read_problem(answer: Answer) -> dict[str, Any]:
    if "json" not in answer.headers.get("content-type", ""):
        return {}
    try:
        value = json.loads(answer.body)
    except (ValueError, RecursionError):
        return {}
    return value if isinstance(value, dict) else {}


def _retry_ms(text: str) -> int | None:
    return int(text) * 1000 if text.isascii() and text.isdigit() and len(text) < 7 else None
