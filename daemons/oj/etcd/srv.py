"""SRV records, which the C library's resolver does not give out.

One question in one datagram to the name servers of /etc/resolv.conf, and the names and ports of the
answer. Whatever goes wrong counts as 'no such records': the plain addresses of the name are asked
for next.
"""

from __future__ import annotations

import secrets
import socket
import struct
from collections.abc import Sequence
from pathlib import Path

SERVICE = "_oj-etcd._tcp"
RESOLV_CONF = Path("/etc/resolv.conf")
ASK_S = 1.0
MOST_SERVERS = 2
MOST_JUMPS = 20  # of a compressed name; more is a loop

_SRV, _INTERNET = 33, 1
_RECURSE = 0x0100
_HEADER = struct.Struct("!6H")


def find_service(
    name: str, servers: Sequence[tuple[str, int]] | None = None
) -> set[tuple[str, int]]:
    """The hosts and ports of the records _oj-etcd._tcp.NAME; empty when there are none."""
    for server in (read_servers() if servers is None else servers)[:MOST_SERVERS]:
        try:
            return ask(f"{SERVICE}.{name}", server)
        except (OSError, ValueError, IndexError, struct.error):
            continue
    return set()


def read_servers(path: Path = RESOLV_CONF) -> list[tuple[str, int]]:
    try:
        lines = path.read_text().splitlines()
    except OSError:
        return []
    words = [line.split() for line in lines]
    return [(word[1], 53) for word in words if len(word) > 1 and word[0] == "nameserver"]


def ask(name: str, server: tuple[str, int]) -> set[tuple[str, int]]:
    number = secrets.randbelow(1 << 16)
    family = socket.AF_INET6 if ":" in server[0] else socket.AF_INET
    with socket.socket(family, socket.SOCK_DGRAM) as channel:
        channel.settimeout(ASK_S)
        channel.connect(server)  # answers of others do not reach us
        channel.send(write_question(number, name))
        return read_answer(channel.recv(4096), number)


def write_question(number: int, name: str) -> bytes:
    labels = b"".join(
        bytes([len(label)]) + label for label in name.rstrip(".").encode("ascii").split(b".")
    )
    return _HEADER.pack(number, _RECURSE, 1, 0, 0, 0) + labels + struct.pack("!BHH", 0, _SRV, 1)


def read_answer(data: bytes, number: int) -> set[tuple[str, int]]:
    """ValueError, IndexError or struct.error when it is none to our question."""
    found_number, flags, questions, answers, _, _ = _HEADER.unpack_from(data)
    if found_number != number or not flags & 0x8000:
        raise ValueError("not an answer to the question")
    at = _HEADER.size
    for _ in range(questions):
        at = read_name(data, at)[1] + 4
    found = set()
    for _ in range(answers):
        at = read_name(data, at)[1]
        kind, group, _, length = struct.unpack_from("!HHIH", data, at)
        at += 10
        if kind == _SRV and group == _INTERNET:
            port = struct.unpack_from("!H", data, at + 4)[0]
            found.add((read_name(data, at + 6)[0], port))
        at += length
    return found


def read_name(data: bytes, at: int) -> tuple[str, int]:
    """A name, and where it ends; it may go on elsewhere in the message."""
    labels, end = [], 0
    for _ in range(MOST_JUMPS):
        while (size := data[at]) and size < 0xC0:
            labels.append(data[at + 1 : at + 1 + size].decode("ascii"))
            at += 1 + size
        if not size:
            return ".".join(labels), end or at + 1
        end = end or at + 2
        at = (size & 0x3F) << 8 | data[at + 1]
    raise ValueError("a name without an end")
