"""The bed: real Debian machines for tests and for the demonstration.

A bed is a small private network of machines that boot systemd on disks of their own. Theory of
operation:

- A machine is systemd-nspawn on an overlay of a base root (root.py), with a network namespace, a
  cgroup in every hierarchy and a disk of its own (machine.py). No daemon of the host is needed:
  its PID 1 may be anything, its cgroups may be v1 or v2 (cgroups.py).
- The machines of a bed meet on a bridge inside one more network namespace, where packets can be
  dropped between any of them (network.py). Nothing leads from there to the host or the world, so
  packages come from a directory that every machine sees read-only (repository.py).
- The machines of a bed are of one release of Debian, the host's or another. Our own packages are
  built on a root of the release that they are for (build.py).
- Whatever a bed makes (processes, mounts, namespaces, cgroups, files) carries the bed's name, and
  the bed holds a file lock as long as it lives. So its end, and the sweep of beds whose owner was
  killed, find everything by name (leftovers.py).

Only Python's standard library and Debian's tools are used; `bed.tools.install()` gets the latter.
"""

from . import build, root
from .bed import Bed
from .errors import BedError, CommandFailed
from .machine import Machine, Result
from .network import Network
from .repository import Repository, raise_version

__all__ = [
    "Bed",
    "BedError",
    "CommandFailed",
    "Machine",
    "Network",
    "Repository",
    "Result",
    "build",
    "raise_version",
    "root",
]
