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
_BELOW_ASTRAL = bytes(range(0xF0))


def check(content: bytes, most_values: int = MOST_VALUES, most_depth: int = MOST_DEPTH) -> int:
    """How many values there are; Rejected for too many, and for too deep a nesting.

    It has to be UTF-8, or something else is counted than is parsed. In small steps, so that other
    threads go on meanwhile, and no further than to the bound.
    """
    if len(content) <= _CHUNK_BYTES:
        opened = content.count(b"[") + content.count(b"{")
        counted = opened + content.count(b",")
        if opened <= most_depth and counted <= most_values:
            return counted  # enough, even if none of them is in a string
    values = depth = 0
    inside = False
    for start, end in _cut(content):
        # Escaped backslashes first, so that the one in front of a quote is that quote's own.
        plain = content[start:end].replace(b"\\\\", b"").replace(b'\\"', b"")
        parts = plain.split(b'"')
        outside = b"".join(parts[1 if inside else 0 :: 2])
        inside ^= len(parts) % 2 == 0
        values += outside.count(b",") + outside.count(b"[") + outside.count(b"{")
        if values > most_values:
            raise Rejected(f"the JSON has more than {most_values} values")
        for bracket in outside.translate(None, _NO_BRACKETS):
            if bracket in b"[{":
                depth += 1
                if depth > most_depth:
                    raise Rejected(f"the JSON is nested deeper than {most_depth} levels")
                continue
            depth -= 1
            if depth < 0:
                return values  # no JSON: the parser goes no further than here
    return values


def _cut(content: bytes) -> list[tuple[int, int]]:
    """Spans of it, none of which ends between a backslash and what that escapes."""
    spans = []
    start = 0
    while start < len(content):
        end = min(start + _CHUNK_BYTES, len(content))
        run = start + len(content[start:end].rstrip(b"\\"))
        end += (end - run) % 2
        spans.append((start, end))
        start = end
    return spans


def cost_bytes(content: bytes, values: int) -> int:
    """What parsing it takes at worst: the text as characters, the values, and their texts."""
    width = 1 if content.isascii() else 2
    if width > 1 and content.translate(None, _BELOW_ASTRAL):
        width = 4  # one character beyond 16 bits makes four bytes of each one in its text
    return 2 * width * len(content) + VALUE_BYTES * values
