#!/usr/bin/python3
"""A name server for machines under test, on the standard library alone.

name_server.py ADDRESS      serves the zone that it reads from standard input, on port 53

The zone is JSON: a name has a list of IPv4 addresses, or of [host, port] as SRV records. Other
kinds of records and other names have none.
"""

import json
import socket
import struct
import sys

A, SRV = 1, 33


def pack(name: str) -> bytes:
    labels = name.rstrip(".").encode().split(b".")
    return b"".join(bytes([len(label)]) + label for label in labels) + b"\0"


def read_question(message: bytes) -> tuple[str, int, bytes]:
    """The name, the kind of record, and the question as it stands there."""
    at, labels = 12, []
    while size := message[at]:
        labels.append(message[at + 1 : at + 1 + size].decode().lower())
        at += 1 + size
    (kind,) = struct.unpack_from("!H", message, at + 1)
    return ".".join(labels), kind, message[12 : at + 5]


def answer(message: bytes, zone: dict[str, list[str | list[str | int]]]) -> bytes:
    name, kind, question = read_question(message)
    records = []
    for entry in zone.get(name, []):
        if kind == A and isinstance(entry, str):
            records.append(socket.inet_aton(entry))
        elif kind == SRV and isinstance(entry, list):
            records.append(struct.pack("!3H", 0, 0, int(entry[1])) + pack(str(entry[0])))
    flags = 0x8580 if name in zone else 0x8583
    out = message[:2] + struct.pack("!5H", flags, 1, len(records), 0, 0) + question
    for data in records:
        out += b"\xc0\x0c" + struct.pack("!HHIH", kind, 1, 1, len(data)) + data
    return out


def main() -> None:
    zone = json.load(sys.stdin)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as server:
        server.bind((sys.argv[1], 53))
        print("serving", flush=True)
        while True:
            message, caller = server.recvfrom(4096)
            server.sendto(answer(message, zone), caller)


if __name__ == "__main__":
    main()
