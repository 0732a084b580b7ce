"""Packages for machines that reach no network: ours, and what of Debian they need.

Debian's part is fetched once, with apt in a scratch copy of the base root, and kept in the cache
under a key of what our packages ask for; so a new build of ours fetches nothing.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

from .errors import BedError, CommandFailed, explain
from .root import DEBIAN_SOURCES
from .tools import SEARCH_PATH, cache_dir, call, locked, remove_tree

RELATIONS = ("Package", "Pre-Depends", "Depends", "Recommends")


@dataclass(frozen=True)
class Repository:
    """A flat apt repository in the bed's shared directory."""

    name: str
    path: Path

    @classmethod
    def make(
        cls,
        path: Path,
        ours: Path,
        extra: Sequence[str],
        base: Path,
        scratch: Path,
        enclosed: Callable[[Sequence[str]], list[str]],
    ) -> Repository:
        index = ours / "Packages"
        if not index.exists():
            raise BedError(f"{ours} is no flat apt repository: it has no Packages")
        fetched = _fetch(ours, extra, base, scratch, enclosed)
        path.mkdir(mode=0o755)
        for package in fetched.glob("*.deb"):
            os.link(package, path / package.name)
        for package in ours.rglob("*.deb"):
            target = path / package.relative_to(ours)
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(package, target)
        indexes = [index.read_text().strip("\n"), (fetched / "Packages").read_text()]
        (path / "Packages").write_text("\n\n".join(filter(None, indexes)))
        release = call("apt-ftparchive", "release", path)
        (path / "Release").write_text(release)
        return cls(path.name, path)


def raise_version(ours: Path, out: Path, revision: str = "+newer") -> Path:
    """Makes a repository of the same packages with `revision` behind their version, packed anew
    from those in `ours`; gives `out`, which is what Bed.repository takes. `oj --version` and what
    daemons tell of themselves have it, too."""
    out.mkdir(parents=True)
    for package in sorted(ours.glob("*.deb")):
        source, old = call("dpkg-deb", "-W", "--showformat=${Source} ${Version}", package).split(
            " "
        )
        if source != "oj":
            shutil.copyfile(package, out / package.name)
            continue
        tree = out / "tree"
        call("dpkg-deb", "--raw-extract", package, tree)
        new = old + revision
        control = tree / "DEBIAN" / "control"
        text = control.read_text().replace(f"\nVersion: {old}\n", f"\nVersion: {new}\n")
        control.write_text(text.replace(f"(= {old})", f"(= {new})"))
        for module in tree.glob("usr/lib/python3/dist-packages/oj/__init__.py"):
            module.write_text(module.read_text().replace(f'"{old}"', f'"{new}"'))
        call("dpkg-deb", "-Znone", "--build", tree, out / f"{package.stem}{revision}.deb")
        remove_tree(tree)
    (out / "Packages").write_text(_index(out))
    return out


def _index(directory: Path) -> str:
    # Names as apt spells them in a flat repository, which depends on where it is asked from.
    done = subprocess.run(
        ["apt-ftparchive", "packages", "."],
        cwd=directory, capture_output=True, text=True, check=True, env=_environment(),
    )  # fmt: skip
    return done.stdout


def _relations(ours: Path) -> list[dict[str, str]]:
    """What each of our packages asks for, from the repository's index."""
    found = []
    for paragraph in (ours / "Packages").read_text().split("\n\n"):
        fields = dict(
            line.split(": ", 1)
            for line in paragraph.splitlines()
            if ": " in line and line[0] != " "
        )
        if "Package" in fields:
            found.append({name: fields[name] for name in RELATIONS if name in fields})
    return sorted(found, key=lambda package: package["Package"])


