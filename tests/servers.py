"""Real servers for tests and benchmarks: etcd, mongod and our own daemons, on loopback.

Every server runs in a directory of its own, on a port of its own, and dies with the process that
started it, however that one ends: `setpriv --pdeathsig KILL` sees to it (and a warden to daemons
that change their user, which clears that signal), so a killed test run leaves nothing behind. Start
servers from a thread that lives as long as they shall (the main one).

Nothing here needs pytest; tests/conftest.py makes fixtures of it, tests/bench uses it as it is:

    sys.path.insert(0, str(Path(__file__).resolve().parents[1])); import servers
"""

from __future__ import annotations

import contextlib
import functools
import os
import random
import re
import shutil
import signal
import socket
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

TREE = Path(__file__).resolve().parents[1]
IDL = TREE / "thrift" / "judicator.thrift"
PYTHON = "/usr/bin/python3"  # Debian's, which has the libraries

LEAST_PATIENCE_S = 60.0
READY_S = 180.0  # an executor tests all its languages first
DIRECTORY_PREFIX = "oj-test-"
MEMORY_NEEDED_BYTES = 4 << 30
NUMBERED = ("judicator", "executor", "etcd", "mongodb")  # those with a port for their metrics
_scratch: str | None = None

Found = TypeVar("Found")
Self = TypeVar("Self", bound="Process")


def generate_rpc() -> None:
    """Generates daemons/oj/rpc when the IDL is newer than it."""
    generated = TREE / "daemons" / "oj" / "rpc" / "ttypes.py"
    if not generated.exists() or generated.stat().st_mtime < IDL.stat().st_mtime:
        subprocess.run([PYTHON, "setup.py", "-q", "thrift"], cwd=TREE, check=True)


def wait_until(
    condition: Callable[[], Found | None], timeout_s: float = 10.0, what: str = "the condition"
) -> Found:
    """Waits for a true value and returns it; raises AssertionError when it does not come.

    A limit is there to end a test that has failed, not to find a machine too slow.
    """
    timeout_s = max(timeout_s, LEAST_PATIENCE_S)
    end = time.monotonic() + timeout_s
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError(f"{what} did not come true within {timeout_s} s")
        time.sleep(0.01)


def assert_within(most_s: float, measure: Callable[[], float]) -> None:
    """One of three times, because a busy machine may be slow once; what hangs is slow each time."""
    took = []
    for _ in range(3):
        took.append(measure())
        if took[-1] < most_s:
            return
    raise AssertionError(f"took {took} s, and never less than {most_s} s")


PORTS = range(12000, 32000)  # below the range that outgoing connections are given
PORTS_AT_ONCE = 50
_ports: list[int] = []
_reserved: list[socket.socket] = []


def free_port() -> int:
    """A free port that nobody else is given, not even while its server is down."""
    while True:
        if not _ports:
            _ports.extend(_reserve_ports())
        port = _ports.pop()
        with socket.socket() as probe:
            # As the servers do; else a port with an old connection in TIME_WAIT counts as taken.
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            with contextlib.suppress(OSError):
                probe.bind(("127.0.0.1", port))
                return port


def _reserve_ports() -> range:
    """Ports that are ours until this process ends, whatever other tests run on this machine."""
    while True:
        first = random.randrange(PORTS.start, PORTS.stop, PORTS_AT_ONCE)
        mark = socket.socket(socket.AF_UNIX)
        try:
            mark.bind(f"\0oj-test-ports-{first}")
        except OSError:
            mark.close()
            continue
        _reserved.append(mark)
        return range(first, first + PORTS_AT_ONCE)


@functools.cache
def find_mongod() -> str:
    """The mongod to test with: OJ_MONGOD, or the one that packaging/fetch-mongod keeps."""
    found = subprocess.run(
        [str(TREE / "packaging" / "fetch-mongod")], check=True, stdout=subprocess.PIPE, text=True
    )
    return found.stdout.strip()


