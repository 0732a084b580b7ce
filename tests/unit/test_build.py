"""packaging/build: which files the packages are made of, wherever the tree came from."""

from __future__ import annotations

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
    shutil.copy(servers.TREE / "packaging" / "build", top / "packaging" / "build")
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
    shutil.copy(tree / "packaging" / "build", elsewhere / "build")
    words = [elsewhere / "build", "--list"]
    done = subprocess.run(words, capture_output=True, text=True, timeout=30)
    assert done.returncode == 1
    assert f"there is nothing to build in {elsewhere.parent}" in done.stderr