def _fetch(
    ours: Path,
    extra: Sequence[str],
    base: Path,
    scratch: Path,
    enclosed: Callable[[Sequence[str]], list[str]],
) -> Path:
    wanted = _relations(ours)
    names = sorted({package["Package"] for package in wanted} | set(extra))
    text = repr((base.name, _without_own_versions(wanted), sorted(extra)))
    done = cache_dir() / "packages" / hashlib.sha256(text.encode()).hexdigest()[:16]
    if done.exists():
        return done
    with locked(done.with_suffix(".lock")):
        if done.exists():
            return done
        making = done.with_suffix(".making")
        remove_tree(making)
        making.mkdir()
        root = _scratch_root(scratch, base, ours)
        try:
            apt = ["chroot", str(root), "apt-get", "-q", "-y", *_proxy_options()]
            apt += ["-o", f"Dir::Etc::SourceList=/{DEBIAN_SOURCES}"]
            for action in (["update"], ["--download-only", "install", *names]):
                _run(enclosed([*apt, *action]), f"apt-get {' '.join(action)}")
            for package in (root / "var/cache/apt/archives").glob("*.deb"):
                shutil.copyfile(package, making / package.name)
        except CommandFailed as failure:
            raise explain(
                failure,
                "fetch what the packages need",
                "let this machine reach a mirror of Debian, or set OJ_CACHE to a full cache",
                "set OJ_CACHE to a directory with more room",
            ) from failure
        finally:
            remove_tree(scratch)
        # Once here, as it reads every byte.
        (making / "Packages").write_text(_index(making))
        making.rename(done)
    return done


def _without_own_versions(wanted: list[dict[str, str]]) -> list[dict[str, str]]:
    """The relations with those between our own packages left out: these carry the version of the
    build and would make each build look like new demands."""
    own = {package["Package"] for package in wanted}

    def foreign(relation: str) -> str:
        parts = (part.strip() for part in relation.split(","))
        return ", ".join(sorted(part for part in parts if part.split(" ")[0] not in own))

    return [
        {name: text if name == "Package" else foreign(text) for name, text in package.items()}
        for package in wanted
    ]


def _scratch_root(scratch: Path, base: Path, ours: Path) -> Path:
    for name in ("upper", "work", "root"):
        (scratch / name).mkdir(parents=True)
    root = scratch / "root"
    call(
        "mount", "-t", "overlay", "overlay", "-o",
        f"lowerdir={base},upperdir={scratch}/upper,workdir={scratch}/work", root,
    )  # fmt: skip
    (root / "srv/ours").mkdir()
    call("mount", "--bind", "-o", "ro", ours.resolve(), root / "srv/ours")
    (root / "etc/apt/sources.list.d/ours.list").write_text("deb [trusted=yes] file:/srv/ours ./\n")
    for name in ("etc/resolv.conf", "etc/hosts"):
        if (Path("/") / name).exists():
            shutil.copyfile(Path("/") / name, root / name)
    return root


def _proxy_options() -> list[str]:
    """The host's own way to Debian's mirrors."""
    options = []
    for line in call("apt-config", "dump").splitlines():
        name, _, value = line.rstrip(";").partition(" ")
        if name.startswith("Acquire::http") and name.endswith("::Proxy"):
            options += ["-o", f"{name}={value.strip(chr(34))}"]
    return options


def _environment() -> dict[str, str]:
    return os.environ | {"PATH": SEARCH_PATH, "DEBIAN_FRONTEND": "noninteractive", "LC_ALL": "C"}


def _run(command: list[str], what: str) -> None:
    done = subprocess.run(command, capture_output=True, text=True, env=_environment())
    if done.returncode != 0:
        reason = apt_reason(done.stdout, done.stderr)
        raise CommandFailed(f"{reason}\n{what}", done.returncode, done.stdout, done.stderr)


def apt_reason(stdout: str, stderr: str) -> str:
    """Why apt did not do it, in a line: what does not fit, or else its first error."""
    _, found, rest = stdout.partition("The following packages have unmet dependencies:\n")
    # Each line is ' PACKAGE : Depends: OTHER but it is not installable'.
    unmet = [line for line in rest.splitlines() if found and line.startswith(" ")]
    errors = [line for line in stderr.splitlines() if line.startswith("E: ")]
    return " ".join((unmet or errors or ["apt-get gave no reason"])[0].split())