def make_directory() -> Path:
    """A new directory; on disk, unless the test run has chosen memory (see use_memory)."""
    return Path(tempfile.mkdtemp(prefix=f"{DIRECTORY_PREFIX}{os.getpid()}-", dir=_scratch))


def use_memory() -> None:
    """Puts the servers' data into memory, where there is room.

    What survives kill -9 is the same there, and servers that sync their files start in a fraction
    of the time on a busy disk. Not for benchmarks.
    """
    global _scratch  # noqa: PLW0603 - chosen once, before anything starts
    memory = Path("/dev/shm")
    if memory.is_dir() and shutil.disk_usage(memory).free > MEMORY_NEEDED_BYTES:
        _scratch = str(memory)
        for left in memory.glob(f"{DIRECTORY_PREFIX}*"):
            owner = left.name.removeprefix(DIRECTORY_PREFIX).partition("-")[0]
            if owner.isdigit() and not Path("/proc", owner).exists():
                shutil.rmtree(left, ignore_errors=True)  # of a run that was killed


# Reads pids until its standard input ends with whoever wrote them, and kills what is left. A pid
# counts with its start time, so that a later process of the same number is safe.
WARDEN = """
import os, signal, sys
def started(pid):
    try:
        return open(f"/proc/{pid}/stat").read().rpartition(")")[2].split()[19]
    except OSError:
        return None
wards = [(int(line), started(int(line))) for line in iter(sys.stdin.readline, "")]
for pid, start in wards:
    if start is not None and started(pid) == start:
        os.kill(pid, signal.SIGKILL)
"""


@functools.cache
def _warden(_owner: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [PYTHON, "-c", WARDEN],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )


def guard(pid: int) -> None:
    """Sees to it that a process does not outlive this one."""
    stdin = _warden(os.getpid()).stdin
    assert stdin is not None
    stdin.write(f"{pid}\n".encode())
    stdin.flush()


