"""packaging/build: which files the packages are made of, wherever the tree came from."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest

import servers

SOURCES = {
    "daemons/oj/model.py",
    "docs/operations.md",
    "docs/pictures/task.png",
    "etc/etcd.conf",
    "packaging/build",
    "packaging/preflight.sh",
    "setup.py",
}
OTHERS = {
    "daemons/oj/__pycache__/model.cpython-311.pyc",
    "daemons/oj/rpc/ttypes.py",
    "build/junk.py",
    "packaging/demo",
    "tests/unit/test_model.py",
}


@pytest.fixture
def tree(tmp_path: Path) -> Path:
    top = tmp_path / "parent" / "oj"
    for name in SOURCES | OTHERS:
        (top / name).parent.mkdir(parents=True, exist_ok=True)
        (top / name).write_text(name)
    for name in ("build", "preflight.sh"):
        shutil.copy(servers.TREE / "packaging" / name, top / "packaging" / name)
    shutil.copy(servers.TREE / ".gitignore", top / ".gitignore")
    return top


def git(where: Path, *words: str) -> None:
    who = ("-c", "user.name=x", "-c", "user.email=x@localhost")
    subprocess.run(["git", *who, *words], cwd=where, check=True, capture_output=True)


def list_sources(tree: Path) -> set[str]:
    done = subprocess.run(
        [tree / "packaging" / "build", "--list"], capture_output=True, text=True, timeout=30
    )
    assert done.returncode == 0, done.stderr
    return set(done.stdout.splitlines())


def test_a_tree_without_git_is_taken_as_it_is(tree: Path) -> None:
    assert list_sources(tree) == SOURCES


def test_files_count_before_and_after_git_knows_them(tree: Path) -> None:
    git(tree, "init")
    assert list_sources(tree) == SOURCES
    git(tree, "add", ".")
    git(tree, "commit", "-m", "all")
    (tree / "units").mkdir()
    (tree / "units" / "new.service").write_text("")
    (tree / "setup.py").unlink()
    assert list_sources(tree) == SOURCES - {"setup.py"} | {"units/new.service"}


def test_a_tree_inside_of_another_repository_is_not_that_repositorys(tree: Path) -> None:
    (tree.parent / ".gitignore").write_text("oj\n")
    git(tree.parent, "init")
    assert list_sources(tree) == SOURCES


def test_a_tree_with_nothing_in_it_is_said_so(tree: Path) -> None:
    elsewhere = tree.parent / "empty" / "tools"
    elsewhere.mkdir(parents=True)
    for name in ("build", "preflight.sh"):
        shutil.copy(tree / "packaging" / name, elsewhere / name)
    words = [elsewhere / "build", "--list"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert f"there is nothing to build in {elsewhere.parent}" in done.stderr


def test_what_a_build_needs_is_told_with_what_the_packages_ask_for() -> None:
    done = subprocess.run(
        [servers.TREE / "packaging" / "build", "--needs"], capture_output=True, text=True
    )
    needs = done.stdout.split()
    assert (done.returncode, done.stderr) == (0, "")
    assert {"build-essential", "debhelper", "lintian", "libcurl4"} <= set(needs)
    assert {"dh-sequence-installsysusers", "libseccomp-dev", "thrift-compiler"} <= set(needs)
    assert all(re.fullmatch(r"[a-z0-9][a-z0-9+.-]+", name) for name in needs), needs


def test_there_is_a_mongod_to_fetch_for_each_architecture_of_its_package() -> None:
    packaging = servers.TREE / "packaging"
    control = (packaging / "oj-mongod" / "debian" / "control").read_text()
    (architectures,) = re.findall(r"^Architecture: (.+)$", control, re.MULTILINE)
    assert "any" not in architectures
    hashes = re.findall(
        r"^ +\[(\w+)\]=[0-9a-f]{64}$", (packaging / "fetch-mongod").read_text(), re.MULTILINE
    )
    machines = {"amd64": "x86_64", "arm64": "aarch64"}
    assert {machines[name] for name in architectures.split()} == set(hashes)


def test_the_guides_ask_for_nothing_that_a_bare_debian_lacks_or_should_not_do() -> None:
    """sudo is not there, and an unsigned repository is not to be trusted."""
    guides = [servers.TREE / "README.md", *(servers.TREE / "docs").glob("*.md")]
    guides += [*(servers.TREE / "man").iterdir(), *(servers.TREE / "daemons/oj/cli").glob("*.py")]
    for path in guides:
        text = path.read_text()
        assert "sudo " not in text, path
        assert "trusted=yes" not in text, path
