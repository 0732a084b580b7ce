"""The command `oj` as people and scripts run it, against a real cluster."""

import io
import json
import os
import pty
import re
import select
import signal
import socket
import subprocess
import tarfile
import time
import zipfile
from datetime import datetime
from pathlib import Path

import pytest

import loopback
import servers

OJ = [servers.PYTHON, str(servers.TREE / "daemons" / "bin" / "oj")]
SUM_PY = "print(sum(map(int, input().split())))\n"


@pytest.fixture
def environment(cluster):
    return {
        **os.environ,
        "PYTHONPATH": str(servers.TREE / "daemons"),
        "OJ_JUDICATOR": f"127.0.0.1:{cluster.address[1]}",
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
    }


@pytest.fixture
def oj(environment):
    def run(*words, code=0, stdin="", env=None):
        done = subprocess.run(
            [*OJ, *map(str, words)],
            input=stdin,
            capture_output=True,
            text=True,
            env={**environment, **(env or {})},
            timeout=60,
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run


@pytest.fixture
def problem(tmp_path):
    """A problem with three tests: add the numbers of a line."""
    (tmp_path / "tests").mkdir()
    for name, given, expected in (("1", "1 2", "3"), ("2", "5", "5"), ("10", "4 4 4", "12")):
        (tmp_path / "tests" / f"{name}.in").write_text(given + "\n")
        (tmp_path / "tests" / f"{name}.ans").write_text(expected + "\n")
    (tmp_path / "sum.py").write_text(SUM_PY)
    return tmp_path


def submit_sleep(oj, seconds="60"):
    return oj("submit", "--command", f"/bin/sleep {seconds}", "--wall", "90s").stdout.strip()


def test_an_accepted_program_is_one_json_object_and_exit_code_0(oj, problem):
    done = oj("submit", problem / "sum.py", "--tests", problem / "tests", "--wait", "--json")
    task = json.loads(done.stdout)
    assert (task["status"], task["verdict"], task["score"]) == ("success", "accepted", 1.0)
    assert re.fullmatch("[0-9a-f]{24}", task["id"])
    assert [test["name"] for test in task["tests"]] == ["1", "2", "10"]
    for test in task["tests"]:
        assert test["verdict"] == "accepted"
        assert (test["exit_code"], test["signal"]) == (0, None)
        assert test["wall_ms"] > 0 and test["memory_bytes"] > 0 and test["cpu_ms"] >= 0
    assert task["tests"][2]["stdout"] == "12\n"
    assert task["tests"][2]["stdout_cut"] is False
    assert "language python, by the extension of sum.py" in done.stderr


def test_a_wrong_answer_is_exit_code_1_and_a_table(oj, problem):
    (problem / "sum.py").write_text("print(5)\n")
    done = oj("submit", problem / "sum.py", "--tests", problem / "tests", "--wait", code=1)
    lines = done.stdout.splitlines()
    assert lines[0].split() == ["TEST", "VERDICT", "CPU", "WALL", "MEMORY", "MESSAGE"]
    assert lines[1].startswith("1     wrong answer")
    assert lines[2].startswith("2     accepted")
    assert lines[-1].startswith("wrong answer (1 of 3 tests, score 0.333)")
    assert "\033" not in done.stdout + done.stderr  # not a terminal


def test_a_program_that_does_not_compile_shows_the_compilers_words(oj, tmp_path):
    (tmp_path / "broken.c").write_text("int main(void) { return no_such_thing; }\n")
    done = oj("submit", tmp_path / "broken.c", "--wait", code=1)
    assert "no_such_thing" in done.stdout
    assert done.stdout.splitlines()[-1].startswith("compile error")
    task = json.loads(oj("submit", tmp_path / "broken.c", "--wait", "--json", code=1).stdout)
    assert (task["status"], task["verdict"]) == ("compile_failed", "compile_error")
    assert task["compile"]["exit_code"] == 1
    assert "no_such_thing" in task["compile"]["stderr"]


@pytest.mark.parametrize(
    ("source", "wall", "verdict", "key"),
    [
        # On a busy machine 300 ms of processor time may take long.
        ("while True: pass\n", "30s", "time_limit", None),
        ("import time; time.sleep(30)\n", "1s", "wall_limit", None),
        ("import sys; sys.exit(3)\n", "30s", "runtime_error", ("exit_code", 3)),
        ("import os; os.kill(os.getpid(), 11)\n", "30s", "runtime_error", ("signal", 11)),
    ],
)
def test_limits_and_failures_have_their_verdicts(oj, tmp_path, source, wall, verdict, key):
    (tmp_path / "x.py").write_text(source)
    limits = ("--time", "300ms", "--wall", wall)
    done = oj("submit", tmp_path / "x.py", *limits, "--wait", "--json", code=1)
    task = json.loads(done.stdout)
    assert (task["status"], task["verdict"]) == ("run_failed", verdict)
    if key:
        assert task["tests"][0][key[0]] == key[1]


def test_a_plain_command_shows_what_it_printed(oj):
    done = oj("submit", "--command", "/bin/echo 'two  words'", "--wait")
    assert "two  words" in done.stdout
    assert done.stdout.splitlines()[-1] == "accepted"


def test_without_waiting_the_id_is_printed_and_the_task_can_be_watched(oj, problem):
    task_id = oj("submit", problem / "sum.py", "--tests", problem / "tests").stdout.strip()
    assert re.fullmatch("[0-9a-f]{24}", task_id)
    assert json.loads(oj("watch", task_id, "--json").stdout)["verdict"] == "accepted"
    shown = oj("get", task_id).stdout
    assert re.search(rf"task +{task_id}\nstatus +success\nlanguage +python\n", shown)
    assert json.loads(oj("get", task_id, "--json").stdout)["attempts"][0]["number"] == 1


def test_a_source_can_come_from_standard_input(oj):
    done = oj("submit", "-", "--language", "python", "--wait", stdin="print('from stdin')")
    assert "from stdin" in done.stdout


def test_files_beside_the_source_and_float_comparison(oj, tmp_path):
    (tmp_path / "main.py").write_text("import other\nprint(open('pi.txt').read(), other.X)\n")
    (tmp_path / "other.py").write_text("X = 2.5000001\n")
    (tmp_path / "pi.txt").write_text("3.14159265")
    (tmp_path / "ans").write_text("3.1415926\n2.5\n")
    words = ("submit", tmp_path / "main.py", tmp_path / "other.py", "--data", tmp_path / "pi.txt")
    oj(*words, "--expected", tmp_path / "ans", "--compare", "floats", "--wait")
    oj(*words, "--expected", tmp_path / "ans", "--compare", "exact", "--wait", code=1)


def test_a_program_and_its_data_can_come_in_archives(oj, tmp_path):
    with tarfile.open(tmp_path / "prog.tar.xz", "w:xz") as archive:
        for name, text in (
            ("./pkg/words.py", "words = open('data/1').read(), len(open('data/2').read())\n"),
            ("./main.py", "from pkg.words import words\nprint(*words)\n"),
        ):
            info = tarfile.TarInfo(name)
            info.size = len(text)
            archive.addfile(info, io.BytesIO(text.encode()))
    with zipfile.ZipFile(tmp_path / "data.zip", "w", zipfile.ZIP_DEFLATED) as packed:
        packed.writestr("data/1", "hello")
        for number in range(2, 40):  # more than a task may hold inline
            packed.writestr(f"data/{number}", "x" * 60_000)
    words = ("--archive", tmp_path / "prog.tar.xz", "--data-archive", tmp_path / "data.zip")
    task = json.loads(oj("submit", *words, "--wait", "--json").stdout)
    assert (task["verdict"], task["tests"][0]["stdout"]) == ("accepted", "hello 60000\n")


def test_tests_after_the_first_failure_are_skipped_when_asked(oj, problem):
    (problem / "sum.py").write_text("print(3)\n")
    words = ("submit", problem / "sum.py", "--tests", problem / "tests", "--stop-on-failure")
    task = json.loads(oj(*words, "--wait", "--json", code=1).stdout)
    assert [t["verdict"] for t in task["tests"]] == ["accepted", "wrong_answer", "skipped"]


def test_a_key_submits_once(oj):
    words = ("submit", "--command", "/bin/true", "--key", "once", "--user", "kay")
    assert oj(*words).stdout == oj(*words).stdout


def test_a_large_test_file_is_sent_as_a_blob(oj, tmp_path):
    (tmp_path / "big").write_bytes(b"7\n" * 200_000)
    oj(
        *("submit", "--command", "/bin/cat", "--output", "1M", "--wait"),
        *("--input", tmp_path / "big", "--expected", tmp_path / "big"),
    )


def test_a_tasks_files_are_saved_byte_by_byte(oj, tmp_path):
    (tmp_path / "echo.py").write_text("import sys; sys.stdout.buffer.write(open(0, 'rb').read())")
    (tmp_path / "odd").write_bytes(bytes(range(256)) * 1000)  # more than goes inline
    (tmp_path / "extra.bin").write_bytes(b"\xff\0")
    task = oj(
        *("submit", tmp_path / "echo.py", "--data", tmp_path / "extra.bin", "--compare", "exact"),
        *("--input", tmp_path / "odd", "--expected", tmp_path / "odd", "--output", "1M"),
    ).stdout.strip()
    assert "accepted" in oj("watch", task).stdout
    into = tmp_path / "new" / "saved"
    named = oj("get", task, "--save", into).stdout.splitlines()
    assert named == [
        f"{into}/{name}"
        for name in ("source/echo.py", "data/extra.bin", "tests/1.in", "tests/1.ans")
    ] + [f"{into}/outputs/1.out"]
    assert (into / "tests" / "1.in").read_bytes() == (tmp_path / "odd").read_bytes()
    assert (into / "data" / "extra.bin").read_bytes() == b"\xff\0"
    printed = (into / "outputs" / "1.out").read_bytes()
    assert printed and (tmp_path / "odd").read_bytes().startswith(printed)
    assert "is not empty" in one_line(oj("get", task, "--save", into, code=2))


def test_a_webhook_has_to_be_a_url(oj):
    words = ("submit", "--command", "/bin/true", "--webhook")
    assert "webhook is not" in one_line(oj(*words, "here", code=2))
    oj(*words, "http://127.0.0.1:9/done")


def test_search_finds_by_every_condition(oj, problem):
    (problem / "sum.py").write_text("print(3)\n")
    user = f"eve-{os.urandom(4).hex()}"  # others have the cluster, too
    task_id = json.loads(
        oj(
            *("submit", problem / "sum.py", "--tests", problem / "tests", "--wait", "--json"),
            *("--user", user, "--tag", "one", "--tag", "two"),
            code=1,
        ).stdout
    )["id"]
    conditions = (
        *("--user", user, "--status", "run_failed", "--verdict", "wrong_answer"),
        *("--tag", "one", "--tag", "two", "--language", "python", "--since", "5m"),
    )
    found = json.loads(oj("search", *conditions, "--json").stdout)
    assert [task["id"] for task in found["tasks"]] == [task_id]
    assert found["more"] is False
    assert task_id in oj("search", *conditions).stdout
    assert oj("search", "--user", user, "--tag", "three").stdout == "no such tasks\n"
    assert json.loads(oj("search", "--since", "2001-01-01", "--limit", "1", "--json").stdout)[
        "more"
    ]


def test_cancel_ends_a_task_and_says_when_there_was_nothing_to_end(oj):
    task_id = submit_sleep(oj)
    assert oj("cancel", task_id).stdout == f"{task_id}  cancelled\n"
    assert json.loads(oj("cancel", task_id, "--json").stdout) == [
        {"id": task_id, "cancelled": False}
    ]
    assert json.loads(oj("watch", task_id, "--json", code=1).stdout)["status"] == "cancelled"


def test_an_id_that_does_not_exist_hides_nothing_of_the_others(oj):
    nobody = "0" * 24
    tasks = [submit_sleep(oj), submit_sleep(oj)]
    again = oj("rejudge", tasks[0], nobody, tasks[0], code=2)
    assert one_line(again).endswith(f"there is no task {nobody}")
    [new] = again.stdout.split()
    words = (tasks[0], nobody, tasks[1], new)
    done = oj("cancel", *words, code=2)
    assert one_line(done).endswith(f"there is no task {nobody}")
    assert done.stdout.splitlines() == [f"{task}  cancelled" for task in (*tasks, new)]
    done = oj("cancel", "--json", *words, code=2)
    assert json.loads(done.stdout) == [{"id": task, "cancelled": False} for task in (*tasks, new)]


def test_the_cluster_is_described(oj, cluster):
    [executor] = json.loads(oj("executors", "--json").stdout)
    assert (executor["name"], executor["state"]) == ("executor-1", "ok")
    assert executor["slots"] == cluster.slots
    assert "python" in executor["languages"]
    [judicator] = json.loads(oj("judicators", "--json").stdout)
    assert judicator["leader"] is True
    assert judicator["address"] == f"127.0.0.1:{cluster.address[1]}"
    status = json.loads(oj("status", "--wait", "60s", "--json").stdout)
    assert status["degraded"] == []
    assert status["leader"] == "judicator-1"
    assert status["judicators"][0]["serves"] is True
    assert "executor-1" in oj("executors").stdout
    assert "leader" in oj("judicators").stdout
    assert [(m["healthy"], m["leader"]) for m in status["etcd"]] == [(True, True)]
    assert [(m["healthy"], m["state"]) for m in status["database"]] == [(True, "primary")]
    assert status["seen_from"] == "judicator-1"
    assert status["primary"]
    shown = oj("status", "--wait", "60s").stdout
    assert shown.startswith("all is well (oj ")
    assert re.search("^judicator-1 .*leader", shown, re.MULTILINE)
    assert re.search("^executor-1 .*ok", shown, re.MULTILINE)
    assert len(shown.splitlines()) <= 24


def test_status_without_etcd_says_what_it_cannot_tell(oj, mongod):
    with loopback.Cluster(mongod=mongod) as cluster:
        cluster.start(executors=0)
        assert cluster.etcd
        cluster.etcd.kill()
        where = ("--judicator", f"127.0.0.1:{cluster.address[1]}")

        def told():
            shown = oj("status", *where).stdout
            degraded = json.loads(oj("status", "--json", *where).stdout)["degraded"]
            return (
                re.match(r"degraded \(.*\)\n  - etcd does not answer", shown)
                and "no executor takes tasks" in degraded[-1]
            )

        servers.wait_until(told, 60, "the outage is told")


def test_status_without_the_database_still_shows_who_is_there(oj, etcd):
    with loopback.Cluster(etcd=etcd) as cluster:
        cluster.start(executors=0)
        assert cluster.mongod
        cluster.mongod.kill()
        where = ("--judicator", f"127.0.0.1:{cluster.address[1]}")

        def shown():
            text = oj("status", *where).stdout
            return text if text.startswith("out of service (") else ""

        text = servers.wait_until(shown, 60, "the outage is shown")
        assert "systemctl status oj-mongodb" in text.replace("\n    ", " ")
        assert "tasks: unknown" in text and "executors: unknown" in text
        assert re.search("^judicator-1 ", text, re.MULTILINE)


def test_status_can_wait_until_all_is_well(oj):
    oj("status", "--wait", "60s")
    oj("drain", "executor-1")
    try:
        words = ("status", "--wait", "100ms")
        servers.wait_until(
            lambda: json.loads(oj("status", "--json").stdout)["degraded"], 60, "it is noticed"
        )
        assert "draining" in oj(*words, code=1).stdout
    finally:
        oj("drain", "executor-1", "--off")
    oj("status", "--wait", "60s")


def test_drain_takes_an_executor_out_and_puts_it_back(oj):
    def drained():
        return json.loads(oj("executors", "--json").stdout)[0]["drained"]

    oj("drain", "executor-1")
    try:
        servers.wait_until(drained, what="the executor is shown as drained")
        assert "executor executor-1 is draining" in oj("status").stdout
    finally:
        oj("drain", "executor-1", "--off")
    servers.wait_until(lambda: not drained(), what="the executor is shown as in service")
    oj("drain", "nobody-by-that-name", code=2)


def one_line(done):
    [line] = done.stderr.splitlines()
    return line


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "xyz"], "not a task id"),
        (["get", "0" * 24], "0" * 24),
        (["cancel", "0" * 24], "0" * 24),
        (["submit", "no-such-file.py"], "No such file"),
        (["search", "--since", "yesterday"], "--since"),
        (["submit", "--command", "/bin/true", "--priority", "1000"], "priority"),
        (["submit", "--command", "/bin/true", "--tag", "a\nb"], "tags"),
        (["submit", "--command", "/bin/true", "--time", "0s"], "cpu_ms must be above 0"),
        (["submit", "--command", "/bin/echo \udcff"], "execute.command[1] is not UTF-8"),
        (["search", "--user", "\udcff"], "is not UTF-8"),
        (["search", "--since", "0001-01-01"], "--since"),
        (["--config", "/no/such/file", "status"], "cannot be read"),
        (["status"], "OJ_JUDICATOR"),
    ],
)
def test_input_errors_are_one_line_and_exit_code_2(oj, words, message):
    env = {"OJ_JUDICATOR": "rubbish"} if words == ["status"] else None
    assert message in one_line(oj(*words, code=2, env=env))


