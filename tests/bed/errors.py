"""What can go wrong in the bed itself, as opposed to what is tested in it."""

from __future__ import annotations


class BedError(Exception):
    """The bed could not do what it was asked to."""


class CommandFailed(BedError):
    """A command ended with another code than 0, or not in time."""

    def __init__(self, what: str, rc: int | None, stdout: str, stderr: str) -> None:
        ended = "did not end in time" if rc is None else f"ended with {rc}"
        parts = [f"{what} {ended}"]
        parts += [text.rstrip() for text in (stdout, stderr) if text.strip()]
        super().__init__("\n".join(parts))
        self.rc = rc
        self.stdout = stdout
        self.stderr = stderr
