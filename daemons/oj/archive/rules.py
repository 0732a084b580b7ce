"""What an archive may hold, whatever its form: names, numbers, sizes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from oj import model
from oj.errors import Oversized, Rejected


@dataclass(frozen=True)
class Bounds:
    """What an archive may hold; directories count as entries, not as files."""

    files: int = model.MAX_FILES
    entries: int = 4 * model.MAX_FILES
    file_bytes: int = model.BLOB_BYTES
    total_bytes: int = model.BLOB_BYTES
    archive_bytes: int = model.BLOB_BYTES


DEFAULT = Bounds()


class Budget:
    """What several archives may hold together; `charge` is told of memory before it is taken, and,
    with less than nothing, when it is free again."""

    def __init__(
        self, total_bytes: int, charge: Callable[[int], None], entries: int = DEFAULT.entries
    ) -> None:
        self.total_bytes = total_bytes
        self._left_bytes = total_bytes
        self._entries = self._left_entries = entries
        self._charge = charge

    def count(self) -> None:
        self._left_entries -= 1
        if self._left_entries < 0:
            raise Rejected(f"the archives together have more than {self._entries} entries")

    def take(self, amount_bytes: int) -> None:
        """So much more of a file that is not whole yet."""
        self._left_bytes -= amount_bytes
        if self._left_bytes < 0:
            raise Oversized(
                f"the archives together unpack to more than {self.total_bytes} bytes",
                self.total_bytes,
            )
        self._charge(2 * amount_bytes)  # a file is there twice at the moment when it is whole

    def settle(self, file_bytes: int) -> None:
        """The file is whole."""
        self._charge(-file_bytes)


class Collected:
    """The files so far, with every rule about names, numbers and sizes."""

    def __init__(self, bounds: Bounds, budget: Budget | None = None) -> None:
        self.bounds = bounds
        self._budget = budget
        self.files: list[tuple[str, bytes]] = []
        self._entries = 0
        self._left_bytes = bounds.total_bytes
        self._names: set[str] = set()
        self._directories: set[str] = set()

    def count(self) -> None:
        """Another entry, whatever it is."""
        self._entries += 1
        if self._entries > self.bounds.entries:
            raise Rejected(f"it has more than {self.bounds.entries} entries")
        if self._budget is not None:
            self._budget.count()

    def check_name(self, raw: str) -> str:
        """The name without a leading './', which tar likes; '' for the top itself."""
        name = raw
        while name.startswith("./"):
            name = name[2:]
        if name in ("", ".") and raw:
            return ""
        return model.check_file_name(name, f"entry {shown(raw)}")

    def add_directory(self, raw: str) -> None:
        name = self.check_name(raw.removesuffix("/") or raw)
        if name:
            self._claim_parents(f"{name}/.", raw)

    def add_file(self, raw: str, claimed_bytes: int, chunks: Iterator[bytes]) -> None:
        """Reads the content; `claimed_bytes` is only used to refuse sooner."""
        name = self.check_name(raw)
        if not name:
            raise Rejected(f"entry {shown(raw)} has no name")
        if name in self._names:
            raise Rejected(f"entry {shown(raw)} is there twice")
        if name in self._directories:
            raise Rejected(f"entry {shown(raw)} is a file and a directory")
        self._claim_parents(name, raw)
        if len(self.files) >= self.bounds.files:
            raise Rejected(f"it has more than {self.bounds.files} files")
        most_bytes = min(self.bounds.file_bytes, self._left_bytes)
        content = bytearray()
        if claimed_bytes <= most_bytes:
            for chunk in chunks:
                if self._budget is not None:
                    self._budget.take(len(chunk))
                content += chunk
                if len(content) > most_bytes:
                    break
        if max(claimed_bytes, len(content)) > most_bytes:
            self._refuse_size(raw, most_bytes)
        self._left_bytes -= len(content)
        self._names.add(name)
        self.files.append((name, bytes(content)))
        if self._budget is not None:
            self._budget.settle(len(content))

    def _refuse_size(self, raw: str, most_bytes: int) -> None:
        if most_bytes == self.bounds.file_bytes:
            raise Oversized(f"entry {shown(raw)} is larger than {most_bytes} bytes", most_bytes)
        raise Oversized(
            f"with entry {shown(raw)} it unpacks to more than {self.bounds.total_bytes} bytes",
            self.bounds.total_bytes,
        )

    def _claim_parents(self, name: str, raw: str) -> None:
        parts = name.split("/")[:-1]
        for length in range(1, len(parts) + 1):
            parent = "/".join(parts[:length])
            if parent in self._names:
                raise Rejected(f"entry {shown(raw)} is below {shown(parent)}, which is a file")
            self._directories.add(parent)


def shown(name: str | bytes) -> str:
    """A name that is fit to be printed, whatever is in it."""
    text = ascii(name.decode("utf-8", "surrogateescape") if isinstance(name, bytes) else name)
    return text if len(text) <= 100 else f"{text[:97]}...'"
