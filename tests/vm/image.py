"""The machine's disk: a minimal Debian with its stock kernel, made once and kept in the cache."""

from __future__ import annotations

import hashlib
import os
import shutil
from dataclasses import dataclass
from pathlib import Path

from bed import root
from bed.errors import BedError
from bed.tools import KEYRING, SEARCH_PATH, cache_dir, call, install_packages, locked, remove_tree

from . import job

# The host's own, so that what is compiled here runs there; or another one, where programs that are
# linked statically run, and those of an older release.
RELEASE = os.environ.get("OJ_RELEASE", root.HOST)
# What booting needs, and what the tests of the sandbox do.
PACKAGES = (
    "dbus",
    "initramfs-tools",
    "linux-image-cloud-amd64",
    "systemd",
    "systemd-sysv",
    "udev",
    "g++",
    "gcc",
    "libc6-dev",
    "libseccomp2",
    "procps",
    "python3",
    "python3-configobj",
    "python3-pytest",
)
MODULES = ("virtio_pci", "virtio_blk", "ext4")
SIZE_BYTES = 2 << 30  # sparse

# Whatever would only cost time while it boots.
MASKED = (
    "apt-daily-upgrade.timer",
    "apt-daily.timer",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty@.service",
    "serial-getty@.service",
    "systemd-binfmt.service",
    "systemd-journal-flush.service",
    "systemd-networkd.service",
    "systemd-timesyncd.service",
)
FILES = {
    "etc/machine-id": "0123456789abcdef0123456789abcdef\n",
    "etc/hostname": "v2\n",
    "etc/hosts": "127.0.0.1 localhost v2\n",
    "etc/fstab": "/dev/vda / ext4 defaults,noatime 0 0\n",
    "etc/systemd/journald.conf.d/vm.conf": "[Journal]\nStorage=volatile\n",
    job.UNIT_PATH: job.UNIT,
    job.SCRIPT_PATH: job.SCRIPT,
}

# The program that shows that a package is there -> the package.
TOOLS = {
    "mkfs.ext4": "e2fsprogs",
    "mmdebstrap": "mmdebstrap",
    "qemu-system-x86_64": "qemu-system-x86",
    "setpriv": "util-linux",
}


@dataclass(frozen=True)
class Image:
    kernel: Path
    initrd: Path
    disk: Path


def install() -> None:
    """Installs what the machine needs on a Debian host; does nothing where all is there."""
    missing = {
        package for tool, package in TOOLS.items() if shutil.which(tool, path=SEARCH_PATH) is None
    }
    if not KEYRING.exists():
        missing.add("debian-archive-keyring")
    if not missing:
        return
    if os.geteuid() != 0:
        raise BedError(f"run me as root, or install first: {' '.join(sorted(missing))}")
    install_packages(sorted(missing))


def key() -> str:
    parts = (RELEASE, sorted(PACKAGES), MODULES, MASKED, sorted(FILES.items()), SIZE_BYTES, "1")
    return f"{RELEASE}-{hashlib.sha256(repr(parts).encode()).hexdigest()[:16]}"


def image() -> Image:
    """The disk with its kernel; makes it, in about a minute, if there is none."""
    images = cache_dir() / "vm"
    done = images / key()
    if not done.exists():
        with locked(images / "lock") as lock:  # one for all: a maker removes what others made
            if not done.exists():
                _make(images, done, lock)
    return Image(done / "vmlinuz", done / "initrd", done / "disk")


def _make(images: Path, done: Path, lock: int) -> None:
    # Of older lists of packages, and of makers that died half-way: nobody uses them any more,
    # because a running machine has its files open. Those of another release are kept.
    others = tuple(f"{release}-" for release in root.RELEASES if release != RELEASE)
    for old in images.iterdir():
        if old.is_dir() and not old.name.startswith(others):
            remove_tree(old)
    making = images / f"{done.name}.making"
    tree = making / "root"
    making.mkdir()
    # initramfs-tools asks the file system it finds itself on; a list does without asking.
    modules = "\\n".join(MODULES)
    conf = "$1/etc/initramfs-tools"
    call(
        "mmdebstrap",
        "--quiet",
        "--mode=root",
        "--variant=apt",
        '--aptopt=Acquire::Languages "none"',
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/locale/*",
        f"--extract-hook=mkdir -p {conf}/conf.d && echo MODULES=list >{conf}/conf.d/vm"
        f" && printf '{modules}\\n' >{conf}/modules",
        f"--include={','.join(PACKAGES)}",
        RELEASE,
        tree,
        *([os.environ["OJ_MIRROR"]] if "OJ_MIRROR" in os.environ else []),
        pass_fds=(lock,),
    )
    _prepare(tree)
    boot = tree / "boot"
    shutil.copy(next(boot.glob("vmlinuz-*")), making / "vmlinuz")
    shutil.copy(next(boot.glob("initrd.img-*")), making / "initrd")
    disk = making / "disk"
    with disk.open("wb") as file:
        file.truncate(SIZE_BYTES)
    call("mkfs.ext4", "-q", "-F", "-O", "^has_journal", "-m", "0", "-d", tree, disk)
    remove_tree(tree)
    making.rename(done)


def _prepare(tree: Path) -> None:
    for name, text in FILES.items():
        path = tree / name
        path.unlink(missing_ok=True)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    (tree / job.SCRIPT_PATH).chmod(0o755)
    units = tree / "etc/systemd/system"
    for unit in MASKED:
        path = units / unit
        path.unlink(missing_ok=True)
        path.symlink_to("/dev/null")
    wants = units / "multi-user.target.wants"
    wants.mkdir(parents=True, exist_ok=True)
    (wants / Path(job.UNIT_PATH).name).symlink_to(f"/{job.UNIT_PATH}")
