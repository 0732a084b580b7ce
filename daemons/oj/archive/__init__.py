"""Archives from strangers, unpacked in memory: zip, and tar plain or compressed.

`unpack` is for everyone who takes an archive. It returns plain files, or says which
entry is wrong and why; nothing is ever written. Work and memory are bounded by
`Bounds`, never by what a header claims: reading stops at the first entry or byte
too many.
"""

from __future__ import annotations

import io
from typing import BinaryIO

from oj.archive import tar, zip
from oj.archive.rules import DEFAULT, Bounds, Budget, Collected
from oj.archive.streams import Unpacked, find_form
from oj.errors import Oversized, Rejected

__all__ = ["DEFAULT", "Bounds", "Budget", "unpack"]


def unpack(
    content: bytes | BinaryIO,
    name: str = "archive",
    bounds: Bounds = DEFAULT,
    budget: Budget | None = None,
) -> list[tuple[str, bytes]]:
    """The files in the archive's order. Raises Rejected or Oversized, naming `name`.

    `budget` is for several archives that come together.
    """
    file = io.BytesIO(content) if isinstance(content, bytes) else content
    try:
        size_bytes = file.seek(0, io.SEEK_END)
        if size_bytes > bounds.archive_bytes:
            raise Oversized(f"it is larger than {bounds.archive_bytes} bytes", bounds.archive_bytes)
        file.seek(0)
        start = file.read(tar.BLOCK)
        file.seek(0)
        collected = Collected(bounds, budget)
        if start.startswith((b"PK\3\4", b"PK\5\6")):
            zip.read(file, size_bytes, collected)
        elif (form := find_form(start)) is not None:
            tar.read(Unpacked(file, form, bounds), collected)
        elif len(start) == tar.BLOCK and tar.is_header(start):
            tar.read(file, collected)
        else:
            raise Rejected("it is neither a zip nor a tar archive (plain, gz, bz2 or xz)")
        if not collected.files:
            raise Rejected("it holds no files")
    except Oversized as error:
        raise Oversized(f"{name}: {error.message}", error.limit_bytes) from None
    except Rejected as error:
        raise Rejected(f"{name}: {error.message}") from None
    return collected.files
