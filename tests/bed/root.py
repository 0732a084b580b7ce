"""The base root: an untouched, minimal Debian that every machine's disk starts from.

It is made once per release and list of packages and kept in the cache. A maker that dies half-way
leaves a directory that nobody uses, and the next maker removes it.
"""

from __future__ import annotations

import hashlib
import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from .errors import BedError, CommandFailed, explain
from .tools import cache_dir, call, locked, remove_tree

RELEASES = ("bookworm", "trixie")
HOST = platform.freedesktop_os_release().get("VERSION_CODENAME", "")
PACKAGES = ("dbus", "iproute2", "iputils-ping", "procps", "systemd", "systemd-sysv")

# Sources of the packages of Debian itself: set aside, as no machine reaches them.
DEBIAN_SOURCES = "etc/apt/debian.list"

# What a root, the packages that are fetched for it and a machine with all of them have together.
NEEDED_MB = 2000
ROOM = "set OJ_CACHE to a directory with more room"

# Nobody logs in at a console, nothing is fetched behind a test's back, and the host's kernel file
# systems stay out of the machines.
MASKED = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "console-getty.service",
    "container-getty@.service",
    "dev-hugepages.mount",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "fstrim.timer",
    "getty@.service",
    "serial-getty@.service",
    "sys-kernel-debug.mount",
    "sys-kernel-tracing.mount",
)
FILES = {
    "etc/machine-id": "",
    "etc/hosts": "127.0.0.1 localhost\n",
    "etc/resolv.conf": "",
    "etc/systemd/journald.conf.d/bed.conf": "[Journal]\nStorage=persistent\n",
    "etc/apt/apt.conf.d/90bed": 'Acquire::Languages "none";\n',
    # A machine's disk lives as long as its test: no need to wait for the platter at each package.
    "etc/dpkg/dpkg.cfg.d/bed": "force-unsafe-io\n",
}


def key(packages: Sequence[str] = PACKAGES, release: str = HOST) -> str:
    parts = (release, sorted(packages), MASKED, sorted(FILES.items()), "1")
    return hashlib.sha256(repr(parts).encode()).hexdigest()[:16]


def base(packages: Sequence[str] = PACKAGES, release: str = HOST) -> Path:
    """The base root with these packages of a release; made, in about half a minute, if there is
    none. A package may be of another architecture, as libc6-dev:arm64."""
    roots = cache_dir() / "roots"
    done = roots / key(packages, release)
    if done.exists():
        return done
    with locked(roots / f"{done.name}.lock") as lock:
        if done.exists():
            return done
        others = sorted({name.partition(":")[2] for name in packages if ":" in name})
        own = [call("dpkg", "--print-architecture").strip()]
        making = roots / f"{done.name}.making"
        remove_tree(making)
        # The maker inherits the lock: should this process be killed, the next one waits until
        # the orphan is done before it clears up.
        _need_room(roots)
        try:
            call(
                "mmdebstrap",
                "--mode=root",
                "--variant=apt",
                '--aptopt=Acquire::Languages "none"',
                f"--architectures={','.join(own + others)}",
                f"--include={','.join(packages)}",
                release,
                making,
                *([os.environ["OJ_MIRROR"]] if "OJ_MIRROR" in os.environ else []),
                pass_fds=(lock,),
            )
        except CommandFailed as failure:
            remove_tree(making)
            raise explain(
                failure,
                "make a Debian root",
                "set OJ_MIRROR to a mirror of Debian that this machine reaches",
                ROOM,
            ) from failure
        _prepare(making)
        making.rename(done)
    return done


def _need_room(place: Path) -> None:
    free_mb = shutil.disk_usage(place).free >> 20
    if free_mb < NEEDED_MB:
        raise BedError(
            f"no space left: machines need {NEEDED_MB} MB in {place}, "
            f"which has {free_mb} MB: {ROOM}"
        )


def _prepare(root: Path) -> None:
    (root / "etc/apt/sources.list").rename(root / DEBIAN_SOURCES)
    (root / "etc/hostname").unlink(missing_ok=True)
    for name, text in FILES.items():
        path = root / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    for unit in MASKED:
        path = root / "etc/systemd/system" / unit
        path.unlink(missing_ok=True)
        path.symlink_to("/dev/null")
