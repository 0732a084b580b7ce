"""An oj-box that can lose limits: stands between the executor and the real one.

    worn_box.py REAL LOST serve --socket FD ...

The file LOST names limits (cpu wall memory output processes disk), or nothing, or
`failing`. Requests reach the real oj-box with the named limits lifted, so programs really
exceed them, as on a machine whose kernel does not enforce them; while it says `failing`, every
run is answered with a fault.
"""

from __future__ import annotations

import os
import socket
import struct
import subprocess
import sys
import threading
from pathlib import Path

HEAD = struct.Struct("=4sIQIIII6Q")
ANSWER = struct.Struct("=4sIQiiIIiI6Q256s")
RUN, FAILED = 1, 2
NAMES = ("cpu", "wall", "memory", "output", "processes", "disk")
LIFTED = (600_000_000, 600_000_000, 1 << 30, 1 << 28, 10_000, 1 << 28)
MOST_BYTES = 256 << 10


def relay_requests(outer: socket.socket, inner: socket.socket, lost: Path) -> None:
    while True:
        data, fds, _, _ = socket.recv_fds(outer, MOST_BYTES, 16)
        if not data:
            inner.shutdown(socket.SHUT_RDWR)
            return
        words = lost.read_text().split()
        magic, kind, number, *rest = HEAD.unpack_from(data)
        if kind == RUN and "failing" in words:
            fault = b"worn out"
            outer.send(ANSWER.pack(magic, FAILED, number, *[0] * 12, fault))
        else:
            if kind == RUN:
                for index, name in enumerate(NAMES):
                    if name in words:
                        rest[4 + index] = LIFTED[index]
                data = HEAD.pack(magic, kind, number, *rest) + data[HEAD.size :]
            socket.send_fds(inner, [data], fds)
        for fd in fds:
            os.close(fd)


def relay_answers(inner: socket.socket, outer: socket.socket) -> None:
    while data := inner.recv(MOST_BYTES):
        outer.send(data)
    outer.shutdown(socket.SHUT_RDWR)


def main(real: str, lost: Path, arguments: list[str]) -> int:
    place = arguments.index("--socket") + 1
    outer = socket.socket(fileno=int(arguments[place]))
    inner, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    arguments[place] = str(theirs.fileno())
    box = subprocess.Popen([real, *arguments], pass_fds=[theirs.fileno()])
    theirs.close()
    ready, fds, _, _ = socket.recv_fds(inner, MOST_BYTES, 128)
    pairs = [socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET) for _ in fds]
    for fd, (ours, _) in zip(fds, pairs, strict=True):
        slot = socket.socket(fileno=fd)
        for work in ((relay_requests, ours, slot, lost), (relay_answers, slot, ours)):
            threading.Thread(target=work[0], args=work[1:], daemon=True).start()
    socket.send_fds(outer, [ready], [end.fileno() for _, end in pairs])
    for _, end in pairs:
        end.close()
    outer.recv(1)  # until the executor is gone
    inner.close()
    return box.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2]), sys.argv[3:]))
