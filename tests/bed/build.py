"""Our packages for each release of Debian: built on a root of the release that they are for.

What the host's release needs is built on the host itself. Another release gets a base root with
what a build needs (kept in the cache, as every base root), and the same packaging/build runs there:
on an overlay that is thrown away, in namespaces that end with it, so that nothing has to be
unmounted or killed. It sees a copy of the tree's files, the directory for the result and the cache.
"""

from __future__ import annotations

import ctypes.util
import hashlib
import os
import shutil
import subprocess
from pathlib import Path

from . import root, tools
from .errors import BedError

TREE = Path(__file__).resolve().parents[2]
BUILD = TREE / "packaging" / "build"

ENTER = """
set -e
base=$1 place=$2 dist=$3 cache=$4 mongod=$5
shift 5
mount -t overlay overlay -o "lowerdir=$base,upperdir=$place/upper,workdir=$place/work" "$place/root"
cd "$place/root"
mount -t proc proc proc
mount --rbind /dev dev
mkdir -p run/oj/tree run/oj/cache "./$dist"
mount --bind "$place/tree" run/oj/tree
mount --bind "$cache" run/oj/cache
mount --bind "$dist" "./$dist"
if [ -n "$mongod" ]; then
    touch run/oj/mongod
    mount --bind "$mongod" run/oj/mongod
    export OJ_MONGOD=/run/oj/mongod
fi
export OJ_CACHE=/run/oj/cache HOME=/root PATH=/usr/sbin:/usr/bin:/sbin:/bin
exec chroot . /run/oj/tree/packaging/build "$@"
"""


def directory(release: str = root.HOST) -> Path:
    """Where the flat repository of our packages for a release is."""
    return TREE / "dist" / ("apt" if release == root.HOST else f"apt-{release}")


def build(release: str = root.HOST, *options: str) -> Path:
    """Build our packages for a release unless they are up to date; gives their repository.

    `options` are further ones of packaging/build."""
    out = directory(release)
    if release == root.HOST:
        done = subprocess.run([BUILD, *options])
    else:
        with tools.locked(out.parent / f".{out.name}.lock"):
            done = _build_elsewhere(release, out, options)
    if done.returncode != 0:
        raise BedError(f"packaging/build for {release} failed, see above")
    return out


def _build_elsewhere(
    release: str, out: Path, options: tuple[str, ...]
) -> subprocess.CompletedProcess[bytes]:
    for name in ("OJ_SIGNING_KEY", "OJ_APT_URI"):
        if os.environ.get(name):
            raise BedError(
                f"{name} does not reach the build for {release}: unset it, and sign {out} "
                "afterwards with packaging/sign"
            )
    tools.install()
    _fetch_mongod()
    needs = subprocess.run([BUILD, "--needs"], check=True, stdout=subprocess.PIPE, text=True)
    base = root.base(tuple(sorted({*root.PACKAGES, *needs.stdout.split()})), release)
    cache = tools.cache_dir()
    # By the tree's name, so that a killed build's leftovers are found by the next one.
    place = cache / "builds" / hashlib.sha256(str(out).encode()).hexdigest()[:16]
    tools.remove_tree(place)
    for name in ("upper", "work", "root"):
        (place / name).mkdir(parents=True)
    try:
        _copy_sources(place / "tree")
        command = ["setpriv", "--pdeathsig", "KILL", "unshare", "--mount", "--pid", "--fork"]
        command += ["--kill-child", "sh", "-c", ENTER, "sh"]
        command += [str(path) for path in (base, place, out.parent, cache)]
        command += [os.environ.get("OJ_MONGOD", ""), "--out", str(out), *options]
        return subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            env={"PATH": tools.SEARCH_PATH, "LC_ALL": "C.UTF-8"},
        )
    finally:
        tools.remove_tree(place)


def _fetch_mongod() -> None:
    """Into the cache, from where the build takes it: the host has a network, that root has none."""
    if ctypes.util.find_library("curl") is None:  # a fetched mongod is tried
        tools.install_packages(["libcurl4"])
    fetch = TREE / "packaging" / "fetch-mongod"
    if subprocess.run([fetch], stdout=subprocess.DEVNULL).returncode != 0:
        raise BedError("packaging/fetch-mongod failed, see above")


def _copy_sources(target: Path) -> None:
    # As git lists them here, where it knows the tree.
    listed = subprocess.run([BUILD, "--list"], check=True, stdout=subprocess.PIPE, text=True)
    for name in listed.stdout.splitlines():
        (target / name).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(TREE / name, target / name, follow_symlinks=False)
