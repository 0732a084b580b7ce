"""The host: Debian tools that the bed calls, its directories, and waiting with a deadline."""

from __future__ import annotations

import fcntl
import os
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from .errors import BedError, CommandFailed, explain

# The program that shows that a package is there -> the package.
TOOLS = {
    "apt-ftparchive": "apt-utils",
    "ip": "iproute2",
    "journalctl": "systemd",
    "mmdebstrap": "mmdebstrap",
    "nft": "nftables",
    "nsenter": "util-linux",
    "systemd-nspawn": "systemd-container",
    "tar": "tar",
}
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

# Debian keeps some of the tools in sbin, which is not in everybody's PATH.
SEARCH_PATH = os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin:/usr/bin:/bin"


def cache_dir() -> Path:
    """The place of base roots, fetched packages and running beds."""
    return Path(os.environ.get("OJ_CACHE", "/var/cache/oj"))


def missing_packages() -> list[str]:
    missing = {
        package for tool, package in TOOLS.items() if shutil.which(tool, path=SEARCH_PATH) is None
    }
    if not KEYRING.exists():
        missing.add("debian-archive-keyring")
    return sorted(missing)


def install() -> None:
    """Install what the bed needs on a Debian host; does nothing where all is there."""
    if os.geteuid() != 0:
        raise BedError("the bed needs root: it boots machines")
    missing = missing_packages()
    if missing:
        install_packages(missing)


def install_packages(missing: Sequence[str]) -> None:
    print(f"installing {' '.join(missing)}", flush=True)
    apt = ["apt-get", "-qq", "-o", "DPkg::Lock::Timeout=600"]
    environment = os.environ | {"DEBIAN_FRONTEND": "noninteractive"}
    try:
        with locked(cache_dir() / ".apt.lock"):  # an update waits for no other one
            call(*apt, "update", env=environment)
            call(*apt, "install", "-y", "--no-install-recommends", *missing, env=environment)
    except CommandFailed as failure:
        what = f"install {' '.join(missing)}"
        mirror = "let apt reach a mirror, or install them first"
        raise explain(failure, what, mirror, "make room in / and /var/cache/apt") from failure


def call(
    *command: str | Path,
    input_text: str | None = None,
    env: dict[str, str] | None = None,
    pass_fds: Sequence[int] = (),
) -> str:
    """Run a tool of the host and return what it wrote; raise with its complaint if it fails."""
    environment = (os.environ if env is None else env) | {"PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8"}
    words = [str(word) for word in command]
    try:
        done = subprocess.run(
            words,
            input=input_text,
            stdin=None if input_text is not None else subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            env=environment,
            pass_fds=pass_fds,
        )
    except FileNotFoundError as error:
        package = TOOLS.get(words[0], words[0])
        raise BedError(f"there is no {words[0]} here: apt install {package}") from error
    if done.returncode != 0:
        raise CommandFailed(" ".join(words), done.returncode, done.stdout, done.stderr)
    return done.stdout


def wait_for(condition: Callable[[], object], timeout_s: float, what: str) -> None:
    """Wait until the condition holds; raise BedError when it does not in time."""
    deadline = time.monotonic() + timeout_s
    pause_s = 0.005
    while not condition():
        if time.monotonic() > deadline:
            raise BedError(f"waited {timeout_s:g} s for {what}")
        time.sleep(pause_s)
        pause_s = min(pause_s * 1.5, 0.1)


@contextmanager
def locked(path: Path) -> Iterator[int]:
    """Hold an exclusive lock on a file, waiting for it; gives the descriptor that holds it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_CREAT | os.O_RDWR | os.O_CLOEXEC, 0o644)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield descriptor
    finally:
        os.close(descriptor)


def mounts_below(path: Path) -> list[Path]:
    """Mount points at or below a path, the deepest first."""
    prefix = str(path)
    found = []
    for line in Path("/proc/self/mountinfo").read_text().splitlines():
        point = line.split(" ")[4].encode().decode("unicode_escape")
        if point == prefix or point.startswith(prefix + "/"):
            found.append(Path(point))
    return found[::-1]


def unmount_below(path: Path) -> None:
    """Unmount everything at or below a path, even where a dying process still holds it."""
    for point in mounts_below(path):
        call("umount", "--lazy", "--no-mtab", point)


def remove_tree(path: Path) -> None:
    """Delete a tree of ours, and never anything that is mounted into it."""
    unmount_below(path)
    if path.exists():
        call("rm", "-rf", "--one-file-system", path)
