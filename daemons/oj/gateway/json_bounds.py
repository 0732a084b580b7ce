"""Bounds of a JSON text that hold before anything of it is made: how deep, and how many values.

A parsed value costs up to a hundred times the bytes that it was written in (`[],` is three bytes
and an object of seventy), so a bound on bytes alone does not bound memory. Brackets and commas are
counted outside of strings, which may have any number of them. Whatever is no JSON is counted
somehow: the parser refuses it at the first wrong character, and up to there the count was right.
"""

from __future__ import annotations

from oj.errors import Rejected

MOST_VALUES = 250_000
MOST_DEPTH = 32
VALUE_BYTES = 200  # what one value takes at worst, as an object of one key
_CHUNK_BYTES = 64 << 10
_NO_BRACKETS = bytes(set(range(256)) - set(b"[]{}"))
_AS_SQUARE = bytes.maketrans(b"{}", b"[]")
_OPENS = b"["[0]
_BELOW_ASTRAL = bytes(range(0xF0))


class Count:
    """How many values there are in what has come of a text, and how deep it is nested.

    Rejected for too many, and for too deep a nesting, at the piece in which that shows.
    """

    def __init__(self, most_values: int = MOST_VALUES, most_depth: int = MOST_DEPTH) -> None:
        self.values = 0
        self._most_values, self._most_depth = most_values, most_depth
        self._depth = 0
        self._inside = False  # of a string
        self._held = b""  # a backslash whose escaped character is yet to come

    def add(self, piece: bytes) -> None:
        if self._depth < 0:
            return  # no JSON: the parser goes no further than to there
        content = self._held + piece
        odd = (len(content) - len(content.rstrip(b"\\"))) % 2
        content, self._held = content[: len(content) - odd], content[len(content) - odd :]
        # Escaped backslashes first, so that the one in front of a quote is that quote's own.
        plain = content.replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = plain.split(b'"')
        outside = b"".join(parts[1 if self._inside else 0 :: 2])
        self._inside ^= len(parts) % 2 == 0
        self.values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if self.values > self._most_values:
            raise Rejected(f"the JSON has more than {self._most_values} values")
        self._nest(outside.translate(_AS_SQUARE, _NO_BRACKETS))

    def _nest(self, brackets: bytes) -> None:
        """Takes pairs out, the innermost first, which is much faster than to walk along; what is
        left then closes what was open before, and opens what stays open."""
        left, layers = brackets, 0
        while b"[]" in left and layers <= self._most_depth:
            left = left.replace(b"[]", b"")
            layers += 1
        closed = left.count(b"]")
        after = self._depth - closed + left.count(b"[")
        if closed > self._depth or max(self._depth, after) + layers > self._most_depth:
            self._walk(brackets)  # perhaps too deep, perhaps no JSON
        else:
            self._depth = after

    def _walk(self, brackets: bytes) -> None:
        for bracket in brackets:
            self._depth += 1 if bracket == _OPENS else -1
            if self._depth > self._most_depth:
                raise Rejected(f"the JSON is nested deeper than {self._most_depth} levels")
            if self._depth < 0:
                return


def check(content: bytes, most_values: int = MOST_VALUES, most_depth: int = MOST_DEPTH) -> int:
    """How many values there are in the whole text.

    It has to be UTF-8, or something else is counted than is parsed. In small steps, so that other
    threads go on meanwhile, and no further than to the bound.
    """
    if len(content) <= _CHUNK_BYTES:
        opened = content.count(b"[") + content.count(b"{")
        counted = opened + content.count(b",")
        if opened <= most_depth and counted <= most_values:
            return counted  # enough, even if none of them is in a string
    count = Count(most_values, most_depth)
    for start in range(0, len(content), _CHUNK_BYTES):
        count.add(content[start : start + _CHUNK_BYTES])
    return count.values


def cost_bytes(content: bytes, values: int) -> int:
    """What parsing it takes at worst: the text as characters, the values, and their texts."""
    width = 1 if content.isascii() else 2
    if width > 1 and content.translate(None, _BELOW_ASTRAL):
        width = 4  # one character beyond 16 bits makes four bytes of each one in its text
    return 2 * width * len(content) + VALUE_BYTES * values
