"""Compares a program's output with the expected output, in bounded memory.

What it tells is for the contestant, too: where the output is wrong, and the
contestant's own word there, but never what was expected.

Both sides are read in chunks. White space is what bytes.split() takes for it.
Words longer than a piece are cut into pieces at the same places on both sides,
so a file without any white space is compared in bounded memory as well. Such
words are text, also where numbers are compared.
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, zip_longest

from oj.executor.runs import Difference
from oj.model import Compare

CHUNK_BYTES = 64 << 10
SMALL_BYTES = 1 << 20  # up to here in one go
SHOWN_CHARACTERS = 40
SPACE = b" \t\n\r\x0b\x0c"
WORD = re.compile(rb"[^ \t\n\r\x0b\x0c]+")
# At the end of a piece whose word goes on, and at the beginning of the piece that ends such a word.
CUT = b" "


@dataclass(frozen=True)
class Bytes:
    """One side of a comparison: `read(offset, length)` is empty past the end."""

    read: Callable[[int, int], bytes]
    size_bytes: int

    @classmethod
    def of(cls, data: bytes) -> Bytes:
        return cls(lambda offset, length: data[offset : offset + length], len(data))

    @classmethod
    def of_file(cls, fd: int, size_bytes: int | None = None) -> Bytes:
        """A seekable file; its own offset is left alone."""
        size = os.fstat(fd).st_size if size_bytes is None else size_bytes
        return cls(lambda offset, length: os.pread(fd, min(length, size - offset), offset), size)

    def chunks(self, chunk_bytes: int) -> Iterator[bytes]:
        offset = 0
        while offset < self.size_bytes and (chunk := self.read(offset, chunk_bytes)):
            yield chunk
            offset += len(chunk)

    def whole(self) -> bytes:
        return b"".join(self.chunks(SMALL_BYTES))


def compare(
    output: Bytes, expected: Bytes, how: Compare, tolerance: float, chunk_bytes: int = CHUNK_BYTES
) -> Difference | None:
    """None if the output is right."""
    if how is Compare.EXACT:
        if output.size_bytes == expected.size_bytes and all(
            a == b
            for a, b in zip(output.chunks(chunk_bytes), expected.chunks(chunk_bytes), strict=True)
        ):
            return None
        at = _find_difference(_pieces(output, chunk_bytes), _pieces(expected, chunk_bytes), _same)
        return Difference(_tell_exact(output, expected, chunk_bytes), in_space=at is None)
    same = _same if how is Compare.TOKENS else _Near(tolerance)
    if output.size_bytes <= SMALL_BYTES and expected.size_bytes <= SMALL_BYTES:
        # By far the most common: nothing is cheaper than two splits.
        if output.whole().split() == expected.whole().split():
            return None
        if how is Compare.TOKENS and chunk_bytes == CHUNK_BYTES:
            chunk_bytes = SMALL_BYTES
    at = _find_difference(_pieces(output, chunk_bytes), _pieces(expected, chunk_bytes), same)
    return None if at is None else Difference(_tell_word(output, expected, at, chunk_bytes))


def _same(output: bytes, expected: bytes) -> bool:
    return output == expected


class _Near:
    """Equal words, or numbers that differ by at most the tolerance, absolute or relative.

    What a float cannot hold is no number but text: `nan`, `inf`, and all that is beyond 1.8e308,
    which float() makes infinite. Otherwise `inf` would be right for every answer of 310 digits.
    Pieces of a cut word are text as well: a part of a number is another number. float() takes
    linear time, 20 to 70 microseconds for the longest word that is not cut."""

    def __init__(self, tolerance: float) -> None:
        self._tolerance = tolerance

    def __call__(self, output: bytes, expected: bytes) -> bool:
        if output == expected:
            return True
        got, want = _read_number(output), _read_number(expected)
        if got is None or want is None:
            return False
        difference = abs(got - want)
        if math.isinf(difference):
            # Two numbers of opposite signs near the end of what a float holds.
            return abs(got / 2 - want / 2) <= self._tolerance * abs(want / 2)
        return difference <= self._tolerance or difference <= self._tolerance * abs(want)


def _read_number(word: bytes) -> float | None:
    # float() takes Python's own 1_000 for a number, which nobody else does, and strips white space.
    if b"_" in word or CUT in word:
        return None
    try:
        number = float(word)
    except ValueError:
        return None
    return number if math.isfinite(number) else None


@dataclass
class _Batch:
    """The words of one chunk; of those longer than a chunk, the pieces."""

    words: list[bytes]
    text: bytes  # the chunk, after the begun word of the one before
    line: int  # where the text begins, from 1
    cut: int  # how many of the words are pieces cut off the first one


def _pieces(data: Bytes, chunk_bytes: int) -> Iterator[_Batch]:
    rest = b""
    cut = False  # whether the rest, and so the next first word, is what is left of a cut word
    line = 1
    for chunk in data.chunks(chunk_bytes):
        text = rest + chunk
        words = text.split()
        # Only the first word can have grown beyond a chunk.
        pieces: list[bytes] = []
        if words and len(words[0]) > chunk_bytes:
            first = words[0]
            while len(first) > chunk_bytes:
                pieces.append(first[:chunk_bytes] + CUT)
                first = first[chunk_bytes:]
            words[0] = first
            cut = True
        rest = b"" if not words or text[-1:] in SPACE else words.pop()
        if words and cut:
            words[0] = CUT + words[0]
            cut = False
        yield _Batch(pieces + words, text, line, len(pieces))
        line += chunk.count(b"\n")
    if rest:
        yield _Batch([CUT + rest if cut else rest], rest, line, 0)


def _find_difference(
    output: Iterator[_Batch],
    expected: Iterator[_Batch],
    same: Callable[[bytes, bytes], bool],
) -> int | None:
    """The number of the first piece that differs, from 0."""
    number = 0
    got: list[bytes] = []
    want: list[bytes] = []
    while True:
        more_output = more_expected = True
        while not got and more_output:
            got, more_output = _next(output)
        while not want and more_expected:
            want, more_expected = _next(expected)
        if not got or not want:
            return None if not got and not want else number
        length = min(len(got), len(want))
        if got[:length] != want[:length]:
            for i in range(length):
                if not same(got[i], want[i]):
                    return number + i
        number += length
        got, want = got[length:], want[length:]


def _next(batches: Iterator[_Batch]) -> tuple[list[bytes], bool]:
    for batch in batches:
        return batch.words, True
    return [], False


def _find_word(data: Bytes, number: int, chunk_bytes: int) -> tuple[bytes, int] | None:
    """A piece by its number, and its line from 1; None if there is no such piece."""
    for batch in _pieces(data, chunk_bytes):
        if number < len(batch.words):
            place = max(0, number - batch.cut)
            begin = next(islice(WORD.finditer(batch.text), place, None)).start()
            return batch.words[number], batch.line + batch.text.count(b"\n", 0, begin)
        number -= len(batch.words)
    return None


def _tell_word(output: Bytes, expected: Bytes, number: int, chunk_bytes: int) -> str:
    got = _find_word(output, number, chunk_bytes)
    if got is None:
        return "the output ends too early"
    word, line = got
    if _find_word(expected, number, chunk_bytes) is None:
        return f"line {line}: {show(word)} is more than was expected"
    return f"line {line}: {show(word)} is wrong"


def _tell_exact(output: Bytes, expected: Bytes, chunk_bytes: int) -> str:
    line, offset, start = 1, 0, 0  # of the chunk, of the line
    for got, want in zip_longest(
        output.chunks(chunk_bytes), expected.chunks(chunk_bytes), fillvalue=b""
    ):
        same = len(got)
        if got != want:
            same = next(
                (i for i, (a, b) in enumerate(zip(got, want, strict=False)) if a != b),
                min(len(got), len(want)),
            )
        line += got.count(b"\n", 0, same)
        if (last := got.rfind(b"\n", 0, same)) >= 0:
            start = offset + last + 1
        offset += same
        if got != want:
            break
    if offset >= output.size_bytes:
        return f"the output ends too early, in line {line}"
    what = "wrong" if offset < expected.size_bytes else "more than was expected"
    return f"line {line}: {what} from byte {offset - start + 1} of it on"


def show(data: bytes) -> str:
    """Bytes of a stranger as quoted text: printable, on one line, short."""
    text = data[: SHOWN_CHARACTERS * 4].strip(CUT).decode("utf-8", "replace")
    cut = len(text) > SHOWN_CHARACTERS or len(data) > SHOWN_CHARACTERS * 4
    text = text[:SHOWN_CHARACTERS]
    shown = "".join(
        character
        if character.isprintable() and character not in '"\\'
        else character.encode("unicode_escape").decode("ascii")
        if character not in '"\\'
        else "\\" + character
        for character in text
    )
    return f'"{shown}"' + ("…" if cut else "")
