"""oj-etcd's settings and etcd's command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from oj.errors import BadSettings
from oj.etcd import argv


def load(tmp_path: Path, text: str) -> argv.Settings:
    path = tmp_path / "etcd.conf"
    path.write_text(text)
    return argv.load(path)


def test_the_shipped_file_makes_a_single_member_on_loopback() -> None:
    found = argv.load(Path(__file__).parents[2] / "etc" / "etcd.conf")
    words = argv.initial_command(found, "token")
    assert words[0] == "etcd"
    assert "--data-dir=/var/lib/oj/etcd" in words
    assert "--listen-client-urls=http://127.0.0.1:7501" in words
    assert f"--initial-cluster={found.name}=http://127.0.0.1:7502" in words
    assert "--initial-cluster-state=new" in words


def test_a_member_advertises_the_name_that_others_know(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        "name = n1\nclient = 0.0.0.0:7501\npeer = [::]:7502\nadvertise = n1.example.org\n",
    )
    words = argv.member_command(found)
    assert "--listen-peer-urls=http://[::]:7502" in words
    assert "--initial-advertise-peer-urls=http://n1.example.org:7502" in words
    assert "--advertise-client-urls=http://n1.example.org:7501" in words
    assert found.local == ("127.0.0.1", 7501)


def test_a_proxy_passes_on_to_the_members_it_is_given(tmp_path: Path) -> None:
    found = load(tmp_path, "mode = proxy\n[cluster]\njoin = a:7501, [fd00::1]:7501\n")
    words = argv.proxy_command(found, ["a:7501", "[fd00::1]:7501"])
    assert words[:3] == ["etcd", "grpc-proxy", "start"]
    assert "--endpoints=a:7501,[fd00::1]:7501" in words
    assert "--listen-addr=127.0.0.1:7501" in words


def test_a_member_that_joins_lists_the_others_and_itself(tmp_path: Path) -> None:
    found = load(
        tmp_path,
        "name = n2\nclient = 0.0.0.0:7501\npeer = 0.0.0.0:7502\nadvertise = b\n"
        "[cluster]\njoin = a:7501\n",
    )
    assert not found.init
    words = argv.joining_command(found, [("n1", "http://a:7502"), ("77", "http://b:7502")])
    assert [word for word in words if word.startswith("--initial-cluster")] == [
        "--initial-cluster=n1=http://a:7502,n2=http://b:7502",
        "--initial-cluster-state=existing",
    ]


def test_each_new_cluster_has_ids_of_its_own(tmp_path: Path) -> None:
    found = load(tmp_path, "name = n1\n")
    assert "--initial-cluster-token=oj-one" in argv.initial_command(found, "one")


@pytest.mark.parametrize(
    ("text", "mistakes"),
    [
        ("name = a/b\n", ["1: name:"]),
        ("data = here\n", ["1: data:"]),
        ("client = localghost:1\n", ["1: client:"]),
        ("client = 0.0.0.0:1\npeer = 0.0.0.0:2\n", ["1: client:", "2: peer:"]),
        ("peer = 127.0.0.1:7501\n", ["1: peer:"]),
        ("heartbeat = 1s\nelection = 2s\n", ["2: election:"]),
        ("heartbeat = 1us\n", ["1: heartbeat:"]),
        ("mode = proxy\n", [" cluster.join:"]),
        ("mode = proxy\n[cluster]\ninit = yes\njoin = a:1\n", ["3: cluster.init:"]),
        ("[cluster]\ninit = yes\njoin = a:1\n", ["2: cluster.init:"]),
        ("[cluster]\ninit = no\n", ["2: cluster.init:"]),
        ("[cluster]\nexpect = 3\n", ["2: cluster.expect:"]),
    ],
)
def test_settings_that_do_not_fit_together_are_refused(
    tmp_path: Path, text: str, mistakes: list[str]
) -> None:
    with pytest.raises(BadSettings) as caught:
        load(tmp_path, text)
    assert len(caught.value.mistakes) == len(mistakes), caught.value.mistakes
    for told, expected in zip(caught.value.mistakes, mistakes, strict=True):
        assert expected in told
