"""Incarnations: which process speaks under an executor's name, and of which installation it is.

An incarnation is a random word that an executor's process makes when it starts. Before its first
dot stands the installation: the machine and the state directory that the process works in. A
restarted executor keeps that part, so that a judicator tells a restart, which takes the name over
at once, from another machine that goes by the same name. Without a dot, as executors up to 0.1.0
make them, the installation is not known.
"""

from __future__ import annotations

import hashlib
import logging
import uuid
from collections.abc import Collection
from pathlib import Path

INSTALLATION = "installation"  # the file in an executor's state directory
INSTALLATION_CHARS = 16
MACHINE_ID = Path("/etc/machine-id")

log = logging.getLogger("oj.executor")


def make(installation: str) -> str:
    return f"{installation}.{uuid.uuid4().hex}"


def installation_of(incarnation: str) -> str:
    """Empty if it is not known."""
    installation, dot, _ = incarnation.partition(".")
    return installation if dot else ""


def find_installation(path: Path) -> str:
    """The installation that is kept at `path`; empty if there is none yet."""
    own = _read(path)
    return _with_machine(own) if own else ""


def keep_installation(path: Path) -> str:
    """The same, made and kept there from the first start of the executor on."""
    own = _read(path)
    if not own:
        own = uuid.uuid4().hex
        try:
            path.write_text(own + "\n", encoding="ascii")
        except OSError as error:
            # A restart then takes the name over only when this process is known to be gone.
            log.warning("cannot keep this executor's identity: %s", error)
    return _with_machine(own)


def _read(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii").strip()
    except (OSError, ValueError):
        return ""


def _with_machine(own: str) -> str:
    """A word that no other executor has.

    With the machine's own identity in it, so that neither a machine that was made from an image
    nor a state directory that was copied to another machine goes for this one.
    """
    machine = MACHINE_ID.read_text(encoding="ascii") if MACHINE_ID.exists() else ""
    return hashlib.sha256(f"{machine.strip()} {own}".encode()).hexdigest()[:INSTALLATION_CHARS]


RENAME = "give one of them a name of its own, there: oj setup executor --name NAME"


def say_runs_twice(name: str, address: str, others: Collection[str]) -> str:
    """The sentence for people about an executor's name that several processes go by."""
    holder = address or "an unknown address"
    rest = ", ".join(sorted({other for other in others if other and other != address}))
    if not rest:
        return f"executor {name} runs twice at {holder}: one of the two takes no tasks"
    return (
        f"executor {name} runs twice: {holder} and {rest}; "
        f"the one at {holder} has the name, and the other takes no tasks"
    )
