"""Frames from the wire: bounded before they are read, checked before they are decoded.

Thrift's accelerated decoder trusts its input: it allocates whatever length it
is told, and recurses as deep as the message nests, which ends the process (a
20 KB message is enough). So every message is walked through here first: it must
nest no deeper than ours do, stay within the frame, and hold no more items than
it can hold honestly.
"""

from __future__ import annotations

import struct
import threading
import time

FRAME_BYTES = 16 << 20
MOST_ITEMS = 500_000
MOST_DEPTH = 24

_FIXED = {2: 1, 3: 1, 4: 8, 6: 2, 8: 4, 10: 8}
_STRING, _STRUCT, _MAP, _SET, _LIST = 11, 12, 13, 14, 15
_VERSION_1 = 0x80010000

_u32 = struct.Struct("!I").unpack_from


class Malformed(Exception):
    """Not a message of this protocol."""


def check_message(frame: bytes | memoryview) -> tuple[str, int]:
    """The name and number of the call in this frame; raises Malformed."""
    try:
        if _u32(frame, 0)[0] & 0xFFFF0000 != _VERSION_1:
            raise Malformed("not Thrift's strict binary protocol")
        length = _u32(frame, 4)[0]
        if length > 256:
            raise Malformed("the call's name is too long")
        name = bytes(frame[8 : 8 + length]).decode("ascii")
        number = _u32(frame, 8 + length)[0]
        end = _walk(frame, 12 + length)
    except (struct.error, IndexError, UnicodeDecodeError) as error:
        raise Malformed(str(error)) from None
    if end > len(frame):
        raise Malformed("the message is cut short")
    return name, number - (1 << 32) if number >> 31 else number


def _walk(frame: bytes | memoryview, at: int) -> int:
    """Walks over one struct; returns where it ends."""
    size = len(frame)
    items = 0
    # A struct is (None, None, 0); a container is its item types and how many are left.
    stack: list[list[int]] = []
    first, second, left = -1, -1, 0  # the innermost one
    while True:
        if first == -1:
            kind = frame[at]
            if kind == 0:
                at += 1
                if not stack:
                    return at
                first, second, left = stack.pop()
                continue
            at += 3
        elif left == 0:
            first, second, left = stack.pop()
            continue
        else:
            left -= 1
            kind = first
            first, second = second, first
        items += 1
        if items > MOST_ITEMS or at > size:
            raise Malformed("too many items" if at <= size else "cut short")
        if (width := _FIXED.get(kind)) is not None:
            at += width
        elif kind == _STRING:
            at += 4 + _u32(frame, at)[0]
        elif kind == _STRUCT:
            stack.append([first, second, left])
            first, second, left = -1, -1, 0
        elif kind in (_LIST, _SET, _MAP):
            stack.append([first, second, left])
            first = frame[at]
            second = frame[at + 1] if kind == _MAP else first
            at += 2 if kind == _MAP else 1
            left = _u32(frame, at)[0] * (2 if kind == _MAP else 1)
            at += 4
            if left > MOST_ITEMS:
                raise Malformed("too many items")
            width, second_width = _FIXED.get(first), _FIXED.get(second)
            if width is not None and second_width is not None:
                at += (width + second_width) * left // 2
                items += left
                first, second, left = stack.pop()
        else:
            raise Malformed(f"no type {kind}")
        if len(stack) > MOST_DEPTH:
            raise Malformed("nests too deep")


class Budget:
    """Bytes that frames may take up in memory at once; the rest waits outside."""

    def __init__(self, total_bytes: int) -> None:
        self._left = total_bytes
        self._changed = threading.Condition()

    def take(self, size: int, timeout_s: float) -> bool:
        end_s = time.monotonic() + timeout_s
        with self._changed:
            while self._left < size:
                if not self._changed.wait(max(0.0, end_s - time.monotonic())):
                    return False
            self._left -= size
            return True

    def give(self, size: int) -> None:
        with self._changed:
            self._left += size
            self._changed.notify_all()
