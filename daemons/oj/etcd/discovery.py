"""How nodes find each other through a name, and make one cluster of it.

`discover = NAME` stands in every node's file alike. NAME has the addresses of all nodes that are to
be members, with ports as in this node's file; or records _oj-etcd._tcp.NAME tell hosts and client
ports. A node without data asks them all:

- One of them is a member of a cluster with a majority: join it.
- One of them is a member, but without a majority: wait.
- None is: then a cluster has to be made, by one node alone. Nodes that wait listen on their peer
  port, which etcd does not use yet, and tell each other which addresses they know. The node whose
  address is the smallest makes the cluster, when every other known address has answered that it
  waits, too, and knows the very same addresses. The others join.

Safety is bought with waiting. An address that does not answer may be a member that is cut off from
us, with a cluster that lives; so nobody makes a cluster while one address is silent, nor while two
nodes know different addresses, and the status line says which. A way out for the operator: take
the address out of the name, or write `init = yes` on exactly one node.

Under partition, at the first start: both sides know addresses that are silent, both wait. Later:
members go on with their data, a side without a majority serves nothing, and a node that has lost
its data waits until a majority answers.

A name that grows while nodes start (containers) may show each of two nodes itself alone. Who calls
counts as known, too, so one of them seeing the other is enough. If neither does for SETTLE_S, there
would be two clusters: `expect = N` says how many addresses there have to be at least.
"""

from __future__ import annotations

import contextlib
import http.client
import http.server
import ipaddress
import json
import logging
import socket
import threading
import time
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from urllib.parse import parse_qs, urlencode, urlsplit

from oj.errors import Unavailable
from oj.etcd import argv
from oj.etcd.decisions import Meeting
from oj.etcd.srv import find_service
from oj.settings import parse_address

log = logging.getLogger("oj.etcd")

SETTLE_S = 5.0
ASK_S = 1.0
RESOLVE_S = 3.0
PATH = "/oj/waiting"
LONGEST_ANSWER_BYTES = 64 << 10
MOST_CALLERS = 100


class Names:
    """The addresses behind a name, or several: HOST:PORT as for clients, the smallest first.

    A name that has both kinds of addresses names every node twice. Nodes listen alike, so with
    `listen`, the address on which this one does, those of its kind count, if there are any: of the
    others, where nobody listens, nothing would ever be heard.
    """

    def __init__(self, names: str, port: int, listen: str = "") -> None:
        self._names, self._port = names.split(), port
        self._versions = {6 if ":" in listen else 4} if listen else {4, 6}
        self._found: tuple[str, ...] = ()
        self._thread: threading.Thread | None = None

    def find(self) -> tuple[str, ...]:
        """What was found last, when the name server is slow or silent.

        A resolver without a server takes many seconds, and our caller has a watchdog to feed.
        """
        if self._names:
            if self._thread is None or not self._thread.is_alive():
                self._thread = threading.Thread(target=self._look_up, name="names", daemon=True)
                self._thread.start()
            self._thread.join(RESOLVE_S)
        return self._found

    def _look_up(self) -> None:
        found = {address for name in self._names for address in self._find_one(name)}
        if found:
            self._found = sort({one for one in found if self._is_ours(one)} or found)

    def _is_ours(self, address: str) -> bool:
        host = parse_address(address)[0].partition("%")[0]
        return ipaddress.ip_address(host).version in self._versions

    def _find_one(self, name: str) -> set[str]:
        """By the service's records if there are any, else by the addresses of the name itself."""
        services = set() if argv.is_ip(name) else find_service(name)
        hosts = services or {(name, self._port)}
        return {argv.join_address(ip, port) for host, port in hosts for ip in resolve(host)}


