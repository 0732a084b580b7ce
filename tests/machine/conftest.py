"""Machines shared by the tests: packages are installed once, and disks are replayed from there.

Machines are of the host's release of Debian, or of that which OJ_RELEASE names: then all tests run
there, or with `-m each_release` the chosen part that tests/run repeats on the other release.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from bed import Bed, Machine, Repository, build, raise_version, root
from bed.machine import Disk
from node import Node

TREE = Path(__file__).resolve().parents[2]
RELEASE = os.environ.get("OJ_RELEASE", root.HOST)
PACKAGES = Path(os.environ.get("OJ_PACKAGES", build.directory(RELEASE)))
WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")
ARTEFACTS = TREE / "build" / "machine-logs" / f"{RELEASE}{WORKER}"


@pytest.fixture(scope="session")
def cluster_bed(request: pytest.FixtureRequest) -> Iterator[Bed]:
    with Bed(release=RELEASE) as bed:
        failed_before = request.session.testsfailed
        yield bed
        if request.session.testsfailed > failed_before:
            bed.save_logs(ARTEFACTS)


@pytest.fixture(scope="session")
def repository(cluster_bed: Bed) -> Repository:
    assert (PACKAGES / "Packages").exists(), f"no packages in {PACKAGES}: tests/bed builds them"
    return cluster_bed.repository(PACKAGES)


@pytest.fixture(scope="session")
def newer(cluster_bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """The same packages with a higher version."""
    return cluster_bed.repository(raise_version(PACKAGES, tmp_path_factory.mktemp("newer") / "apt"))


@pytest.fixture(scope="session")
def installed(cluster_bed: Bed, repository: Repository) -> Disk:
    """The disk of a machine on which the packages were installed, and nothing more was done."""
    machine = cluster_bed.machine("seed")
    machine.boot()
    machine.add_repository(repository)
    machine.install("oj-judicator", "oj-executor")
    # Machine identity and journal are each machine's own.
    machine.run("rm -rf /var/log/journal/* && truncate -s0 /etc/machine-id", check=False)
    machine.shut_down()
    return machine.save_disk("installed")


@pytest.fixture(scope="session")
def node(cluster_bed: Bed, installed: Disk) -> Node:
    """A running single node: judicator and executor as installed, nothing edited."""
    machine: Machine = cluster_bed.machine("n1", installed)
    machine.boot()
    node = Node(machine)
    node.start()
    return node


@pytest.fixture
def healthy_node(node: Node) -> Iterator[Node]:
    """The node with every unit serving, before and after the test."""
    node.wait_until_serving()
    yield node
    node.wait_until_serving()
