"""`oj setup --join` against a real etcd: what it learns there, and what it refuses."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest

import servers
from oj.etcd.datadir import DataDirectory, Known
from oj.node import data
from oj.node.peers import find, runs
from oj.registry import Registry
from oj.settings import parse_address

OJ = [servers.PYTHON, str(servers.TREE / "daemons" / "bin" / "oj")]
ROLES = ("etcd", "mongodb", "judicator", "executor", "gateway", "client")


@pytest.fixture(scope="module")
def cluster() -> Iterator[servers.Etcd]:
    """An etcd of its own: others register here, and their names must not get lost."""
    server = servers.Etcd().start()
    with Registry(parse_address(server.address), timeout_s=20) as registry:
        for number in (1, 2):
            registry.put(f"judicator/service/n{number}", f"10.9.0.{number}:7500")
            registry.put(f"mongodb/member/n{number}", f"10.9.0.{number}:7503")
    yield server
    server.close()


@pytest.fixture
def image(tmp_path: Path) -> Path:
    (tmp_path / "etc/oj").mkdir(parents=True)
    for role in ROLES:
        shutil.copy(servers.TREE / f"etc/{role}.conf", tmp_path / "etc/oj")
    return tmp_path


def oj_setup(image: Path, *words: str, code: int = 0) -> subprocess.CompletedProcess[str]:
    done = subprocess.run(
        [*OJ, "setup", *words, "--root", str(image), "--json", "--timeout", "5s"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(servers.TREE / "daemons")},
        timeout=120,
    )
    assert done.returncode == code, f"{done.returncode}\n{done.stdout}\n{done.stderr}"
    assert "Traceback" not in done.stderr
    return done


def join(image: Path, cluster: servers.Etcd, role: str, *words: str, code: int = 0) -> str:
    place = ["--address", "10.9.0.7"] if role == "judicator" else []
    done = oj_setup(
        image, role, "--join", cluster.address, "--name", "n7", *place, *words, code=code
    )
    return done.stdout + done.stderr


def changes(said: str) -> dict[str, str]:
    return {f"{c['file']} {c['key']}": c["new"] for c in json.loads(said)["changes"]}


def test_an_executor_learns_members_and_judicators(image: Path, cluster: servers.Etcd) -> None:
    told = changes(join(image, cluster, "executor"))
    assert told["etcd.conf cluster.join"] == cluster.address
    assert told["executor.conf judicators"] == "10.9.0.1:7500, 10.9.0.2:7500"
    assert told["etcd.conf mode"] == "proxy"
    assert json.loads(join(image, cluster, "executor"))["nothing_to_do"]


def test_a_proxy_forgets_the_members_of_another_cluster(image: Path, cluster: servers.Etcd) -> None:
    proxy = DataDirectory(image / "var/lib/oj/etcd/grpc-proxy")
    proxy.prepare()
    proxy.write_known(Known(clients=("10.8.0.1:7501", cluster.address)))
    join(image, cluster, "executor")
    assert cluster.address in proxy.read_known().clients, "some of it is this cluster"
    proxy.write_known(Known(clients=("10.8.0.1:7501", "10.8.0.2:7501")))
    assert proxy.known.exists()
    join(image, cluster, "executor", "--dry-run")
    assert proxy.read_known().clients
    join(image, cluster, "executor")
    assert not proxy.known.exists()


def test_a_gateway_learns_judicators_and_listens_for_everybody(
    image: Path, cluster: servers.Etcd
) -> None:
    told = changes(join(image, cluster, "gateway"))
    assert told["etcd.conf cluster.join"] == cluster.address
    assert told["etcd.conf mode"] == "proxy"
    assert told["gateway.conf judicators"] == "10.9.0.1:7500, 10.9.0.2:7500"
    assert told["gateway.conf listen"] == "0.0.0.0:7580"
    assert json.loads(join(image, cluster, "gateway"))["nothing_to_do"]


def test_a_judicator_learns_databases_too(image: Path, cluster: servers.Etcd) -> None:
    told = changes(join(image, cluster, "judicator"))
    assert told["judicator.conf mongodb"] == "127.0.0.1:7503, 10.9.0.1:7503, 10.9.0.2:7503"
    assert told["judicator.conf etcd"] == f"127.0.0.1:7501, {cluster.address}"
    assert json.loads(join(image, cluster, "judicator"))["nothing_to_do"]


def test_a_proxy_is_no_member_to_join(image: Path, cluster: servers.Etcd) -> None:
    proxy = servers.EtcdProxy(cluster.address)
    try:
        # Its judicators are named to it, but none of them is there.
        done = oj_setup(image, "executor", "--join", proxy.address, "--timeout", "1s", code=3)
        assert "does not answer" in done.stderr
    finally:
        proxy.close()


def test_the_name_of_another_node_is_refused(image: Path, cluster: servers.Etcd) -> None:
    words = ("--join", cluster.address, "--address", "10.9.0.7", "--name", "test")
    said = oj_setup(image, "judicator", *words, code=2).stderr
    assert "a node test at 127.0.0.1 already" in said and "oj remove test" in said


def test_a_name_is_compared_with_the_cluster_that_the_files_name(image: Path) -> None:
    alone = servers.Etcd().start()
    try:
        oj_setup(image, "executor", "--join", alone.address, "--name", "n7")
        # As the sentence of an executor that runs twice says it.
        said = oj_setup(image, "executor", "--name", "test", code=2).stderr
        assert "the cluster has a judicator test at 127.0.0.1" in said
        told = oj_setup(image, "executor", "--name", "n8").stdout
        # Nothing else is taken from it.
        assert {key.partition(" ")[2] for key in changes(told)} == {"name"}
        # A judicator is not made an executor by the way.
        etcd, conf = image / "var/lib/oj/etcd", image / "etc/oj/etcd.conf"
        shutil.copytree(alone.directory / "etcd", etcd, dirs_exist_ok=True)
        conf.write_text(conf.read_text().replace("name = n8", "name = test"))
        said = oj_setup(image, "executor", "--name", "n9", code=2).stderr
        assert "this node is a judicator, test, of the cluster" in said and "oj leave" in said
        shutil.rmtree(etcd)
    finally:
        alone.close()
    # A cluster that is away is no hindrance.
    oj_setup(image, "executor", "--name", "n9")


def fill(image: Path) -> Path:
    """Data as a node has it that was up alone."""
    other = servers.Etcd().start()
    other.kill()
    target = image / "var/lib/oj/etcd"
    shutil.copytree(other.directory / "etcd", target)
    other.close()
    mongodb = image / "var/lib/oj/mongodb"
    mongodb.mkdir()
    (mongodb / "WiredTiger").write_text("tasks")
    return mongodb


def test_tasks_of_its_own_are_not_hidden_unless_told(image: Path, cluster: servers.Etcd) -> None:
    mongodb = fill(image)
    assert "--set-data-aside" in join(image, cluster, "judicator", code=2)
    assert (mongodb / "WiredTiger").exists()
    join(image, cluster, "judicator", "--set-data-aside")
    (kept,) = mongodb.iterdir()
    assert kept.name.startswith("kept-") and (kept / "WiredTiger").read_text() == "tasks"
    (aside,) = (image / "var/lib/oj/etcd").iterdir()
    assert aside.name.startswith("set-aside-")


def test_a_name_may_have_addresses_where_nobody_answers(image: Path, cluster: servers.Etcd) -> None:
    conf = image / "etc/oj/etcd.conf"
    port = cluster.address.rpartition(":")[2]
    conf.write_text(f"client = 127.0.0.1:{port}\n" + conf.read_text())
    told = oj_setup(image, "executor", "--name", "n7", "--discover", "127.0.0.1 127.0.0.2").stdout
    assert json.loads(told)["members"] == ["test"]
    assert changes(told)["executor.conf judicators"] == "10.9.0.1:7500, 10.9.0.2:7500"
    assert changes(told)["etcd.conf cluster.discover"] == "127.0.0.1 127.0.0.2"


def test_a_name_leads_on_though_the_cluster_has_no_majority_for_a_moment(image: Path) -> None:
    alone = servers.Etcd().start()
    try:
        # A second member that never comes: neither has a majority from now on.
        alone.ctl("member", "add", "n9", "--peer-urls=http://127.0.0.1:1")
        assert find([parse_address(alone.address)], 1.0).problem
        conf = image / "etc/oj/etcd.conf"
        port = alone.address.rpartition(":")[2]
        conf.write_text(f"client = 127.0.0.1:{port}\n" + conf.read_text())
        told = oj_setup(image, "executor", "--name", "n7", "--discover", "127.0.0.1").stdout
        assert changes(told)["etcd.conf cluster.discover"] == "127.0.0.1"
        assert json.loads(told)["members"] == []
        # Who names a member to join is told, as before.
        said = oj_setup(image, "executor", "--name", "n7", "--join", alone.address, code=3).stderr
        assert "has no majority now" in said
    finally:
        alone.close()


def test_who_looks_for_others_by_a_name_does_not_go_on_alone(image: Path) -> None:
    mongodb, etcd = fill(image), image / "var/lib/oj/etcd"
    words = ("judicator", "--discover", "127.0.0.9", "--address", "10.9.0.7")
    assert "--set-data-aside" in oj_setup(image, *words, code=2).stderr
    oj_setup(image, *words, "--set-data-aside")
    assert [p.name.partition("-2")[0] for p in mongodb.iterdir()] == ["kept"]
    assert [p.name.partition("-2")[0] for p in etcd.iterdir()] == ["set-aside"]
    # What it has got since is the cluster's, though nobody else of it answers just now.
    (mongodb / "WiredTiger").write_text("tasks of all")
    (etcd / "member").mkdir()
    assert json.loads(oj_setup(image, *words).stdout)["nothing_to_do"]


def test_data_of_the_cluster_itself_stays(image: Path, cluster: servers.Etcd) -> None:
    etcd = image / "var/lib/oj/etcd"
    shutil.copytree(cluster.directory / "etcd", etcd)
    found = find([parse_address(cluster.address)], 5)
    assert found.owns(data.read_origin(etcd), {"test"})
    assert not found.owns(data.read_origin(etcd), {"n7"}), "made alike, but another's"
    # As the member that the cluster knows by this name and address.
    words = ("--name", "test", "--join", cluster.address)
    said = oj_setup(image, "executor", *words, code=2).stderr
    assert "oj leave" in said
    assert (etcd / "member").is_dir()


def test_a_copy_of_a_members_data_does_not_pass_for_the_member(
    image: Path, cluster: servers.Etcd
) -> None:
    etcd = image / "var/lib/oj/etcd"
    shutil.copytree(cluster.directory / "etcd", etcd)
    conf = image / "etc/oj/etcd.conf"
    conf.write_text(
        "name = test\nadvertise = 10.9.0.1\n" + conf.read_text().replace("\nname =", "\n#name =")
    )
    before = conf.read_text()
    said = join(image, cluster, "judicator", code=2)
    assert "the data here is a copy of test's, which runs at 127.0.0.1" in said
    (command,) = re.findall("'oj (setup .*)'", said)
    words = f"setup judicator --join {cluster.address.partition(':')[0]} --name n7"
    assert command == f"{words} --set-data-aside"
    # As the member itself: there is no name for it but another one.
    again = oj_setup(
        image, "judicator", "--join", cluster.address, "--name", "test", "--set-data-aside",
        "--address", "10.9.0.7", code=2,
    ).stderr  # fmt: skip
    assert "--name NAME --set-data-aside" in again
    assert conf.read_text() == before and (etcd / "member").is_dir()
    told = changes(join(image, cluster, "judicator", "--set-data-aside"))
    assert told["etcd.conf name"] == "n7" and told["etcd.conf advertise"] == "10.9.0.7"
    (aside,) = etcd.iterdir()
    assert aside.name.startswith("set-aside-")


def test_a_copy_by_another_name_does_not_hide_its_tasks(image: Path, cluster: servers.Etcd) -> None:
    # It is no member that was taken out: the cluster has not what was confirmed here since.
    shutil.copytree(cluster.directory / "etcd", image / "var/lib/oj/etcd")
    mongodb = image / "var/lib/oj/mongodb"
    mongodb.mkdir()
    (mongodb / "WiredTiger").write_text("tasks")
    assert "--set-data-aside" in join(image, cluster, "judicator", code=2)
    assert (mongodb / "WiredTiger").exists()
    join(image, cluster, "judicator", "--set-data-aside")
    assert [p.name.partition("-2")[0] for p in mongodb.iterdir()] == ["kept"]


def test_a_member_that_was_purged_has_the_name_of_its_data_again(image: Path) -> None:
    """Its files, which had the name, are new; the host is called otherwise."""
    alone = servers.Etcd(advertise="10.9.0.7").start()
    try:
        etcd, mongodb = image / "var/lib/oj/etcd", image / "var/lib/oj/mongodb"
        shutil.copytree(alone.directory / "etcd", etcd)
        mongodb.mkdir()
        (mongodb / "WiredTiger").write_text("tasks")
        words = ("judicator", "--join", alone.address, "--address", "10.9.0.7")
        said = oj_setup(image, *words, code=2).stderr
        assert "--set-data-aside" in said, "data may be alike: it never knew others of the cluster"
        DataDirectory(etcd).write_known(Known(clients=("10.9.0.8:7501", alone.address)))
        said = oj_setup(image, *words, "--name", "n9", code=2).stderr
        assert "the data here is of test of that cluster: say --name test" in said
        said = oj_setup(image, *words, "--address", "10.9.0.8", code=2).stderr
        assert "--set-data-aside" in said, "at another address it is no member that is known"
        told = json.loads(oj_setup(image, *words).stdout)
        assert told["name"] == "test" and told["set_aside"] == []
        assert told["notes"] == ["the data here is of test, so that this node has that name again"]
        assert changes(json.dumps(told))["mongodb.conf name"] == "test"
        assert (mongodb / "WiredTiger").exists() and (etcd / "member").is_dir()
        assert json.loads(oj_setup(image, *words, "--name", "test").stdout)["nothing_to_do"]
    finally:
        alone.close()


def test_the_only_judicator_that_was_purged_has_the_name_of_its_data_again(image: Path) -> None:
    fill(image)
    etcd = image / "var/lib/oj/etcd"
    origin = data.read_origin(etcd)
    assert origin
    notes = DataDirectory(etcd)
    known = Known(origin.cluster_id, origin.member_id, own_name="n3", own_address="10.9.0.7:7502")
    words = ("judicator", "--address", "10.9.0.7", "--dry-run")
    notes.write_known(replace(known, member_id=1))  # of other data
    assert json.loads(oj_setup(image, *words).stdout)["name"] != "n3"
    notes.write_known(known)
    told = oj_setup(image, *words).stdout
    assert json.loads(told)["name"] == "n3"
    assert changes(told)["etcd.conf name"] == changes(told)["judicator.conf name"] == "n3"
    assert json.loads(oj_setup(image, *words, "--name", "n9").stdout)["name"] == "n9"


def test_a_member_that_does_not_answer_has_no_copy(image: Path) -> None:
    alone = servers.Etcd().start()
    shutil.copytree(alone.directory / "etcd", image / "var/lib/oj/etcd")
    found = find([parse_address(alone.address)], 5)
    member = found.member_of(data.read_origin(image / "var/lib/oj/etcd"))
    assert member and runs(member, 5)
    alone.kill()
    assert not runs(member, 5)
    alone.close()


def test_a_node_that_left_comes_back_with_join_only(image: Path, cluster: servers.Etcd) -> None:
    mongodb = fill(image)
    for path in (mongodb, image / "var/lib/oj/etcd"):
        (path / "left").write_text("")
    said = oj_setup(image, "judicator", "--address", "10.9.0.7", code=2).stderr
    assert "has left its cluster" in said
    join(image, cluster, "judicator")
    for path in (mongodb, image / "var/lib/oj/etcd"):
        assert [p.name.partition("-2")[0] for p in path.iterdir()] == ["set-aside"]
