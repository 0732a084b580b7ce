"""What `oj setup` writes: edits of conf files, and which ones a role needs."""

import contextlib
import json
import os
import socket
import struct
import subprocess
import time
from pathlib import Path

import pytest

import servers
from oj import etcdmessages, settings
from oj.cli import setup
from oj.clock import Deadline
from oj.errors import Rejected, Unavailable
from oj.etcdmessages import Member
from oj.node import address, conf, data, peers
from oj.node.conf import Edit, apply, read_value
from oj.node.files import Files
from oj.node.outlook import Outlook, can_wait
from oj.node.plan import Peers, Wish, make_edits
from oj.node.preflight import Preflight

TREE = Path(__file__).resolve().parents[2]
OJ = [servers.PYTHON, str(TREE / "daemons" / "bin" / "oj")]
ROLES = ("etcd", "mongodb", "judicator", "executor", "gateway", "client")
PEERS = Peers(
    etcd=("10.0.0.1:7501", "10.0.0.3:7501"),
    databases=("10.0.0.1:7503", "10.0.0.3:7503"),
    judicators=("10.0.0.1:7500", "10.0.0.3:7500"),
)


# --- edits -------------------------------------------------------------------------------------


def edit(text, key, value, section=""):
    return apply(text, [Edit("r", key, value, section)])[0]


def test_a_key_that_is_set_keeps_its_place_and_the_remark_behind_it():
    text = "a = 1\n# on b\nb = 2  # ours\nc = 3\n"
    assert edit(text, "b", "7") == "a = 1\n# on b\nb = 7  # ours\nc = 3\n"


def test_a_key_that_is_shown_as_a_comment_is_set_right_after_it():
    text = "# About b.\n#b = 2\n\nc = 3\n"
    assert edit(text, "b", "7") == "# About b.\n#b = 2\nb = 7\n\nc = 3\n"


def test_an_unknown_key_goes_to_the_end_of_its_section():
    text = "a = 1\n\n# the next\n[s]\n#x = 1\n\n[t]\ny = 1\n"
    assert edit(text, "b", "7") == "a = 1\nb = 7\n\n# the next\n[s]\n#x = 1\n\n[t]\ny = 1\n"
    assert edit(text, "z", "7", "s") == "a = 1\n\n# the next\n[s]\n#x = 1\nz = 7\n\n[t]\ny = 1\n"
    assert edit(text, "z", "7", "u") == text + "\n[u]\nz = 7\n"


def test_a_key_of_another_section_is_not_touched():
    text = "[s]\nb = 1\n[t]\nb = 2\n"
    assert edit(text, "b", "7", "t") == "[s]\nb = 1\n[t]\nb = 7\n"
    assert read_value(text, "b") is None
    assert read_value(text, "b", "s") == "1"


def test_what_is_so_already_is_no_change():
    text = "a = 1, 2\n"
    assert apply(text, [Edit("r", "a", "1, 2")]) == (text, [])


@pytest.mark.parametrize("role", ROLES)
def test_our_own_files_are_still_valid_after_an_edit_and_only_lines_are_added(role):
    text = (TREE / "etc" / f"{role}.conf").read_text()
    every = make_edits(wish("judicator", "executor", "gateway"), values())
    new, changes = apply(text, [e for e in every if e.role == role])
    assert changes
    kept = [line for line in new.splitlines() if line in text.splitlines()]
    assert kept == text.splitlines()
    assert len(new.splitlines()) == len(text.splitlines()) + len(changes)


# --- the plan ----------------------------------------------------------------------------------


def values(**texts):
    """The settings in force with our own files, or with these texts."""
    found = {}
    for role in ROLES:
        path = TREE / "etc" / f"{role}.conf"
        found[role] = settings.read(path, role)
        found[role].update(texts.get(role, {}))
    return found


def wish(*roles, **more):
    more.setdefault("address", "10.0.0.2")
    more.setdefault("peers", PEERS)
    return Wish(roles or ("judicator", "executor"), **more)


def as_dict(edits):
    return {(e.role, e.path): e.value for e in edits}


def test_the_first_judicator_listens_for_others_and_joins_nobody():
    edits = as_dict(make_edits(wish("judicator", peers=None), values()))
    assert edits == {
        ("etcd", "client"): "0.0.0.0:7501",
        ("etcd", "peer"): "0.0.0.0:7502",
        ("etcd", "advertise"): "10.0.0.2",
        ("mongodb", "listen"): "0.0.0.0:7503",
        ("mongodb", "advertise"): "10.0.0.2:7503",
        ("judicator", "listen"): "0.0.0.0:7500",
        ("judicator", "advertise"): "10.0.0.2:7500",
    }


