"""What can go wrong in the bed itself, as opposed to what is tested in it."""

from __future__ import annotations

import re

NO_SPACE = re.compile(
    r"No space left on device|not have enough (?:free )?space|Disk quota exceeded", re.IGNORECASE
)
NO_NETWORK = re.compile(
    r"Temporary failure resolving '[^']*'|Could not resolve '[^']*'|Name or service not known|"
    r"Network is unreachable|No route to host|Connection (?:refused|timed out|reset by peer)|"
    r"(?:Could not|Unable to) connect to [^\s)]*",
    re.IGNORECASE,
)


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


def explain(failure: CommandFailed, what: str, network: str, room: str) -> BedError:
    """Why a command that fetches from Debian failed: in one line with what to do, where it was the
    network or the room on the disk, else its own complaint."""
    said = failure.stderr + failure.stdout
    if found := NO_SPACE.search(said):
        return BedError(f"cannot {what}: no space left ({found[0]}): {room}")
    if found := NO_NETWORK.search(said):
        return BedError(f"cannot {what}: no network ({found[0]}): {network}")
    return failure
