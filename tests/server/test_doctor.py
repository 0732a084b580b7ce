"""`oj doctor` on a node that is well, and on one with several things broken at once."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loopback
import servers

LIBRARY = servers.TREE / "daemons"
Call = Callable[..., subprocess.CompletedProcess[str]]
Doctor = Callable[..., dict[str, Any]]


@pytest.fixture
def etc(cluster: loopback.Cluster, directory: Path) -> Path:
    """The configuration of a node that is judicator and executor of the shared cluster."""
    directory.chmod(0o755)
    for daemon in (cluster.judicators[0], cluster.executors[0]):
        text = daemon.config_path.read_text()
        if daemon.role == "executor":
            assert cluster.etcd is not None
            text = text.replace("etcd = ,", f"etcd = {cluster.etcd.address}")
        (directory / f"{daemon.role}.conf").write_text(text)
    return directory


@pytest.fixture
def call(cluster: loopback.Cluster) -> Call:
    def run(
        *words: str,
        code: int = 0,
        before: tuple[str, ...] = (),
        library: Path = LIBRARY,
        **env: str,
    ) -> subprocess.CompletedProcess[str]:
        oj = [*before, servers.PYTHON, str(library / "bin" / "oj")]
        for _ in range(3):  # where a busy machine answers too late, it is called unwell
            done = subprocess.run(
                [*oj, "doctor", *words],
                capture_output=True,
                text=True,
                env={
                    **os.environ,
                    "PYTHONPATH": str(library),
                    "PYTHONDONTWRITEBYTECODE": "1",
                    "OJ_JUDICATOR": f"127.0.0.1:{cluster.ports[0]}",
                    **env,
                },
                timeout=120,
            )
            if done.returncode == code:
                break
        told = done.stdout + done.stderr
        assert done.returncode == code, told + cluster.executors[0].log()[-3000:]
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def doctor(call: Call, etc: Path) -> Doctor:
    def run(*words: str, code: int = 0, **options: Any) -> dict[str, Any]:
        done = call("--json", "--etc", str(etc), *words, code=code, **options)
        answer: dict[str, Any] = json.loads(done.stdout)
        assert answer["ok"] == (code == 0)
        for check in answer["checks"]:
            assert bool(check["repair"]) == (check["state"] != "ok"), check
        return answer

    return run


def states(answer: dict[str, Any], name: str) -> list[tuple[str, str]]:
    return [(c["state"], c["message"]) for c in answer["checks"] if c["check"] == name]


def test_a_node_that_is_well(doctor: Doctor, cluster: loopback.Cluster, etc: Path) -> None:
    answer = doctor()
    assert answer["failures"] == 0
    for name in ("kernel", "cgroups", "namespaces", "sandbox", "etcd", "database", "tasks"):
        assert {state for state, _ in states(answer, name)} == {"ok"}, states(answer, name)
    assert states(answer, "configuration") == [
        ("ok", f"{etc}/judicator.conf is fine"),
        ("ok", f"{etc}/executor.conf is fine"),
    ]
    (judicator,) = states(answer, "judicators")
    assert judicator == (
        "ok",
        f"judicator judicator-1 on 127.0.0.1:{cluster.ports[0]} serves, and leads",
    )
    assert ("ok", "agrees with the judicators'") in states(answer, "clock")
    ((state, executor),) = states(answer, "executors")
    assert state == "ok" and executor.startswith("executor executor-1 serves, ")
    assert any("offered: awk bash c cpp" in message for _, message in states(answer, "languages"))


def test_without_root_the_sandbox_is_not_tried_and_it_says_so(doctor: Doctor, etc: Path) -> None:
    # The tree may lie where only root can read it, as in root's own home.
    copy = etc / "tree"
    for folder in ("daemons", "build/box", "etc"):
        shutil.copytree(servers.TREE / folder, copy / folder)
    for conf in etc.glob("*.conf"):
        conf.write_text(conf.read_text().replace(str(servers.TREE), str(copy)))
    other_user = ("setpriv", "--reuid=65534", "--regid=65534", "--clear-groups")
    answer = doctor(before=other_user, library=copy / "daemons")
    ((state, message),) = states(answer, "sandbox")
    assert (state, message) == ("warn", "not tried: only root can")


def test_everything_that_is_broken_is_named_with_its_repair(doctor: Doctor, etc: Path) -> None:
    box = etc / "box"
    box.write_text(
        "#!/bin/sh\necho 'ok      cpu'\necho 'FAILED  memory is limited: none'\nexit 1\n"
    )
    box.chmod(0o755)
    languages = etc / "languages.d"
    languages.mkdir()
    good = (loopback.LANGUAGES / "bash.conf").read_text()
    (languages / "bash.conf").write_text(good)
    (languages / "bad.conf").write_text("[run\n")
    (languages / "new.conf").write_text(good)
    (languages / "absent.conf").write_text(good.replace("bash {", "no-such-shell {"))
    path = etc / "executor.conf"
    lines = [
        line
        for line in path.read_text().splitlines()
        if not line.startswith(("box", "languages_directory", "etcd"))
    ]
    lines += [f"box = {box}", f"languages_directory = {languages}"]
    lines += [f"etcd = 127.0.0.1:{servers.free_port()}"]
    path.write_text("\n".join(lines) + "\n")
    (etc / "judicator.conf").write_text("listen = nowhere\ncolour = blue\n")

    def look() -> dict[str, Any] | None:
        """Until the judicators answer in time: without them, what only they know is missing."""
        answer = doctor(code=1)
        said = states(answer, "languages")
        missed = any(state == "warn" and "new is installed but not" in text for state, text in said)
        # Where this node looks for it; the judicators have their own.
        found = [state for state, _ in states(answer, "etcd")] == ["fail", "ok"]
        return answer if missed and found else None

    answer = servers.wait_until(look, 60, "what the judicators know")
    assert states(answer, "sandbox") == [
        ("fail", "limits do not hold here: memory is limited: none")
    ]
    mistakes = [m for state, m in states(answer, "configuration") if state == "fail"]
    assert len(mistakes) == 2 and any("colour" in m for m in mistakes), mistakes
    said = states(answer, "languages")
    assert any(state == "warn" and "bad.conf" in message for state, message in said)
    assert any("not installed: absent (no-such-shell)" in message for _, message in said)


def test_memory_that_the_machine_does_not_have_is_a_warning_with_what_to_set(
    doctor: Doctor, etc: Path
) -> None:
    path = etc / "executor.conf"
    path.write_text(path.read_text() + "[most]\nmemory = 1T\n")
    ((state, message),) = [one for one in states(doctor(), "configuration") if "executor" in one[1]]
    assert state == "warn"
    assert message.startswith(f"{path}: 2 slots of up to 1024.0 GiB of memory (most.memory) are 20")
    (repair,) = [c["repair"] for c in doctor()["checks"] if c["message"] == message]
    assert re.match(r"set most\.memory = \d+M; man oj-executor\.conf", repair), repair


def test_the_gateway_is_a_role_like_the_others(doctor: Doctor, etc: Path) -> None:
    conf = etc / "gateway.conf"
    conf.write_text(f"etcd = 127.0.0.1:{servers.free_port()}\n")
    answer = doctor()  # it needs no etcd as long as it knows a judicator
    assert ("ok", f"{conf} is fine") in states(answer, "configuration")
    conf.write_text("listen = nowhere\n")
    mistakes = [m for state, m in states(doctor(code=1), "configuration") if state == "fail"]
    assert any("gateway.conf" in mistake for mistake in mistakes), mistakes


def test_a_cluster_that_does_not_answer_is_a_problem_not_a_crash(
    doctor: Doctor, tmp_path: Path
) -> None:
    nowhere = f"127.0.0.1:{servers.free_port()}"
    answer = doctor("--etc", str(tmp_path), "--timeout", "1s", code=1, OJ_JUDICATOR=nowhere)
    ((state, message),) = states(answer, "judicators")
    assert state == "fail" and message.startswith("no judicator answers: ")
    assert states(answer, "executors") == []


def test_a_machine_without_roles_gets_a_word_and_people_get_lines(
    call: Call, tmp_path: Path
) -> None:
    done = call("--etc", str(tmp_path))
    assert "warn  configuration  no role of oj is on this machine" in done.stdout
    assert "repair: on a node: apt install oj-judicator" in done.stdout
    assert "nothing is broken; " in done.stdout.splitlines()[-1]
