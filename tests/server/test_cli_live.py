"""`oj watch` of a whole cluster and `oj bench`, from inside and through a gateway."""

import contextlib
import fcntl
import json
import os
import pty
import re
import select
import signal
import struct
import subprocess
import termios
import time

import pytest

import servers
from gateways import Gateway

OJ = [servers.PYTHON, str(servers.TREE / "daemons" / "bin" / "oj")]
WAIT_S = 60.0


@pytest.fixture(scope="module")
def gateway(cluster):
    one = Gateway(cluster.addresses, "[limits]\nrequests = 100000")
    yield one
    one.close()


@pytest.fixture(params=["thrift", "http"])
def environment(request, cluster, gateway):
    found = {
        **os.environ,
        "PYTHONPATH": str(servers.TREE / "daemons"),
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
    }
    if request.param == "thrift":
        return {**found, "OJ_JUDICATOR": f"127.0.0.1:{cluster.address[1]}"}
    return {
        **found,
        "OJ_SERVER": gateway.url,
        "OJ_TOKEN": gateway.make_token("admin", user="root"),
        "no_proxy": "127.0.0.1",
    }


@pytest.fixture
def oj(environment):
    def run(*words, code=0):
        done = subprocess.run(
            [*OJ, *words], capture_output=True, text=True, env=environment, timeout=120
        )
        assert done.returncode == code, f"{words}: {done.returncode}\n{done.stdout}\n{done.stderr}"
        assert "Traceback" not in done.stderr
        return done

    return run


class Terminal:
    """A program on a terminal of its own, and what is to be seen there."""

    def __init__(self, words, environment, columns=80, rows=24):
        environment = {k: v for k, v in environment.items() if k not in ("COLUMNS", "LINES")}
        self.before = None
        # The terminal outlives the program, so that its state can be looked at afterwards.
        self.side, theirs = pty.openpty()
        self._theirs = theirs
        self.resize(columns, rows)
        self.before = termios.tcgetattr(theirs)
        self.process = subprocess.Popen(
            # A test run in the background of a shell ignores SIGINT, and so would its children.
            ["env", "--default-signal=INT,TERM", *OJ, *words],
            stdin=theirs,
            stdout=theirs,
            stderr=theirs,
            env=environment,
            start_new_session=True,
        )
        self.written = ""

    def resize(self, columns, rows):
        fcntl.ioctl(self._theirs, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))

    def read(self):
        while select.select([self.side], [], [], 0.05)[0]:
            self.written += os.read(self.side, 65536).decode("utf-8", "replace")

    def rows(self):
        """The lines as they are on the screen now."""
        shown = {}
        written = self.written.rpartition("\033[2J")[2]
        for row, text in re.findall(r"\033\[(\d+);1H(.*?)\033\[K", written, re.DOTALL):
            shown[int(row)] = re.sub(r"\033\[[0-9;]*m", "", text)
        return [shown.get(row, "") for row in range(1, max(shown, default=0) + 1)]

    def wait_for(self, pattern):
        def found():
            self.read()
            return re.search(pattern, "\n".join(self.rows()), re.MULTILINE)

        return servers.wait_until(found, WAIT_S, f"the screen shows {pattern}")

    def type(self, keys):
        os.write(self.side, keys.encode())

    def end(self):
        """The exit code; the terminal has to be as it was."""
        deadline = time.monotonic() + WAIT_S
        while self.process.poll() is None:
            assert time.monotonic() < deadline, "it does not end"
            self.read()

        def left():
            self.read()
            return (
                self.written.endswith("\033[?7h\033[?25h\033[?1049l")
                or "\033[?1049l" in (self.written.rpartition("\033[?1049h")[2])
            )

        # What it wrote last may come later than its end.
        servers.wait_until(left, WAIT_S, "the screen is left")
        assert termios.tcgetattr(self._theirs) == self.before
        return self.process.returncode

    def close(self):
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        os.close(self.side)
        os.close(self._theirs)