def test_mistakes_in_the_configuration_are_all_listed(oj, tmp_path):
    config = tmp_path / "client.conf"
    config.write_text("judicators = here\ntimeout = soon\ntimeot = 1s\n")
    done = oj("--config", config, "status", code=2, env={"OJ_JUDICATOR": ""})
    assert [line.split(": ")[1] for line in done.stderr.splitlines()] == [
        f"{config}:1",
        f"{config}:2",
        f"{config}:3",
    ]


def test_the_configuration_names_the_judicators(oj, cluster, tmp_path):
    config = tmp_path / "client.conf"
    config.write_text(f"judicators = 127.0.0.1:{cluster.address[1]}\n")
    oj("status", "--config", config, env={"OJ_JUDICATOR": ""})


def test_a_cluster_that_does_not_answer_is_exit_code_3_in_time(oj):
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        words = ("--judicator", f"127.0.0.1:{port}", "--timeout", "1s")

        def ask() -> float:
            begun = time.monotonic()
            assert "does not answer" in one_line(oj("status", *words, code=3))
            return time.monotonic() - begun

        servers.assert_within(8, ask)  # not the configured 10 s
    with socket.socket() as silent:  # holds the port, but does not listen
        silent.bind(("127.0.0.1", 0))
        words = ("--judicator", f"127.0.0.1:{silent.getsockname()[1]}", "--timeout", "1s")
        assert "Connection refused" in one_line(oj("status", *words, code=3))