def test_a_further_judicator_joins_all_members_and_asks_its_own_etcd_first():
    edits = as_dict(make_edits(wish("judicator"), values()))
    assert edits["etcd", "cluster.join"] == "10.0.0.1:7501, 10.0.0.3:7501"
    local_first = "127.0.0.1:7501, 10.0.0.1:7501, 10.0.0.3:7501"
    assert edits["mongodb", "etcd"] == edits["judicator", "etcd"] == local_first
    assert edits["judicator", "mongodb"] == "127.0.0.1:7503, 10.0.0.1:7503, 10.0.0.3:7503"
    assert edits["client", "judicators"] == "127.0.0.1:7500, 10.0.0.1:7500, 10.0.0.3:7500"


def test_an_executor_has_a_proxy_and_knows_the_judicators():
    edits = as_dict(make_edits(wish("executor", address=""), values()))
    assert edits == {
        ("etcd", "mode"): "proxy",
        ("etcd", "cluster.join"): "10.0.0.1:7501, 10.0.0.3:7501",
        ("executor", "judicators"): "10.0.0.1:7500, 10.0.0.3:7500",
        ("client", "judicators"): "10.0.0.1:7500, 10.0.0.3:7500",
        ("client", "etcd"): "127.0.0.1:7501",
    }


def test_a_gateway_has_a_proxy_knows_the_judicators_and_listens_for_everybody():
    edits = as_dict(make_edits(wish("gateway", address=""), values()))
    assert edits == {
        ("etcd", "mode"): "proxy",
        ("etcd", "cluster.join"): "10.0.0.1:7501, 10.0.0.3:7501",
        ("gateway", "judicators"): "10.0.0.1:7500, 10.0.0.3:7500",
        ("gateway", "listen"): "0.0.0.0:7580",
        ("client", "judicators"): "10.0.0.1:7500, 10.0.0.3:7500",
        ("client", "etcd"): "127.0.0.1:7501",
    }


def test_a_gateway_behind_a_web_server_of_its_machine_stays_there():
    now = values()
    now["gateway"]["access"]["proxies"] = ["127.0.0.1/32"]
    edits = as_dict(make_edits(wish("gateway", address=""), now))
    assert ("gateway", "listen") not in edits
    assert edits["gateway", "judicators"] == "10.0.0.1:7500, 10.0.0.3:7500"


def test_a_name_is_written_for_every_daemon_of_the_node():
    edits = make_edits(wish(name="n2"), values())
    assert {e.role for e in edits if e.key == "name"} == {
        "etcd",
        "mongodb",
        "judicator",
        "executor",
    }


def test_ports_and_addresses_that_the_administrator_chose_stay():
    now = values(
        etcd={"client": ("10.0.0.2", 8501)},
        judicator={"listen": ("127.0.0.1", 8500)},
    )
    edits = as_dict(make_edits(wish("judicator"), now))
    assert ("etcd", "client") not in edits
    assert edits["judicator", "listen"] == "0.0.0.0:8500"
    assert edits["judicator", "advertise"] == "10.0.0.2:8500"
    assert edits["judicator", "etcd"].startswith("10.0.0.2:8501, ")


def test_a_list_of_the_same_hosts_under_other_names_stays():
    now = values()
    now["etcd"]["cluster"]["join"] = [("n3", 7501), ("n1", 7501)]
    names = {"n1": "10.0.0.1", "n3": "10.0.0.3"}
    edits = as_dict(make_edits(wish("judicator"), now, lambda host: names.get(host, host)))
    assert ("etcd", "cluster.join") not in edits


def test_who_joins_does_not_make_a_cluster():
    now = values()
    now["etcd"]["cluster"]["init"] = True
    edits = as_dict(make_edits(wish("judicator"), now))
    assert edits["etcd", "cluster.init"] == "no"


def test_a_node_with_ipv6_listens_on_it():
    edits = as_dict(make_edits(wish("judicator", address="fd00::2", peers=None), values()))
    assert edits["etcd", "client"] == "[::]:7501"
    assert edits["mongodb", "advertise"] == "[fd00::2]:7503"


