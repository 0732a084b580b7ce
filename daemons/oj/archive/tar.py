"""Tar archives, plain or in a compressed stream: plain files and directories, by any tar.

Read here rather than with tarfile, which believes sizes in headers and has to know
the links, sparse files and dialects that we refuse.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Protocol

from oj.archive.rules import Collected, shown
from oj.errors import Oversized, Rejected

CHUNK_BYTES = 64 << 10
SPECIAL_BYTES = 64 << 10  # of an entry that only tells of the next one
BLOCK = 512
# Kinds of entries, as the header names them.
PLAIN = frozenset({b"0", b"\0", b"7"})
DIRECTORY = b"5"
PAX, PAX_ALL, LONG_NAME, LONG_LINK = SPECIAL = (b"x", b"g", b"L", b"K")


class Source(Protocol):
    def read(self, most_bytes: int, /) -> bytes:
        """Some bytes; none at the end."""
        ...


def read(source: Source, collected: Collected) -> None:
    told: dict[str, str] = {}  # by the entries before, of the next one
    while any(header := _read_exactly(source, BLOCK)):
        collected.count()
        if not is_header(header):
            raise Rejected("it is damaged: a header whose checksum is wrong")
        kind = header[156:157]
        size_bytes = _number(header[124:136])
        if kind in SPECIAL:
            told |= _read_special(kind, source, size_bytes)
            continue
        name = told.get("path") or _header_name(header)
        size_bytes = _decimal(told["size"]) if "size" in told else size_bytes
        told = {}
        if kind in PLAIN and not name.endswith("/"):
            collected.add_file(name, size_bytes, _content(source, size_bytes))
        elif kind not in PLAIN and kind != DIRECTORY:
            raise Rejected(f"entry {shown(name)} is {_TYPES.get(kind, 'of an unknown kind')}")
        elif size_bytes:
            raise Rejected(f"entry {shown(name)} is a directory with content")
        else:  # marked as a directory by its kind, or by its name in old archives
            collected.add_directory(name)
    if told:
        raise Rejected("it is cut off")
    while rest := source.read(CHUNK_BYTES):
        if rest.count(0) != len(rest):
            raise Rejected("something was added behind its end")


_TYPES = {
    b"1": "a link",
    b"2": "a link",
    b"3": "a device",
    b"4": "a device",
    b"6": "a FIFO",
    b"S": "a sparse file",
    b"M": "a part of a file",
    b"V": "a volume's name",
}


def _read_exactly(source: Source, size_bytes: int) -> bytes:
    parts: list[bytes] = []
    while size_bytes:
        part = source.read(min(size_bytes, CHUNK_BYTES))
        if not part:
            raise Rejected("it is cut off")
        parts.append(part)
        size_bytes -= len(part)
    return b"".join(parts)


def _content(source: Source, size_bytes: int) -> Iterator[bytes]:
    left_bytes = size_bytes
    while left_bytes:
        chunk = source.read(min(left_bytes, CHUNK_BYTES))
        if not chunk:
            raise Rejected("it is cut off")
        left_bytes -= len(chunk)
        yield chunk
    _read_exactly(source, -size_bytes % BLOCK)


def _read_special(kind: bytes, source: Source, size_bytes: int) -> dict[str, str]:
    """What an entry tells of the next one: its path, its size, or nothing of interest."""
    if size_bytes > SPECIAL_BYTES:
        raise Oversized(f"it has a name longer than {SPECIAL_BYTES} bytes", SPECIAL_BYTES)
    text = b"".join(_content(source, size_bytes))
    if kind == LONG_NAME:
        return {"path": _decode(text.split(b"\0")[0])}
    if kind == LONG_LINK:
        return {}
    records = _read_records(text)
    if kind == PAX_ALL and records:
        raise Rejected("it has one name or size for all its entries")
    return records


def _read_records(text: bytes) -> dict[str, str]:
    """Path and size in a pax header of 'LENGTH KEY=VALUE\\n', the length being of it all."""
    records: dict[str, str] = {}
    while text.strip(b"\0"):
        head, space, _ = text.partition(b" ")
        length = _decimal(_decode(head)) if space and len(head) < 8 else 0
        record = text[len(head) + 1 : length - 1]
        key, equals, value = record.partition(b"=")
        if length <= len(head) + 1 or text[length - 1 : length] != b"\n" or not equals:
            raise Rejected("it is damaged: a pax header")
        if key.startswith(b"GNU.sparse"):
            raise Rejected("it has a sparse file")
        if key in (b"path", b"size"):
            records[key.decode()] = _decode(value)
        text = text[length:]
    return records


def _header_name(header: bytes) -> str:
    name = _decode(header[:100].split(b"\0")[0])
    if header[257:263] == b"ustar\0":  # GNU's own form has other things there
        prefix = _decode(header[345:500].split(b"\0")[0])
        return f"{prefix}/{name}" if prefix else name
    return name


def _decode(name: bytes) -> str:
    try:
        return name.decode("utf-8")
    except UnicodeDecodeError:
        raise Rejected(f"entry {shown(name)} has a name that is not UTF-8") from None


def is_header(header: bytes) -> bool:
    try:
        stored = _number(header[148:156])
    except Rejected:
        return False
    return stored == sum(header) - sum(header[148:156]) + 8 * 0x20


def _number(field: bytes) -> int:
    """Octal digits, or, with the highest bit set, a binary number."""
    if field[0] == 0x80:
        return int.from_bytes(field[1:], "big")
    digits = field.split(b"\0")[0].strip(b" ")
    if digits.strip(b"01234567"):
        raise Rejected("it is damaged: a number in a header")
    return int(digits or b"0", 8)


def _decimal(text: str) -> int:
    if not text.isascii() or not text.isdigit() or len(text) > 20:
        raise Rejected("it is damaged: a number in a pax header")
    return int(text)