@pytest.fixture
def terminal(environment):
    started = []

    def start(*words, **more):
        started.append(Terminal(words, environment, **more))
        return started[-1]

    yield start
    for one in started:
        one.close()


def test_the_whole_cluster_is_on_one_screen_and_moves(oj, terminal):
    screen = terminal("watch")
    screen.wait_for(r"^tasks +\d+ waiting.* \d+ running on \d+ slots")
    screen.wait_for(r"^executor-1 +ok +\[[#.]{20}\] \d+/\d+")
    task = oj("submit", "--command", "/bin/true", "--tag", "x").stdout.strip()
    screen.wait_for(rf"^{task}  accepted")
    screen.wait_for(r"^throughput +0\.[1-9]|^throughput +[1-9]")
    screen.wait_for(r"^verdicts +\d+ accepted")
    assert len(screen.rows()) <= 24
    assert max(map(len, screen.rows())) <= 80
    screen.type("q")
    assert screen.end() == 0


def test_a_frame_rewrites_only_what_changed(oj, terminal):
    screen = terminal("watch")
    task = oj("submit", "--command", "/bin/true").stdout.strip()
    screen.wait_for(rf"^{task}  accepted")
    screen.type("q")
    screen.end()
    # Emptied when it began and when its size was first known, and never again.
    assert screen.written.count("\033[2J") == 2
    assert "\033[J" not in screen.written


def test_the_screen_follows_the_window(terminal):
    screen = terminal("watch", columns=120, rows=40)
    screen.wait_for(r"^executor-1 ")
    screen.resize(60, 12)
    os.kill(screen.process.pid, signal.SIGWINCH)

    def narrow():
        screen.read()
        rows = screen.rows()
        return rows and rows[0].startswith("oj watch") and len(rows[0]) == 60

    servers.wait_until(narrow, WAIT_S, "the screen is drawn for the new size")
    screen.wait_for(r"^executor-1 ")
    assert len(screen.rows()) <= 12 and max(map(len, screen.rows())) <= 60
    screen.type("Q")
    assert screen.end() == 0


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_the_terminal_is_as_before_after_a_signal(terminal, number, code):
    screen = terminal("watch")
    screen.wait_for(r"^executor-1 ")
    os.kill(screen.process.pid, number)
    assert screen.end() == code
    assert "Traceback" not in screen.written


def test_the_terminal_is_given_back_while_suspended(terminal):
    screen = terminal("watch")
    screen.wait_for(r"^executor-1 ")
    os.kill(screen.process.pid, signal.SIGTSTP)

    def stopped():
        screen.read()
        with open(f"/proc/{screen.process.pid}/stat") as file:  # noqa: PTH123
            return file.read().rpartition(")")[2].split()[0] == "T"

    servers.wait_until(stopped, WAIT_S, "it is stopped")

    def left():
        screen.read()
        return screen.written.endswith("\033[?1049l")

    servers.wait_until(left, WAIT_S, "the screen is left")
    assert termios.tcgetattr(screen._theirs) == screen.before
    screen.written = ""  # what is typed before it has the terminal again is thrown away
    os.kill(screen.process.pid, signal.SIGCONT)
    screen.wait_for(r"^executor-1 ")
    screen.type("q")
    assert screen.end() == 0