@pytest.mark.parametrize(
    "roles", [("judicator",), ("executor",), ("gateway",), ("judicator", "executor", "gateway")]
)
def test_a_second_run_changes_nothing(roles, tmp_path):
    asked = wish(*roles, address="10.0.0.2" if "judicator" in roles else "")
    texts = {role: (TREE / "etc" / f"{role}.conf").read_text() for role in ROLES}
    before = dict(texts)
    for again in (False, True):
        now = {}
        for role, text in texts.items():
            (tmp_path / f"{role}.conf").write_text(text)
            now[role] = settings.read(tmp_path / f"{role}.conf", role)
        edits = make_edits(asked, now)
        for role in ROLES:
            new, changes = apply(texts[role], [e for e in edits if e.role == role])
            assert not (again and changes)
            texts[role] = new
    assert texts != before


@pytest.mark.parametrize(
    ("key", "new", "role", "waits"),
    [
        ("etcd", "127.0.0.1:7501, 10.0.0.1:7501", "judicator", True),  # one more than by default
        ("etcd", "10.0.0.1:7501", "judicator", False),
        ("listen", "0.0.0.0:7500", "judicator", False),
        ("join", "10.0.0.1:7501", "judicator", True),  # it has joined
        ("join", "10.0.0.1:7501", "executor", False),
    ],
)
def test_a_daemon_that_serves_is_not_started_again_for_a_longer_list(key, new, role, waits):
    section = "cluster" if key == "join" else ""
    edit = Edit("etcd" if key == "join" else "judicator", key, new, section)
    change = conf.Change(edit, None)
    assert can_wait(change, values()[edit.role], wish(role)) is waits


# --- the cluster as it tells of itself -----------------------------------------------------------


def cluster(asked="10.0.0.1", third="10.0.0.3"):
    members = [(1, "n1", "10.0.0.1"), (2, "n2", "10.0.0.2"), (3, "n3", third)]
    return peers.Cluster(
        7,
        asked,
        tuple(
            Member(number, name, (f"http://{host}:7502",), (f"http://{host}:7501",))
            for number, name, host in members
        ),
        {name: f"{host}:7503" for _, name, host in members},
        {name: f"{host}:7500" for _, name, host in members},
    )


def test_a_false_address_is_blamed_on_the_member_that_told_it():
    told = cluster(third="127.0.0.1").find_loopback({"n4"})
    assert "the etcd of n3 tells others to find it at 127.0.0.1:7501" in told
    assert "run 'oj setup judicator --join n1' on n3 first" in told
    assert not cluster().find_loopback({"n4"})
    # Of nodes that are all on one machine it is true; and setup on n3 itself mends it.
    assert not cluster("127.0.0.1", "127.0.0.1").find_loopback({"n4"})
    assert not cluster(third="127.0.0.1").find_loopback({"n3"})


def test_what_a_node_once_told_of_itself_is_none_of_its_peers():
    found = cluster(third="127.0.0.1").without("10.0.0.3", "n3")
    assert found.etcd == ("10.0.0.1:7501", "10.0.0.2:7501")
    assert found.databases == ("10.0.0.1:7503", "10.0.0.2:7503")
    assert found.judicators == ("10.0.0.1:7500", "10.0.0.2:7500")


def test_a_gateway_that_is_only_kept_is_not_opened_to_the_network():
    edits = as_dict(make_edits(wish("judicator", "gateway", kept=("gateway",)), values()))
    assert ("gateway", "listen") not in edits
    assert edits["gateway", "judicators"] == "127.0.0.1:7500, 10.0.0.1:7500, 10.0.0.3:7500"


# --- addresses ---------------------------------------------------------------------------------


@pytest.mark.parametrize("given", ["127.0.0.1", "localhost", "::1", "127.0.1.1"])
def test_an_address_that_leads_every_node_to_itself_is_refused(given):
    with pytest.raises(Rejected, match="leads every node to itself"):
        address.choose(given, "", "")


def test_a_name_without_an_address_is_refused():
    with pytest.raises(Rejected, match="has no address here"):
        address.choose("no-such-host.invalid", "", "")


def test_the_address_that_is_configured_already_stays():
    as_before = ("192.0.2.9", "as configured already")
    assert address.choose("", "192.0.2.9", "") == as_before
    assert address.choose("", "192.0.2.9", "", before="192.0.2.8") == as_before


