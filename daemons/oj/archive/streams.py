"""Compressed files, decompressed as they are read, and never further."""

from __future__ import annotations

import bz2
import lzma
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, BinaryIO

from oj.archive.rules import Bounds
from oj.errors import Oversized, Rejected

CHUNK_BYTES = 64 << 10
XZ_MEMORY_BYTES = 128 << 20  # xz -9 needs 65 MiB
STREAM_BYTES = 32 << 10  # bgzip has the shortest streams, of 64 KiB


@dataclass(frozen=True)
class Form:
    """A way to compress: how it begins, and what undoes it."""

    magic: bytes
    start: Callable[[], Any]


FORMS = (
    Form(b"\x1f\x8b", lambda: zlib.decompressobj(wbits=31)),
    Form(b"BZh", bz2.BZ2Decompressor),
    Form(b"\xfd7zXZ\0", lambda: lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=XZ_MEMORY_BYTES)),
)


def find_form(start: bytes) -> Form | None:
    return next((form for form in FORMS if start.startswith(form.magic)), None)


class Unpacked:
    """What is in the file. Several streams may follow each other, as parallel compressors make
    them, but nothing else may."""

    def __init__(self, file: BinaryIO, form: Form, bounds: Bounds) -> None:
        self._file = file
        self._form = form
        self._stream = form.start()
        self._input = b""
        self._limit_bytes = bounds.total_bytes
        # Files are counted one by one; this is for what is between and behind them.
        self._left_bytes = bounds.total_bytes + bounds.entries * 2048 + (1 << 20)
        # Starting one costs as much as many bytes of it, and it may hold none.
        self._left_streams = self._left_bytes // STREAM_BYTES

    def read(self, most_bytes: int, /) -> bytes:
        while True:
            try:
                got = self._step(most_bytes)
            except (zlib.error, lzma.LZMAError, OSError, EOFError, ValueError) as error:
                raise Rejected(f"it is damaged: {error}") from None
            if got is None:
                return b""
            if got:
                self._left_bytes -= len(got)
                if self._left_bytes < 0:
                    raise Oversized(
                        f"it unpacks to more than {self._limit_bytes} bytes", self._limit_bytes
                    )
                return got

    def _step(self, most_bytes: int) -> bytes | None:
        """Some bytes, perhaps none; None at the end."""
        stream = self._stream
        if stream.eof:
            rest: bytes = stream.unused_data or self._file.read(CHUNK_BYTES)
            if not rest:
                return None
            if len(rest) < len(self._form.magic):
                rest += self._file.read(CHUNK_BYTES)
            if not rest.startswith(self._form.magic):
                raise Rejected("something was added behind its end")
            self._left_streams -= 1
            if self._left_streams < 0:
                raise Rejected("it is cut into too many compressed streams")
            self._stream, self._input = self._form.start(), rest
            return b""
        if not self._input and getattr(stream, "needs_input", True):
            self._input = self._file.read(CHUNK_BYTES)
            if not self._input:
                raise Rejected("it is cut off")
        got: bytes = stream.decompress(self._input, most_bytes)
        # zlib hands back what it has not looked at yet; the others keep it.
        self._input = getattr(stream, "unconsumed_tail", b"")
        return got
