"""Names of nodes: SRV records, a question to a name server and its answer, and addresses."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oj.etcd import srv
from oj.etcd.discovery import Names


def make_answer(question: bytes, records: list[tuple[str, int]]) -> bytes:
    """As a name server would: the question again, then records that point back to its name."""
    number = question[:2]
    out = number + struct.pack("!5H", 0x8180, 1, len(records), 0, 0) + question[12:]
    for host, port in records:
        target = b"".join(bytes([len(x)]) + x.encode() for x in host.split("."))
        # The last label is that of the question: _oj-etcd._tcp.example.org, 'org' at byte 34.
        data = struct.pack("!3H", 0, 0, port) + target + b"\xc0\x22"
        out += b"\xc0\x0c" + struct.pack("!HHIH", 33, 1, 60, len(data)) + data
    return out


@contextmanager
def name_server(records: list[tuple[str, int]]) -> Iterator[tuple[str, int]]:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind(("127.0.0.1", 0))

        def serve() -> None:
            question, caller = server.recvfrom(4096)
            assert b"\x08_oj-etcd\x04_tcp\x07example\x03org\x00" in question
            server.sendto(make_answer(question, records), caller)

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield server.getsockname()
        thread.join(10)


def test_the_hosts_and_ports_of_the_service_are_found() -> None:
    with name_server([("n1.example", 7501), ("n2.example", 17501)]) as server:
        assert srv.find_service("example.org", [server]) == {
            ("n1.example.org", 7501),
            ("n2.example.org", 17501),
        }


def test_no_server_and_no_records_are_no_addresses(tmp_path: Path) -> None:
    with name_server([]) as server:
        assert srv.find_service("example.org", [server]) == set()
    assert srv.find_service("example.org", []) == set()
    assert srv.find_service("näme", [("127.0.0.1", 9)]) == set()
    conf = tmp_path / "resolv.conf"
    assert srv.read_servers(conf) == []
    conf.write_text("# here\nsearch example.org\nnameserver 10.0.0.1\nnameserver fd00::1\n")
    assert srv.read_servers(conf) == [("10.0.0.1", 53), ("fd00::1", 53)]


@given(st.binary(max_size=200))
def test_what_is_no_answer_is_refused(data: bytes) -> None:
    with pytest.raises((ValueError, IndexError, struct.error)):
        srv.read_answer(b"\x00\x07\x00\x00" + data, 7)
    with suppress(ValueError, IndexError, struct.error):
        srv.read_answer(b"\x00\x07\x80\x00" + data, 7)


@pytest.mark.parametrize(
    ("names", "listen", "found"),
    [
        ("127.0.0.2 127.0.0.1 ::1", "0.0.0.0", ("127.0.0.1:7501", "127.0.0.2:7501")),
        ("127.0.0.1 ::1", "::", ("[::1]:7501",)),
        ("::1", "0.0.0.0", ("[::1]:7501",)),
        ("127.0.0.1", "::", ("127.0.0.1:7501",)),
        ("127.0.0.1 ::1", "", ("127.0.0.1:7501", "[::1]:7501")),
    ],
)
def test_a_node_that_a_name_has_twice_is_asked_where_it_listens(
    names: str, listen: str, found: tuple[str, ...]
) -> None:
    assert Names(names, 7501, listen).find() == found