def test_a_cluster_that_goes_away_does_not_take_the_tasks_id_with_it(environment, start_judicator):
    judicator = start_judicator()
    process = subprocess.Popen(
        [*OJ, "--timeout", "5s", "submit", "--command", "/bin/true", "--wait"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "OJ_JUDICATOR": f"127.0.0.1:{judicator.port}"},
    )
    assert process.stderr is not None
    assert "pending" in process.stderr.readline()
    with judicator.call() as caller:
        [task] = caller.search(None, "", 10).tasks
    judicator.daemon.kill()
    stdout, stderr = process.communicate(timeout=60)
    assert (process.returncode, stdout) == (3, "")
    assert f"'oj watch {task.id}' follows it" in stderr


def test_an_interrupt_leaves_the_task_and_says_how_to_go_on(environment, oj):
    process = subprocess.Popen(
        # A test run in the background of a shell ignores SIGINT, and so would its children.
        [
            *("env", "--default-signal=INT", *OJ, "submit", "--command", "/bin/sleep 60"),
            *("--wall", "90s", "--wait"),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )
    assert process.stderr is not None
    said = ""
    while "running" not in said:
        line = process.stderr.readline()
        assert line, said
        said += line
    process.send_signal(signal.SIGINT)
    _, rest = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in rest
    [task_id] = set(re.findall("[0-9a-f]{24}", rest))
    assert f"oj watch {task_id}" in rest and f"oj cancel {task_id}" in rest
    assert json.loads(oj("get", task_id, "--json").stdout)["status"] == "running"
    oj("cancel", task_id)


def test_a_reader_that_leaves_is_no_error(environment, oj):
    oj("submit", "--command", "/bin/true")
    command = " ".join(OJ)
    done = subprocess.run(
        [
            "bash",
            "-c",
            f"{command} search --limit 1000 --json | head -c 1; exit ${{PIPESTATUS[0]}}",
        ],
        env={**environment, "PYTHONUNBUFFERED": ""},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.stderr == ""
    assert done.returncode in (0, 141)


def run_on_terminal(words, environment, timeout_s=30.0):
    """What the command shows on a terminal of 80 columns."""
    pid, terminal = pty.fork()
    if pid == 0:
        os.execvpe(OJ[0], [*OJ, *words], {**environment, "COLUMNS": "80"})
    shown = b""
    end = time.monotonic() + timeout_s
    while time.monotonic() < end:
        if select.select([terminal], [], [], 0.1)[0]:
            try:
                piece = os.read(terminal, 65536)
            except OSError:
                break
            if not piece:
                break
            shown += piece
    os.close(terminal)
    _, status = os.waitpid(pid, 0)
    return shown.decode(), os.waitstatus_to_exitcode(status)


def test_a_terminal_shows_one_line_of_progress_and_colours(environment, problem):
    environment.pop("NO_COLOR", None)
    slow = problem / "slow.py"
    slow.write_text("import time; time.sleep(1)\n" + SUM_PY)
    words = ["submit", str(slow), "--tests", str(problem / "tests"), "--wait"]
    shown, code = run_on_terminal(words, environment)
    assert code == 0
    assert re.search(
        r"\r +\d+\.\d s  \[#+\.+\] running, [12] of 3 tests, on executor-1\033\[K", shown
    )
    progress, _, result = shown.rpartition("\r\033[K")
    assert progress.count("\n") == 1  # the language that was guessed; the rest is one line
    assert "\033[32maccepted\033[0m" in result
    shown, _ = run_on_terminal(words, {**environment, "NO_COLOR": "1"})
    assert "\033[32m" not in shown


def test_a_broken_installation_does_not_look_like_a_verdict(environment, tmp_path):
    (tmp_path / "thrift.py").write_text("raise RuntimeError('broken')\n")
    done = subprocess.run(
        [*OJ, "submit", "--command", "/bin/true", "--wait"],
        env={**environment, "PYTHONPATH": f"{tmp_path}:{environment['PYTHONPATH']}"},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert (done.returncode, done.stderr.splitlines()[-1]) == (70, "RuntimeError: broken")


def test_help_of_every_verb_names_json(oj):
    text = oj("--help").stdout
    verbs = re.findall(r"^    ([a-z]+) ", text, re.MULTILINE)
    assert {"submit", "get", "watch", "search", "cancel", "executors", "status"} <= set(verbs)
    for verb in verbs:
        assert "--json" in oj(verb, "--help").stdout


def test_help_needs_neither_thrift_nor_grpc(environment):
    done = subprocess.run(
        [OJ[0], "-X", "importtime", OJ[1], "--help"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert not re.search(r"\b(thrift|grpc|pymongo)\b", done.stderr)
    done = subprocess.run(
        [OJ[0], "-X", "importtime", OJ[1], "judicators"],
        env=environment,
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert not re.search(r"\b(grpc|pymongo|systemd)\b", done.stderr)


def test_the_manual_names_every_option(oj):
    manual = (Path(servers.TREE) / "man" / "oj.1").read_text().replace("\\-", "-")
    for verb in ("submit", "get", "watch", "search", "drain", "doctor", "bench", "token add"):
        for option in re.findall(r"--[a-z-]+", oj(*verb.split(), "--help").stdout):
            assert option in manual, option


def test_completion_knows_every_verb_and_option(oj):
    completion = (Path(servers.TREE) / "packaging" / "completions" / "oj").read_text()
    verbs = re.findall(r"^    ([a-z]+) ", oj("--help").stdout, re.MULTILINE)
    for verb in verbs:
        assert re.search(rf"\b{verb}\b", completion), verb
    for verb in (*verbs, "token add"):
        for option in re.findall(r"--[a-z-]+", oj(*verb.split(), "--help").stdout):
            assert option in completion, f"{verb} {option}"


def test_tokens_are_made_listed_and_removed(oj):
    made = oj("token", "add", "course site", "--user", "ann", "--role", "read", "--quota", "5")
    secret = made.stdout.strip()
    assert re.fullmatch(r"oj_\S{30,}", secret) and secret not in made.stderr
    listed = json.loads(oj("token", "list", "--json").stdout)
    [token] = [one for one in listed if one["name"] == "course site"]
    assert (token["user"], token["roles"], token["quota"]) == ("ann", ["read"], 5)
    assert secret not in oj("token", "list").stdout
    oj("token", "remove", token["id"])
    assert token["id"] not in oj("token", "list").stdout
    oj("token", "remove", token["id"], code=2)
    oj("token", "add", "x", "--role", "root", code=2)


def test_a_token_may_live_for_hours(oj):
    before_ms = int(time.time() * 1000)
    made = json.loads(oj("token", "add", "exam", "--expires", "90m", "--json").stdout)
    expires = datetime.fromisoformat(made["expires"].replace("Z", "+00:00"))
    left_ms = expires.timestamp() * 1000 - before_ms
    assert 90 * 60_000 <= left_ms < 95 * 60_000
    assert made["expires"][:16].replace("T", " ") in oj("token", "list").stdout


def test_rejudging_prints_the_new_task(oj):
    task = oj("submit", "--command", "/bin/true").stdout.strip()
    again = oj("rejudge", task).stdout.strip()
    assert again != task
    assert json.loads(oj("get", again, "--json").stdout)["tags"] == [f"rejudge:{task}"]