@pytest.mark.parametrize("before", ["127.0.0.2", "198.51.100.8", "no-such-host.invalid"])
def test_an_address_of_before_is_taken_only_where_it_is_this_machines(before):
    with contextlib.suppress(Rejected):  # where there is no other one
        assert address.choose("", "", "", before)[0] != before


# --- data --------------------------------------------------------------------------------------


def write_log(directory, cluster, member):
    def frame(record):
        padding = -len(record) % 8
        head = len(record) | ((0x80 | padding) << 56 if padding else 0)
        return struct.pack("<Q", head) + record + bytes(padding)

    metadata = etcdmessages.write([(1, member), (2, cluster)])
    wal = directory / "member" / "wal"
    wal.mkdir(parents=True)
    checksum = etcdmessages.write([(1, 4), (2, 0)])
    head = etcdmessages.write([(1, 1), (2, 99), (3, metadata)])
    (wal / "0-0.wal").write_bytes(frame(checksum) + frame(head) + bytes(512))


def test_the_cluster_of_an_etcd_is_read_from_its_log(tmp_path):
    write_log(tmp_path, cluster=2**63 + 5, member=77)
    assert data.read_origin(tmp_path) == data.Origin(2**63 + 5, 77)


@pytest.mark.parametrize("content", [b"", b"\x00" * 64, b"\xff" * 64, bytes(range(7, 250, 3)) * 4])
def test_a_broken_log_tells_nothing(tmp_path, content):
    wal = tmp_path / "member" / "wal"
    wal.mkdir(parents=True)
    (wal / "0-0.wal").write_bytes(content)
    assert data.read_origin(tmp_path) is None
    assert data.read_origin(tmp_path / "nothing") is None


def test_data_is_set_aside_whole_and_what_was_set_aside_before_stays(tmp_path):
    (tmp_path / "member").mkdir()
    (tmp_path / "member" / "x").write_text("x")
    (tmp_path / "set-aside-1").mkdir()
    (tmp_path / "left").write_text("")
    held = data.look(tmp_path)
    assert held.filled and held.left
    into = held.set_aside(keep=True)
    assert sorted(path.name for path in tmp_path.iterdir()) == [into.name, "set-aside-1"]
    assert into.name.startswith("kept-")
    assert (into / "member" / "x").read_text() == "x"
    assert not data.look(tmp_path).filled


# --- the command -------------------------------------------------------------------------------


@pytest.fixture
def image(tmp_path):
    (tmp_path / "etc/oj").mkdir(parents=True)
    for role in ROLES:
        (tmp_path / f"etc/oj/{role}.conf").write_text((TREE / f"etc/{role}.conf").read_text())
    (tmp_path / "etc/oj/etcd.conf").chmod(0o640)
    return tmp_path


def oj_setup(image, *words, code=0, timeout="500ms"):
    done = subprocess.run(
        [*OJ, "setup", *words, "--root", str(image), "--timeout", timeout],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(TREE / "daemons")},
        timeout=60,
    )
    assert done.returncode == code, done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done


def test_a_dry_run_shows_the_changes_and_makes_none(image):
    before = {path.name: path.read_text() for path in (image / "etc/oj").iterdir()}
    said = oj_setup(image, "judicator", "--address", "10.0.0.2", "--dry-run").stdout
    assert "  + advertise = 10.0.0.2:7503\n" in said
    assert {path.name: path.read_text() for path in (image / "etc/oj").iterdir()} == before


def test_a_setup_changes_what_it_said_and_the_second_one_nothing(image):
    done = oj_setup(image, "judicator", "--address", "10.0.0.2", "--name", "n2", "--json")
    said = json.loads(done.stdout)
    assert said["name"] == "n2" and not said["nothing_to_do"]
    for change in said["changes"]:
        text = (image / "etc/oj" / change["file"]).read_text()
        assert f"\n{change['key']} = {change['new']}\n" in text
    assert (image / "etc/oj/etcd.conf").stat().st_mode & 0o777 == 0o640
    again = json.loads(oj_setup(image, "judicator", "--address", "10.0.0.2", "--json").stdout)
    assert again["nothing_to_do"] and again["changes"] == []


def test_an_executor_needs_a_cluster(image):
    assert "--join HOST" in oj_setup(image, "executor", code=2).stderr


