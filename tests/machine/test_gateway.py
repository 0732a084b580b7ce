"""oj-gateway as its package installs it, on the machine of a single node with nothing edited."""

from __future__ import annotations

import json
import re
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from bed import Bed
from bed.machine import Disk
from node import Node, wait_for

UNIT = "oj-gateway"
LOAD = "/root/http_load.py"
MOST_EXPOSED = 1.5


@pytest.fixture(scope="module")
def gateway(cluster_bed: Bed, installed: Disk) -> Iterator[Node]:
    """A single node that has got a gateway; its token is in /root/token."""
    machine = cluster_bed.machine("web", installed)
    machine.boot()
    node = Node(machine)
    node.wait_until_serving()
    machine.install(UNIT)
    machine.put(Path(__file__).with_name("http_load.py"), LOAD, mode=0o755)
    machine.run("umask 077; oj token add test --user ann --role submit --role read >/root/token")
    yield node
    machine.power_off_hard()


@pytest.fixture
def serving(gateway: Node) -> Iterator[Node]:
    gateway.machine.run(["systemctl", "start", UNIT], timeout_s=120)
    yield gateway
    wait_for("the gateway is active", lambda: gateway.state(UNIT) == "active")


def call(node: Node, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    sent = "" if body is None else json.dumps(body)
    told = json.loads(node.machine.run([LOAD, method, path], input=sent).stdout)
    return told["status"], told["body"]


def judge(node: Node) -> str:
    told = json.loads(node.machine.run([LOAD, "judge"], timeout_s=120).stdout)
    return str(told.get("verdict") or told)


@contextmanager
def load(node: Node, found: dict[str, Any]) -> Iterator[None]:
    """Requests while something happens; `found` holds what came back."""
    node.machine.run("rm -f /root/web /root/web.stop")
    callers = node.machine.start([LOAD, "steady", "/root/web"])
    try:
        wait_for("requests are made", lambda: node.machine.run("ls /root/web", check=False).rc == 0)
        time.sleep(1)  # some requests before, so that a gap has two ends
        yield
        time.sleep(1)
    finally:
        node.machine.run("touch /root/web.stop")
        out, errors = callers.communicate(timeout=120)
    assert callers.returncode == 0, errors.decode()
    found.update(json.loads(out))


def processes(node: Node, name: str) -> list[int]:
    """Of the unit, by the names that uWSGI gives them: master, http, worker."""
    found = node.machine.run(
        "for p in $(cat /sys/fs/cgroup/systemd/system.slice/oj-gateway.service/cgroup.procs "
        "/sys/fs/cgroup/system.slice/oj-gateway.service/cgroup.procs 2>/dev/null); do "
        f"tr '\\0' ' ' </proc/$p/cmdline | grep -q 'uWSGI {name}' && echo $p; done; true"
    ).stdout
    return [int(word) for word in found.split()]


# --- installed -----------------------------------------------------------------------------------


@pytest.mark.each_release
def test_installing_enables_the_unit_and_does_not_start_it(gateway: Node) -> None:
    assert gateway.show(UNIT, "UnitFileState") == "enabled"
    assert gateway.state(UNIT) == "inactive"


@pytest.mark.each_release
def test_active_means_serving(gateway: Node) -> None:
    gateway.machine.run(["systemctl", "start", UNIT], timeout_s=120)
    # No waiting: what systemctl start says is true.
    status, body = call(gateway, "GET", "/healthz")
    assert (status, body["status"]) == (200, "ok")
    assert "serving" in gateway.show(UNIT, "StatusText")
    pid = gateway.main_pid(UNIT)
    assert gateway.machine.run(f"ps -o user:32= -p {pid}").stdout.strip() == UNIT


@pytest.mark.each_release
def test_the_unit_is_hardened_and_understood(serving: Node) -> None:
    text = serving.machine.run(["systemd-analyze", "security", "--no-pager", UNIT]).stdout
    exposure = re.search(r"Overall exposure level for \S+: ([0-9.]+)", text)
    assert exposure, text
    print(f"\noj-gateway: exposure {exposure[1]}")
    assert float(exposure[1]) <= MOST_EXPOSED
    command = ["systemd-analyze", "verify", "--man=no", f"/lib/systemd/system/{UNIT}.service"]
    done = serving.machine.run(command)
    assert [line for line in done.stderr.splitlines() if UNIT in line] == []
    pages = ["man8/oj-gateway.8", "man5/oj-gateway.conf.5"]
    serving.machine.run(["ls", *(f"/usr/share/man/{page}.gz" for page in pages)])


@pytest.mark.each_release
def test_a_task_is_judged_over_http_with_a_token_of_the_command(serving: Node) -> None:
    assert judge(serving) == "accepted"
    status, session = call(serving, "GET", "/api/v1/session")
    assert (status, session["user"]) == (200, "ann")


def listed(node: Node) -> dict[str, bool]:
    """The gateways of the cluster, and which are silent."""
    told = json.loads(node.oj("status", "--json", check=False).stdout)
    return {one["name"]: one["silent"] for one in told["gateways"]}


@pytest.mark.each_release
def test_a_gateway_is_in_oj_status_until_it_is_stopped(serving: Node) -> None:
    wait_for("it is listed", lambda: listed(serving) == {"web": False})
    lines = {
        line.split()[0]: line.split() for line in serving.oj("status").stdout.splitlines()[2:4]
    }
    assert dict(zip(lines["NODE"], lines["web"], strict=True))["GATEWAY"] == "ok"

    def is_gone() -> bool:
        """Its good-bye has a second, which a machine that stalls may use up."""
        serving.machine.run(["systemctl", "stop", UNIT])
        try:
            return listed(serving) == {}
        finally:
            serving.machine.run(["systemctl", "start", UNIT], timeout_s=120)

    assert any(is_gone() for _ in range(3))


ANNOUNCE = """
from oj.client import Judicators
from oj.rpc.ttypes import GatewayInfo
with Judicators([("127.0.0.1", 7500)]) as judicators:
    judicators.announce(GatewayInfo("g9", process="1"))
"""


@pytest.mark.each_release
def test_a_gateway_that_is_gone_for_good_is_removed(serving: Node) -> None:
    serving.machine.run(["/usr/bin/python3", "-c", ANNOUNCE])
    assert "g9" in listed(serving)
    refused = serving.oj("remove", "g9", "--yes", check=False)
    assert refused.rc == 2 and "g9 still answers (gateway)" in refused.stderr
    said = serving.oj("remove", "g9", "--yes", "--force").stdout
    assert "Take gateway g9 off the list" in said
    assert "g9" not in listed(serving)
    assert "knows no node g9" in serving.oj("remove", "g9", "--yes", check=False).stderr


@pytest.mark.each_release
def test_daemons_tell_their_numbers_on_loopback(serving: Node) -> None:
    for port, name in (
        (7510, "oj_judicator_up"),
        (7511, "oj_executor_slots"),
        (7512, "oj_etcd_up"),
        (7513, "oj_mongodb_up"),
        (7580, "oj_gateway_cluster_up"),
    ):
        script = f"import urllib.request as r;print(r.urlopen('http://127.0.0.1:{port}/metrics',timeout=20).read().decode())"
        ask = ["/usr/bin/python3", "-c", script]
        line = re.compile(rf"^{name}(\{{.*\}})? [1-9]", re.MULTILINE)
        wait_for(
            f"{name} on {port}",
            lambda a=ask, one=line: one.search(serving.machine.run(a, check=False).stdout),
        )


# --- faults --------------------------------------------------------------------------------------


def test_a_reload_keeps_the_port_and_answers_every_request(serving: Node) -> None:
    pid = serving.main_pid(UNIT)
    workers = set(processes(serving, "worker"))
    assert len(workers) >= 2
    found: dict[str, Any] = {}
    with load(serving, found):
        serving.machine.run(["systemctl", "reload", UNIT])
        wait_for(
            "every worker is new",
            lambda: len(now := set(processes(serving, "worker"))) >= 2 and not now & workers,
        )
    print(f"\nreload: {found}")
    assert set(found["statuses"]) <= {"200", "201"}, found
    assert serving.main_pid(UNIT) == pid


@pytest.mark.parametrize("victim", ["daemon", "master", "worker", "http"])
def test_a_killed_process_comes_back(serving: Node, victim: str) -> None:
    pid = serving.main_pid(UNIT)
    victims = [pid] if victim == "daemon" else processes(serving, victim)
    assert victims, f"there is no {victim}"
    before = serving.restarts(UNIT)
    began_s = time.monotonic()
    serving.machine.run(["kill", "-KILL", str(victims[0])])
    if victim in ("daemon", "master"):
        wait_for("the unit is started again", lambda: serving.restarts(UNIT) > before)
    else:
        wait_for(
            f"there is a new {victim}",
            lambda: (
                len(processes(serving, victim)) == len(victims)
                and victims[0] not in processes(serving, victim)
            ),
        )
    wait_for("it serves", lambda: call(serving, "GET", "/healthz")[0] == 200)
    print(f"\n{victim} killed: serves again after {time.monotonic() - began_s:.1f} s")
    assert judge(serving) == "accepted"


def test_the_only_judicator_killed_under_load_is_an_outage_of_seconds(serving: Node) -> None:
    found: dict[str, Any] = {}
    with load(serving, found):
        pid = serving.main_pid("oj-judicator")
        serving.machine.run(["kill", "-KILL", str(pid)])
        serving.wait_until_replaced("oj-judicator", pid)
        wait_for("requests are answered", lambda: call(serving, "GET", "/api/v1/stats")[0] == 200)
    print(f"\nthe only judicator killed: {found}")
    # Whoever asks waits, or is told to come again; nobody is told that something else is wrong.
    assert set(found["statuses"]) <= {"200", "201", "503"}, found
    assert judge(serving) == "accepted"


def test_a_wrong_configuration_is_named_and_does_not_loop(serving: Node) -> None:
    machine = serving.machine
    conf = "/etc/oj/gateway.conf"
    keep = machine.get(conf)
    machine.run(["systemctl", "stop", UNIT])
    try:
        machine.put("listen = nowhere\nnam = x\n[limits]\nbody = huge\n", conf)
        check = machine.run([f"/usr/libexec/oj/{UNIT}", "--check"], check=False)
        assert check.rc == 78
        assert len(re.findall(rf"^{conf}:\d+: \w", check.stderr, re.MULTILINE)) == 3, check.stderr
        assert machine.run(["systemctl", "start", UNIT], check=False).rc != 0
        time.sleep(3)  # three times RestartSec: a loop would show
        assert serving.state(UNIT) == "failed"
        assert serving.show(UNIT, "ExecMainStatus") == "78"
        assert serving.restarts(UNIT) == 0
    finally:
        machine.put(keep, conf)
        machine.run(["systemctl", "reset-failed", UNIT], check=False)
        machine.run(["systemctl", "start", UNIT], timeout_s=120)


def test_no_token_is_in_the_journal_or_in_a_command_line(serving: Node) -> None:
    machine = serving.machine
    # One that is wrong, one in the address where it does not belong.
    token = machine.get("/root/token").decode().strip()
    call(serving, "GET", f"/api/v1/tasks?token={token}")
    call(serving, "POST", "/api/v1/session", {"token": token})
    call(serving, "POST", "/api/v1/session", {"token": token + "x"})
    assert token.startswith("oj_") and len(token) > 20
    machine.run(["journalctl", "--flush"], check=False)
    assert token not in machine.journal("-o", "json")
    assert token not in machine.run(["ps", "-eo", "args"]).stdout


# --- gone ----------------------------------------------------------------------------------------


@pytest.fixture
def second(serving: Node, cluster_bed: Bed, installed: Disk) -> Iterator[Node]:
    """A machine that is nothing but a gateway, of the cluster of the first one."""
    serving.oj("setup", "judicator", timeout_s=280)  # others find it from now on
    machine = cluster_bed.machine("g2", installed)
    machine.boot()
    machine.install(UNIT)
    machine.run("oj setup gateway --join web", timeout_s=280)
    yield Node(machine)
    machine.power_off_hard()


def test_a_node_that_leaves_takes_its_gateway_off_the_list(serving: Node, second: Node) -> None:
    wait_for("both are listed", lambda: listed(serving) == {"web": False, "g2": False})
    # Before systemd starts it again; so nobody has said good-bye.
    second.machine.run(f"systemctl kill -s KILL {UNIT} && systemctl stop {UNIT}")
    assert "g2" in listed(serving)
    assert "Take gateway g2 off the list" in second.oj("leave", "--yes").stdout
    assert listed(serving) == {"web": False}