class Process:
    """A started process whose output is kept in a file."""

    def __init__(
        self, command: Sequence[str], log_path: Path, env: Mapping[str, str] | None = None
    ) -> None:
        self.command = list(command)
        self.log_path = log_path
        with log_path.open("ab") as output:
            self.popen = subprocess.Popen(
                ["setpriv", "--pdeathsig", "KILL", "--", *self.command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                env=dict(os.environ if env is None else env),
                start_new_session=True,  # a ^C for the test run is not one for the server
            )
        guard(self.popen.pid)

    @property
    def pid(self) -> int:
        return self.popen.pid

    @property
    def alive(self) -> bool:
        return self.popen.poll() is None

    def log(self) -> str:
        """All it has written so far."""
        return self.log_path.read_text(errors="replace")

    def children(self) -> list[int]:
        """The pids of its direct children."""
        text = Path(f"/proc/{self.pid}/task/{self.pid}/children").read_text()
        return [int(word) for word in text.split()]

    def send(self, number: int) -> None:
        self.popen.send_signal(number)

    def pause(self) -> None:
        """SIGSTOP, and every thread stands still when this returns."""
        self.send(signal.SIGSTOP)
        tasks = Path(f"/proc/{self.pid}/task")

        def still() -> bool:
            try:
                states = [task.joinpath("stat").read_text() for task in tasks.iterdir()]
            except OSError:  # a thread has ended meanwhile
                return False
            return all(state.rpartition(") ")[2].startswith("T") for state in states)

        wait_until(still, 5, "the process to stand still")

    def resume(self) -> None:
        self.send(signal.SIGCONT)

    def kill(self) -> int:
        """SIGKILL, and gone when this returns."""
        return self.end(signal.SIGKILL)

    def stop(self, timeout_s: float = LEAST_PATIENCE_S) -> int:
        """SIGTERM; SIGKILL when that does not help. Returns the exit code."""
        return self.end(signal.SIGTERM, timeout_s)

    def end(self, number: int, timeout_s: float = LEAST_PATIENCE_S) -> int:
        if self.popen.poll() is None:
            self.popen.send_signal(number)
            try:
                return self.popen.wait(timeout_s)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        return self.popen.wait()

    def wait(self, timeout_s: float = LEAST_PATIENCE_S) -> int:
        """Waits for it to end by itself; the exit code."""
        return self.popen.wait(max(timeout_s, LEAST_PATIENCE_S))

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.kill()


class Etcd:
    """A plain one-member etcd of Debian's; `kill` and `start` it again on its data."""

    def __init__(self, directory: Path | None = None, advertise: str = "127.0.0.1") -> None:
        """`advertise`: the host that it tells other members; it has none."""
        self.directory = directory or make_directory()
        self.port, self.peer_port = free_port(), free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.advertise = advertise
        self.process: Process | None = None

    def start(self) -> Etcd:
        self.directory.mkdir(parents=True, exist_ok=True)
        client, peer = f"http://{self.address}", f"http://127.0.0.1:{self.peer_port}"
        told = f"http://{self.advertise}:{self.peer_port}"
        self.process = Process(
            [
                "etcd",
                "--name=test",
                f"--data-dir={self.directory / 'etcd'}",
                f"--listen-client-urls={client}",
                f"--advertise-client-urls={client}",
                f"--listen-peer-urls={peer}",
                f"--initial-advertise-peer-urls={told}",
                f"--initial-cluster=test={told}",
                "--logger=zap",
                "--log-level=warn",
            ],
            self.directory / "etcd.log",
            env={**os.environ, "NOTIFY_SOCKET": ""},
        )
        wait_until(self.healthy, 20, f"etcd on {self.address}")
        return self

    def healthy(self) -> bool:
        assert self.process is not None and self.process.alive, self.log()
        answer = ask_http(self.port, "/health")
        return b'"health":"true"' in answer

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def log(self) -> str:
        return self.process.log() if self.process else ""

    def ctl(self, *words: str) -> str:
        """Runs etcdctl against it."""
        done = subprocess.run(
            ["etcdctl", f"--endpoints={self.address}", *words],
            env={**os.environ, "ETCDCTL_API": "3"},
            stdout=subprocess.PIPE,
            check=True,
            text=True,
            timeout=20,
        )
        return done.stdout

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class EtcdProxy:
    """`etcd grpc-proxy` in front of another etcd, as executors and gateways have it."""

    def __init__(self, upstream: str) -> None:
        self.directory = make_directory()
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.process = Process(
            [
                "etcd",
                "grpc-proxy",
                "start",
                f"--endpoints={upstream}",
                f"--listen-addr={self.address}",
                f"--advertise-client-url={self.address}",
                f"--data-dir={self.directory / 'proxy'}",
            ],
            self.directory / "proxy.log",
            env={**os.environ, "NOTIFY_SOCKET": ""},
        )
        wait_until(lambda: accepts(self.port), 20, f"grpc-proxy on {self.address}")

    def close(self) -> None:
        self.process.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Mongod:
    """A mongod that is a replica set of one node, named `oj`, with a small cache."""

    def __init__(self, directory: Path | None = None, arguments: Sequence[str] = ()) -> None:
        self.directory = directory or make_directory()
        self.port = free_port()
        self.address = f"127.0.0.1:{self.port}"
        self.uri = f"mongodb://{self.address}/?replicaSet=oj"
        self.arguments = list(arguments)
        self.process: Process | None = None

    def start(self) -> Mongod:
        import pymongo
        from pymongo.errors import OperationFailure, PyMongoError

        data = self.directory / "mongod"
        data.mkdir(parents=True, exist_ok=True)
        self.process = Process(
            [
                find_mongod(),
                "--replSet=oj",
                f"--dbpath={data}",
                "--bind_ip=127.0.0.1",
                f"--port={self.port}",
                "--nounixsocket",
                "--wiredTigerCacheSizeGB=0.25",
                "--oplogSize=256",
                "--noscripting",
                "--setParameter=shutdownTimeoutMillisForSignaledShutdown=500",
                "--setParameter=diagnosticDataCollectionEnabled=false",
                *self.arguments,
            ],
            self.directory / "mongod.log",
        )
        client: Any = pymongo.MongoClient(
            "127.0.0.1", self.port, directConnection=True, serverSelectionTimeoutMS=500
        )
        configuration = {
            "_id": "oj",
            "members": [{"_id": 0, "host": self.address}],
            "settings": {
                "electionTimeoutMillis": 2000,
                "heartbeatIntervalMillis": 500,
                "heartbeatTimeoutSecs": 2,
            },
        }

        def is_primary() -> bool:
            assert self.process is not None and self.process.alive, self.log()
            try:
                hello = client.admin.command("isMaster")
                if hello.get("isreplicaset"):
                    client.admin.command("replSetInitiate", configuration)
                return bool(hello["ismaster"])
            except OperationFailure as error:
                if error.code in {11600, 10107, 13435, 23}:  # starting, or initiated just now
                    return False
                raise
            except PyMongoError:
                return False

        try:
            wait_until(is_primary, 30, f"mongod on {self.address}")
        finally:
            client.close()
        return self

    def kill(self) -> None:
        if self.process is not None:
            self.process.kill()

    def log(self) -> str:
        return self.process.log() if self.process else ""

    def close(self) -> None:
        self.kill()
        shutil.rmtree(self.directory, ignore_errors=True)


class Daemon(Process):
    """One of our daemons, run from the tree, with a systemd of its own to speak to.

    `ready` and `statuses` hold what it told through its NOTIFY_SOCKET; `log()` is its standard
    error. `pets` counts the times that it fed its watchdog.
    """

    def __init__(
        self,
        role: str,
        config_text: str,
        directory: Path | None = None,
        watchdog_s: float = 0,
        env: Mapping[str, str] | None = None,
        arguments: Sequence[str] = (),
        program: Path | None = None,
    ) -> None:
        generate_rpc()
        self.role = role
        self.directory = directory or make_directory()
        self._own_directory = directory is None
        self.directory.mkdir(parents=True, exist_ok=True)
        self.config_path = self.directory / f"{role}.conf"
        if program is None and role in NUMBERED and not re.search(r"(?m)^metrics\b", config_text):
            # Many daemons of one role run on this machine; a test that wants numbers says where.
            config_text = f"metrics =\n{config_text}"
        self.config_path.write_text(config_text)
        self.ready = threading.Event()
        self.stopping = threading.Event()
        self.statuses: list[str] = []
        self.pets = 0
        self._notify = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self._notify.bind("")  # an abstract name of the kernel's choice
        environment = {
            key: value
            for key, value in os.environ.items()
            if key not in {"JOURNAL_STREAM", "NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID"}
        }
        environment["NOTIFY_SOCKET"] = "@" + self._notify.getsockname()[1:].decode()
        environment["PYTHONPATH"] = str(TREE / "daemons")
        environment["PYTHONUNBUFFERED"] = "1"
        environment["PYTHONFAULTHANDLER"] = "1"
        if watchdog_s:
            environment["WATCHDOG_USEC"] = str(int(watchdog_s * 1e6))
        environment.update(env or {})
        super().__init__(
            [
                PYTHON,
                str(program or TREE / "daemons" / "bin" / f"oj-{role}"),
                "--config",
                str(self.config_path),
                *arguments,
            ],
            self.directory / f"{role}.log",
            environment,
        )
        self._reader = threading.Thread(target=self._listen, daemon=True)
        self._reader.start()

    def _listen(self) -> None:
        while True:
            try:
                message = self._notify.recv(65536).decode(errors="replace")
            except OSError:
                return
            if not message:
                return
            ready = False
            for line in message.splitlines():
                key, _, value = line.partition("=")
                if key == "READY":
                    ready = True
                elif key == "STOPPING":
                    self.stopping.set()
                elif key == "STATUS":
                    self.statuses.append(value)
                elif key == "WATCHDOG":
                    self.pets += 1
            if ready:  # whoever waits for it finds the status that came with it
                self.ready.set()

    @property
    def status(self) -> str:
        return self.statuses[-1] if self.statuses else ""

    def wait_ready(self, timeout_s: float = READY_S) -> Daemon:
        """Until READY=1 came; AssertionError with its log when it ends or takes too long."""
        timeout_s = max(timeout_s, LEAST_PATIENCE_S)
        end = time.monotonic() + timeout_s
        while not self.ready.wait(0.02):
            # What was sent just before the end is still in the socket: hence the second look.
            if not self.alive and not self.ready.wait(0.2):
                raise AssertionError(
                    f"oj-{self.role} ended with {self.popen.returncode} before it was ready:\n"
                    + self.log()
                )
            if time.monotonic() > end:
                raise AssertionError(
                    f"oj-{self.role} was not ready in {timeout_s} s "
                    f"(status: {self.status!r}):\n{self.log()}"
                )
        return self

    def wait_status(self, pattern: str, timeout_s: float = 60.0) -> str:
        """Until the newest STATUS= matches; returns it."""

        def newest() -> str | None:
            return self.status if re.search(pattern, self.status) else None

        try:
            return wait_until(newest, timeout_s, f"status {pattern!r}")
        except AssertionError as error:
            raise AssertionError(f"{error}; seen: {self.statuses}\n{self.log()}") from None

    def close(self) -> None:
        self.kill()
        with contextlib.suppress(OSError):
            self._notify.shutdown(socket.SHUT_RDWR)
        self._notify.close()
        if self._own_directory:
            shutil.rmtree(self.directory, ignore_errors=True)

    def __exit__(self, *_: object) -> None:
        self.close()


def start_daemon(
    role: str,
    config_text: str,
    directory: Path | None = None,
    *,
    wait: bool = True,
    timeout_s: float = READY_S,
    watchdog_s: float = 0,
    env: Mapping[str, str] | None = None,
    arguments: Sequence[str] = (),
) -> Daemon:
    """Starts oj-ROLE from the tree with this configuration and waits for its READY=1.

    With wait=False it is returned at once. The caller ends it: close(), stop() or kill().
    """
    daemon = Daemon(role, config_text, directory, watchdog_s, env, arguments)
    if wait:
        try:
            daemon.wait_ready(timeout_s)
        except BaseException:
            daemon.close()
            raise
    return daemon


def run_daemon(role: str, config_text: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    """Runs oj-ROLE to its end, as `--check` and `--version` are used."""
    directory = make_directory()
    try:
        config = directory / f"{role}.conf"
        config.write_text(config_text)
        return subprocess.run(
            [
                PYTHON,
                str(TREE / "daemons" / "bin" / f"oj-{role}"),
                "--config",
                str(config),
                *arguments,
            ],
            env={
                **{k: v for k, v in os.environ.items() if k != "JOURNAL_STREAM"},
                "PYTHONPATH": str(TREE / "daemons"),
                "NOTIFY_SOCKET": "",
            },
            capture_output=True,
            text=True,
            timeout=30,
        )
    finally:
        shutil.rmtree(directory, ignore_errors=True)


def accepts(port: int) -> bool:
    """Whether something listens on this port of the loopback address."""
    try:
        socket.create_connection(("127.0.0.1", port), 1).close()
    except OSError:
        return False
    return True


def ask_http(port: int, path: str) -> bytes:
    """The whole answer to a GET on loopback, or nothing when nobody answers."""
    try:
        with socket.create_connection(("127.0.0.1", port), 1) as connection:
            connection.settimeout(2)
            connection.sendall(f"GET {path} HTTP/1.0\r\nHost: localhost\r\n\r\n".encode())
            answer = b""
            while chunk := connection.recv(65536):
                answer += chunk
            return answer
    except OSError:
        return b""


@contextlib.contextmanager
def etcd_and_mongod() -> Iterator[tuple[Etcd, Mongod]]:
    """Both servers, plain, for a benchmark or a judicator under test."""
    with contextlib.ExitStack() as stack:
        etcd, mongod = Etcd(), Mongod()
        stack.callback(etcd.close)
        stack.callback(mongod.close)
        yield etcd.start(), mongod.start()
