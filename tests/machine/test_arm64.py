"""The sandbox program for arm64: cross-compiled on a root that has what this takes, and started."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

import oj
from bed import root, tools

TREE = Path(__file__).resolve().parents[2]
PACKAGES = (
    "binutils",
    "dpkg-dev",
    "gcc-aarch64-linux-gnu",
    "libc6-dev-arm64-cross",
    "libseccomp-dev:arm64",
    "make",
    "qemu-user",
)
# The daemons' tree is read-only at /mnt, the directory for the result is /media. All of it ends
# with the process.
ENTER = """
set -e
cd "$1"
mount --bind -o ro "$2" mnt
mount --bind "$3" media
mount -t proc proc proc
exec chroot . /bin/sh -ec "$4"
"""
MAKE = "make --silent -C /mnt/box BUILD=/media CC=aarch64-linux-gnu-gcc"
FLAGS = "eval $(dpkg-architecture -f -aarm64 -s 2>/dev/null); export DEB_BUILD_MAINT_OPTIONS="
FLAGS += "hardening=+all; for name in CFLAGS CPPFLAGS LDFLAGS; do"
FLAGS += ' export $name="$(dpkg-buildflags --get $name)"; done; '

Inside = Callable[[str], subprocess.CompletedProcess[str]]


@pytest.fixture
def inside(tmp_path: Path) -> Inside:
    """Runs a script on that root."""
    tools.install()
    base = root.base(PACKAGES)

    def run(script: str) -> subprocess.CompletedProcess[str]:
        words = ["unshare", "--mount", "--pid", "--fork", "--kill-child", "sh", "-c", ENTER, "sh"]
        return subprocess.run(
            [*words, str(base), str(TREE / "daemons"), str(tmp_path), script],
            capture_output=True,
            text=True,
            env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C.UTF-8"},
        )

    return run


@pytest.mark.parametrize("flags", ["", FLAGS], ids=["by hand", "as the package"])
def test_the_sandbox_is_built_for_arm64_without_a_warning(inside: Inside, flags: str) -> None:
    done = inside(flags + MAKE)
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    told = inside("readelf --wide --file-header --program-headers /media/oj-box").stdout
    assert "Machine:                           AArch64" in told
    assert "Type:                              DYN" in told  # at another address each time
    assert "INTERP" not in told
    started = inside("qemu-aarch64 /media/oj-box --version")
    assert (started.returncode, started.stdout) == (0, f"oj-box {oj.__version__}\n"), started