class Lobby:
    """The peer port before etcd has it: where nodes that wait meet, and where members call.

    The members of a cluster keep calling all that they list. A node without data that is called
    so has lost it, whatever its file says, and must not make a cluster of its own.
    """

    def __init__(self, settings: argv.Settings) -> None:
        self._settings = settings
        self._own = own_addresses(settings)
        self._known: tuple[str, ...] = ()
        self._since_s = time.monotonic()
        self.callers: set[str] = set()  # nodes that wait, by their client addresses
        self.members: set[str] = set()  # peer URLs of members that call us
        self._server: http.server.ThreadingHTTPServer | None = None

    def open(self) -> None:
        """Raises Unavailable when the port is taken."""
        if self._server is not None:
            return
        lobby = self

        class Handler(http.server.BaseHTTPRequestHandler):
            timeout = 5.0

            def do_GET(self) -> None:
                lobby.receive(self)

            def do_POST(self) -> None:
                lobby.receive(self)

            def log_message(self, *_: object) -> None:
                """Nothing: members call ten times a second."""

        class Server(http.server.ThreadingHTTPServer):
            address_family = socket.AF_INET6 if ":" in self._settings.peer[0] else socket.AF_INET
            daemon_threads = True
            allow_reuse_address = True

        try:
            self._server = Server(self._settings.peer, Handler)
        except OSError as error:
            where = argv.join_address(*self._settings.peer)
            raise Unavailable(f"cannot listen on {where}: {error.strerror}") from error
        threading.Thread(target=self._server.serve_forever, name="lobby", daemon=True).start()

    def close(self) -> None:
        """Leaves the port to etcd."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None

    def receive(self, request: http.server.BaseHTTPRequestHandler) -> None:
        """Runs on a thread of the server's."""
        url = urlsplit(request.path)
        if request.headers.get("X-Etcd-Cluster-ID"):
            urls = request.headers.get("X-PeerURLs", "").split(",")
            self.members |= {one for one in urls if one}
            request.send_error(503)
            return
        if url.path != PATH:
            request.send_error(404)
            return
        for address in parse_qs(url.query).get("from", []):
            with contextlib.suppress(ValueError):
                parse_address(address)
                if address not in self._own and len(self.callers) < MOST_CALLERS:
                    self.callers.add(address)
        body = json.dumps({"knows": self._known}).encode()
        request.send_response(200)
        request.send_header("Content-Length", str(len(body)))
        request.end_headers()
        request.wfile.write(body)

    def meet(self, found: tuple[str, ...], expected: int) -> Meeting:
        """One round with all that are known by now."""
        known = sort({*found, *self.callers})
        if known != self._known:
            self._known, self._since_s = known, time.monotonic()
        own = next((address for address in known if address in self._own), self._own[0])
        views = self._ask([address for address in known if address not in self._own], own)
        return Meeting(
            own=own,
            known=known,
            views=views,
            unchanged_s=time.monotonic() - self._since_s,
            expected=expected,
            settle_s=SETTLE_S,
        )

    def _ask(self, addresses: list[str], own: str) -> dict[str, tuple[str, ...]]:
        """What those that wait know; nothing of those that do not."""
        if not addresses:
            return {}
        port = self._settings.peer[1]
        with ThreadPoolExecutor(min(len(addresses), 16), "meet") as pool:
            views = pool.map(
                lambda address: ask_waiting(parse_address(address)[0], port, own), addresses
            )
            return {
                address: view
                for address, view in zip(addresses, views, strict=True)
                if view is not None
            }


def ask_waiting(host: str, port: int, own: str) -> tuple[str, ...] | None:
    """The addresses that a waiting node knows; None when there is none that waits."""
    answer = ask_json(host, port, f"{PATH}?{urlencode({'from': own})}")
    if not isinstance(answer, dict) or not isinstance(answer.get("knows"), list):
        return None
    return tuple(str(address) for address in answer["knows"])


def ask_clients(peer_url: str) -> tuple[str, ...]:
    """The client addresses of the members, as a member tells at its peer port."""
    where = urlsplit(peer_url)
    answer = ask_json(where.hostname or "", where.port or 80, "/members")
    if not isinstance(answer, list):
        return ()
    return tuple(
        urlsplit(str(url)).netloc
        for member in answer
        if isinstance(member, dict)
        for url in member.get("clientURLs") or []
    )


def ask_json(host: str, port: int, path: str) -> object:
    page = http.client.HTTPConnection(host, port, timeout=ASK_S)
    try:
        page.request("GET", path)
        answer = page.getresponse()
        return json.loads(answer.read(LONGEST_ANSWER_BYTES)) if answer.status == 200 else None
    except (OSError, http.client.HTTPException, ValueError):
        return None
    finally:
        page.close()


def own_addresses(settings: argv.Settings) -> tuple[str, ...]:
    """This node as others may know it; never empty."""
    host, port = settings.advertise or settings.client[0], settings.client[1]
    hosts = resolve(host) or {host}
    return sort(argv.join_address(one, port) for one in hosts)


def resolve(name: str) -> set[str]:
    """The IP addresses of a host name; none when it has none, or nobody tells."""
    try:
        found = socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError):
        return set()
    return {str(address[0]) for *_, address in found}


def sort(addresses: Iterable[str]) -> tuple[str, ...]:
    """The same order on every node."""

    def key(address: str) -> tuple[int, bytes, int]:
        host, port = parse_address(address)
        with contextlib.suppress(ValueError):
            ip = ipaddress.ip_address(host.partition("%")[0])
            return ip.version, ip.packed, port
        return 0, host.encode(), port

    return tuple(sorted(addresses, key=key))
