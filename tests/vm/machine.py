"""Boots the machine once, runs commands in a copy of the tree, and brings back what they said."""

from __future__ import annotations

import io
import os
import subprocess
import sys
import tarfile
import tempfile
import threading
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import IO

from bed.errors import BedError
from bed.tools import SEARCH_PATH

from . import job
from .image import Image, image

TREE = Path(__file__).resolve().parents[2]
MEMORY_MIB = 2560  # more than any attack asks for: there, limits decide, not the machine
# Emulated, a look at the clock of a chip (hpet) and a fifth level of page tables cost a fourth of
# all the time.
CPU = "max,la57=off"
KERNEL = "root=/dev/vda ro console=ttyS0 quiet panic=-1 mitigations=off tsc=reliable"


def run_all(
    commands: Sequence[str],
    paths: Iterable[str] = ("daemons", "etc", "tests"),
    timeout_s: float = 900,
    built: Mapping[str, Path] | None = None,
) -> list[job.Ended]:
    """Runs shell commands, one after the other, at the top of a copy of the tree.

    `paths` are the parts of the tree to bring along, as git lists them with what is not committed
    yet; pyproject.toml always is. `built` are files and directories that git does not list, by
    their place in the copy. Raises BedError with all that was said if the machine does not get to
    the end of the last command."""
    disk = image()
    with tempfile.TemporaryFile() as tar, tempfile.TemporaryFile() as console:
        _pack(tar, commands, [*paths, "pyproject.toml"], built or {})
        output = _boot(disk, tar, console, timeout_s)
        ended = job.parse(output, commands)
        if len(ended) != len(commands) or f"{job.MARK}done" not in output:
            console.seek(0)
            log = console.read().decode(errors="replace")
            tail = "\n".join(log.splitlines()[-40:])
            raise BedError(
                f"the virtual machine did not get to the end within {timeout_s:g} s:\n"
                f"{output}\nIts console said at last:\n{tail}"
            )
        return ended


def _pack(
    file: IO[bytes], commands: Sequence[str], paths: Sequence[str], built: Mapping[str, Path]
) -> None:
    git = ["git", "-c", f"safe.directory={TREE}", "ls-files", "-z", "--cached", "--others"]
    listed = subprocess.run(
        [*git, "--exclude-standard", "--", *paths], cwd=TREE, check=True, stdout=subprocess.PIPE
    )
    with tarfile.open(fileobj=file, mode="w") as tar:
        for name in sorted(set(os.fsdecode(listed.stdout).split("\0"))):
            path = TREE / name
            if name and (path.is_symlink() or path.is_file()):
                tar.add(path, name, recursive=False)
        for name, path in built.items():
            tar.add(path, name)
        text = b"".join(command.encode() + b"\0" for command in commands)
        info = tarfile.TarInfo(job.COMMANDS_NAME)
        info.size = len(text)
        tar.addfile(info, io.BytesIO(text))
    file.flush()
    # A disk consists of whole sectors.
    file.truncate((file.tell() + 0xFFFF) & ~0xFFFF)


def _boot(disk: Image, tar: IO[bytes], console: IO[bytes], timeout_s: float) -> str:
    """Runs qemu to the end of the machine's life; returns what came over the second port."""
    # Not KVM, unless asked for: inside other virtual machines it is often there but broken.
    accelerator = os.environ.get("OJ_VM_ACCEL", "tcg,thread=multi")
    command = ["setpriv", "--pdeathsig", "KILL", "--", "qemu-system-x86_64"]
    command += ["-accel", accelerator]
    command += ["-cpu", CPU, "-smp", "2", "-m", str(MEMORY_MIB), "-nodefaults", "-no-reboot"]
    command += ["-display", "none", "-monitor", "none"]
    command += ["-kernel", str(disk.kernel), "-initrd", str(disk.initrd)]
    command += ["-append", KERNEL]
    command += ["-drive", f"file={disk.disk},if=virtio,format=raw,snapshot=on"]
    command += ["-drive", f"file=/proc/self/fd/{tar.fileno()},if=virtio,format=raw,readonly=on"]
    command += ["-chardev", "file,id=console,path=/proc/self/fd/2", "-serial", "chardev:console"]
    command += ["-chardev", "stdio,id=job,signal=off", "-serial", "chardev:job"]
    environment = os.environ | {"PATH": SEARCH_PATH}
    qemu = subprocess.Popen(
        command,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=console,
        pass_fds=(tar.fileno(),),
        env=environment,
    )
    assert qemu.stdout is not None
    clock = threading.Timer(timeout_s, qemu.kill)
    clock.start()
    show = bool(os.environ.get("OJ_VM_SHOW"))
    parts = []
    try:
        while part := qemu.stdout.read1(65536):
            parts.append(part)
            if show:
                sys.stderr.write(part.decode(errors="replace"))
                sys.stderr.flush()
        qemu.wait()
    finally:
        clock.cancel()
        qemu.kill()
        qemu.wait()
        qemu.stdout.close()
    return b"".join(parts).decode(errors="replace")