def follow(environment, *words):
    return subprocess.Popen(
        ["env", "--default-signal=INT", *OJ, "watch", *words],
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


@pytest.mark.parametrize("words", [(), ("--json",)])
def test_where_there_is_no_terminal_events_are_lines(oj, environment, words):
    process = follow(environment, *words)
    try:
        # It listens from some moment on, which only an event tells.
        found: list[str] = []
        deadline = time.monotonic() + WAIT_S
        os.set_blocking(process.stdout.fileno(), False)
        text, tasks = "", []
        while not found and time.monotonic() < deadline:
            tasks.append(oj("submit", "--command", "/bin/true").stdout.strip())
            with contextlib.suppress(TypeError):
                text += process.stdout.read() or ""
            found = [
                line
                for line in text.splitlines()[:-1]
                if "accepted" in line and any(task in line for task in tasks)
            ]
        assert found
        if words:
            event = json.loads(found[0])
            assert event["done"] is True and event["verdict"] == "accepted"
            assert event["id"] in tasks
        else:
            when, task, _ = found[0].split(maxsplit=2)
            assert re.fullmatch(r"\d\d:\d\d:\d\d", when) and task in tasks
        assert "\033" not in text
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 130 and "Traceback" not in said
    finally:
        process.kill()
        process.wait()


def test_a_benchmark_tells_throughput_and_times(oj):
    done = oj("bench", "--count", "6", "--parallel", "2", "--json")
    value = json.loads(done.stdout)
    assert (value["asked"], value["done"], value["cancelled"]) == (6, 6, 0)
    assert value["verdicts"] == {"accepted": 6}
    assert value["tasks_per_s"] > 0
    for part in ("total_ms", "adding_ms", "waiting_ms", "judging_ms"):
        assert 0 <= value[part]["p50"] <= value[part]["p99"] <= value[part]["max"]
    assert sum(one["count"] for one in value["histogram"]) == 6
    assert "puts load on the cluster: 6 tasks, 2 at a time" in done.stderr
    found = json.loads(oj("search", "--tag", "bench", "--tag", value["tag"], "--json").stdout)
    assert len(found["tasks"]) == 6


def test_a_benchmark_in_a_language_at_a_rate_is_shown_with_bars(oj):
    done = oj("bench", "-n", "4", "--language", "python", "--rate", "20")
    assert done.stdout.startswith("4 of 4 tasks done: 4 accepted\n")
    assert re.search(r"^TIME +P50 +P90 +P99 +MAX +MEAN$", done.stdout, re.MULTILINE)
    assert re.search(r"^ +< \S+ m?s +\d  #+$", done.stdout, re.MULTILINE)
    assert "20 a second" in done.stderr


def test_a_benchmark_that_cannot_be_is_exit_code_2(oj):
    assert "no tiny program" in oj("bench", "--language", "nonsense", code=2).stderr
    assert "no executor offers" in oj("bench", "--language", "pascal", code=2).stderr
    oj("bench", "--count", "0", code=2)
    oj("bench", "--rate", "-1", code=2)


def test_an_interrupted_benchmark_cancels_what_is_not_done(oj, environment):
    oj("drain", "executor-1")
    try:
        process = subprocess.Popen(
            ["env", "--default-signal=INT", *OJ, "bench", "-n", "50", "--parallel", "3", "--json"],
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        assert process.stderr is not None
        tag = re.search(r"bench:[0-9a-f]{8}", process.stderr.readline())
        assert tag

        def pending():
            words = ("--tag", tag[0], "--status", "pending")
            return len(json.loads(oj("search", *words, "--json").stdout)["tasks"]) == 3

        servers.wait_until(pending, WAIT_S, "its tasks wait")
        process.send_signal(signal.SIGINT)
        shown, said = process.communicate(timeout=WAIT_S)
        assert process.returncode == 130 and "Traceback" not in said
        value = json.loads(shown)
        assert (value["done"], value["cancelled"]) == (0, 3)
        tasks = json.loads(oj("search", "--tag", tag[0], "--json").stdout)["tasks"]
        assert [task["status"] for task in tasks] == ["cancelled"] * 3
    finally:
        oj("drain", "executor-1", "--off")


def test_a_benchmark_beyond_the_gateways_limit_says_so(cluster):
    one = Gateway(cluster.addresses, "[limits]\nrequests = 20")
    try:
        done = subprocess.run(
            [*OJ, "bench", "-n", "200"],
            env={
                **os.environ,
                "PYTHONPATH": str(servers.TREE / "daemons"),
                "OJ_SERVER": one.url,
                "OJ_TOKEN": one.make_token("submit"),
                "no_proxy": "127.0.0.1",
            },
            capture_output=True,
            text=True,
            timeout=120,
        )
        assert done.returncode == 3
        assert "the gateway does not take so much" in done.stderr
    finally:
        one.close()