def test_a_host_that_does_not_answer_is_named(image):
    nobody = f"127.0.0.1:{servers.free_port()}"
    # Half a second may be over on a busy machine before it has begun to look.
    said = oj_setup(image, "executor", "--join", nobody, code=3, timeout="20s").stderr
    assert "127.0.0.1 does not answer" in said and "oj setup judicator" in said
    assert f"nothing listens at 127.0.0.1, TCP {nobody} (etcd, clients)" in said


def test_a_firewall_of_the_joined_judicator_is_named_within_ten_seconds(image):
    # A listener with a full queue drops what comes, as such a firewall does.
    with socket.socket() as full, contextlib.ExitStack() as stack:
        full.bind(("127.0.0.1", 0))
        full.listen(0)
        place = full.getsockname()
        for _ in range(4):
            sock = stack.enter_context(socket.socket())
            sock.setblocking(False)
            sock.connect_ex(place)
        words = ("executor", "--join", f"127.0.0.1:{place[1]}")

        def refused():
            began_s = time.monotonic()
            said = oj_setup(image, *words, code=3, timeout="5m").stderr  # which would allow more
            assert (
                f"this node does not reach 127.0.0.1 at 127.0.0.1, TCP {place[1]} (etcd, clients): "
                "no answer in 3 s. A firewall is closed, there or on the way: let this node "
                "127.0.0.1 in to these ports"
            ) in said
            assert "Is it a judicator" not in said
            return time.monotonic() - began_s

        servers.assert_within(10, refused)


def test_a_package_that_is_missing_is_named(image):
    (image / "etc/oj/mongodb.conf").unlink()
    said = oj_setup(image, "judicator", "--address", "10.0.0.2", code=2).stderr
    assert "apt install oj-mongodb" in said


def test_a_file_with_a_mistake_is_not_touched(image):
    path = image / "etc/oj/judicator.conf"
    path.write_text(path.read_text() + "\n[tasks]\nnonsense = 1\n")
    before = (image / "etc/oj/etcd.conf").read_text()
    assert "judicator.conf" in oj_setup(image, "judicator", "--address", "10.0.0.2", code=2).stderr
    assert (image / "etc/oj/etcd.conf").read_text() == before


def test_all_is_also_the_gateway_where_it_is_installed(image):
    def roles():
        done = oj_setup(image, "all", "--address", "10.0.0.2", "--dry-run", "--json")
        return json.loads(done.stdout)["roles"]

    assert roles() == ["judicator", "executor", "gateway"]
    (image / "etc/oj/gateway.conf").unlink()
    assert roles() == ["judicator", "executor"]


def test_conf_is_never_left_half_written(image):
    oj_setup(image, "all", "--address", "10.0.0.2")
    assert sorted(path.name for path in (image / "etc/oj").iterdir()) == sorted(
        f"{role}.conf" for role in ROLES
    )
    assert conf.read_value((image / "etc/oj/etcd.conf").read_text(), "advertise") == "10.0.0.2"


# --- time that is used up ------------------------------------------------------------------------


@pytest.fixture
def slow_systemctl(tmp_path, monkeypatch):
    """A systemctl that takes its time; what it was asked for is in the file that it gives."""
    directory, done = tmp_path / "bin", tmp_path / "done"
    directory.mkdir()
    program = directory / "systemctl"
    program.write_text(f'#!/bin/sh\nsleep 3\necho "$*" >>{done}\n')
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{directory}:{os.environ['PATH']}")
    return done


def tried(**fields):
    return Outlook(wish("executor"), "n1", "", None, preflight=Preflight(True, False), **fields)


def test_a_time_that_trying_used_up_changes_nothing(image, slow_systemctl):
    path = image / "etc/oj/executor.conf"
    before = path.read_text()
    outlook = tried(texts={"executor": "slots = 1\n"}, stop=("executor",))
    with pytest.raises(Unavailable, match="before anything is changed"):
        setup.carry_out(outlook, Files(str(image)), Deadline(0))
    assert path.read_text() == before and not slow_systemctl.exists()


def test_what_was_begun_is_finished_though_the_time_ends_meanwhile(image, slow_systemctl):
    outlook = tried(texts={"executor": "slots = 1\n"}, stop=("executor",))
    setup.carry_out(outlook, Files(str(image)), Deadline(2.5))  # it takes three
    assert slow_systemctl.read_text() == "stop --quiet oj-executor\n"
    assert (image / "etc/oj/executor.conf").read_text() == "slots = 1\n"
