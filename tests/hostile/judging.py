"""A sandbox under attack: the executor's own pipeline, with something to steal beside it.

The host gets what an attacker would look for: a secret in a file that every user of the host may
read, in our environment, and as the expected output of tests; a file that everybody may write;
listening sockets. What an attack prints must not hold the secret, nor a line that starts with
ESCAPED, which is how attacks tell that they got somewhere.
"""

from __future__ import annotations

import contextlib
import errno
import os
import queue
import secrets
import shutil
import socket
import tempfile
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

from hostile import bare, collection, kernel_memory, leftovers  # noqa: F401 - bare comes first
from oj.executor.cache import Cache
from oj.executor.pipeline import CannotJudge, Pipeline, Rules
from oj.executor.sandbox import (
    Cancellation,
    RunCancelled,
    Sandbox,
    SandboxFailure,
)
from oj.executor.workspace import Places
from oj.model import Limits, Outcome, Result, Status, Step, Task, Test, Verdict

MIB = 1 << 20
FIRST_UID = 1_000_000 + os.getpid() * 8  # nobody else's, whatever else runs on this machine
SLOWNESS = 12.0 if os.environ.get("OJ_SLOW") == "1" else 1.0
PATIENCE = round(min(SLOWNESS, 4.0))  # some attacks last as long as they may
RULES = Rules(
    compile_limits=Limits(PATIENCE * 10_000, PATIENCE * 30_000, 512 * MIB, MIB, 64, 64 * MIB),
    run_limits=Limits(PATIENCE * 2_000, PATIENCE * 5_000, 64 * MIB, MIB, 32, 16 * MIB),
    most_limits=Limits(600_000, 1_200_000, 4096 * MIB, 256 * MIB, 1024, 2048 * MIB),
    keep_bytes=64 << 10,
    keep_total_bytes=MIB,
)
ABSTRACT = "\0oj-hostile-host"
TURN_S = 1200.0
SAMPLE_S = 0.005
MEASUREMENTS_AFTER_S = (0.0, 1.0, 3.0)


@dataclass
class Finding:
    """How one attack ended. No complaints: as it should."""

    name: str
    tries: str
    verdict: str = ""
    message: str = ""
    seconds: float = 0.0
    kernel_bytes: int | None = None  # by how much the kernel's memory grew, where it was measured
    kernel_kept_bytes: int = 0
    complaints: list[str] = field(default_factory=list)

    @property
    def passed(self) -> bool:
        return not self.complaints


class Target:
    """oj-box, the pipeline, and the bait."""

    def __init__(
        self,
        box_path: str,
        slots: int = 2,
        first_uid: int = FIRST_UID,
        built: Path | None = None,
    ) -> None:
        self.uids = range(first_uid, first_uid + slots)
        self._built = built  # see collection.load
        self._undo = contextlib.ExitStack()
        try:
            self._lay_bait()
            self.sandbox = self._undo.enter_context(
                Sandbox.start(box_path, slots, first_uid, start_timeout_s=20 * SLOWNESS)
            )
            self.box = self.sandbox._process.pid
            self._words["BOX_PID"] = str(self.box)
            cache = Cache(self.state / "blobs", 64 * MIB, self._fetch)
            places = Places(self.state / "small", self.state / "large", cache)
            self._pipeline = Pipeline(
                self.sandbox, collection.read_languages(), cache, places, RULES
            )
            for name in collection.names():
                self.load(name)  # makes every mistake show now, and every blob known
            for digest in collection.BLOBS:
                os.close(cache.open(digest))
            for slot in range(slots):
                self._settle(slot)
        except BaseException:
            self._undo.close()
            raise

    def _lay_bait(self) -> None:
        # Open to everybody on the host: it is not modes that keep programs out.
        self.state = Path(tempfile.mkdtemp(prefix="oj-hostile-"))
        self._undo.callback(shutil.rmtree, self.state, ignore_errors=True)
        self.state.chmod(0o755)
        self.secret = f"OJ-SECRET-{secrets.token_hex(16)}"
        for name in ("blobs", "small", "large"):
            (self.state / name).mkdir(mode=0o755)
        self.secret_file = self.state / "secret"
        self.secret_file.write_text(self.secret + "\n")
        self.secret_file.chmod(0o644)
        self.canary = self.state / "canary"
        self.canary.write_text("untouched\n")
        self.canary.chmod(0o666)
        os.environ["OJ_HOSTILE_SECRET"] = self.secret
        self._undo.callback(os.environ.pop, "OJ_HOSTILE_SECRET")
        self._words = {
            "SECRET_FILE": str(self.secret_file),
            "CANARY": str(self.canary),
            "STATE": str(self.state),
            "SOCKET": str(self.state / "socket"),
            "JUDGE_PID": str(os.getpid()),
            "BOX_PID": "1",
            "FIRST_UID": str(self.uids.start),
            "LAST_UID": str(self.uids.stop - 1),
            "PORT": "0",
        }
        for family, address in (
            (socket.AF_UNIX, ABSTRACT),
            (socket.AF_UNIX, self._words["SOCKET"]),
            (socket.AF_INET, ("127.0.0.1", 0)),
        ):
            listener = self._undo.enter_context(socket.socket(family, socket.SOCK_STREAM))
            self._bind(listener, address)
            listener.listen()
        self._words["PORT"] = str(listener.getsockname()[1])
        (self.state / "socket").chmod(0o777)

    @staticmethod
    def _bind(listener: socket.socket, address: str | tuple[str, int]) -> None:
        """The abstract address is known to the attacks: so there is one target at a time on a
        machine, and who comes second waits."""
        end = time.monotonic() + TURN_S
        while True:
            try:
                listener.bind(address)
                return
            except OSError as error:
                if error.errno != errno.EADDRINUSE or time.monotonic() > end:
                    raise
            time.sleep(0.5)

    @staticmethod
    def _fetch(digest: str, into: BinaryIO) -> int:
        return into.write(collection.BLOBS[digest])

    def close(self) -> None:
        self._undo.close()

    def __enter__(self) -> Target:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def load(self, name: str) -> collection.Attack:
        return collection.load(name, self._words, self.secret, SLOWNESS, self._built)

    # ---- attacks ---------------------------------------------------------------------------

    def try_attack(self, name: str, slots: list[int]) -> Finding:
        """Runs one attack in as many of these slots as it wants, and looks at what came of it."""
        attack = self.load(name)
        finding = Finding(name, attack.tries)
        assert attack.together <= len(slots), f"{name} needs {attack.together} slots"
        slots = slots[: attack.together]
        meeting = threading.Barrier(len(slots))
        started = time.monotonic()
        threads = [
            threading.Thread(target=self._judge_into, args=(finding, attack, slot, meeting))
            for slot in slots
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        finding.seconds = time.monotonic() - started
        if self.canary.read_text() != "untouched\n":
            finding.complaints.append("the canary was changed")
            self.canary.write_text("untouched\n")
        return finding

    def try_all(
        self, names: Sequence[str], tell: Callable[[Finding], None], measuring: bool = True
    ) -> None:
        """All slots attack at once; those attacks that want several slots come last, and then, if
        there is to be measured, those that are measured. `tell` is called for one at a time."""
        waiting: queue.SimpleQueue[str] = queue.SimpleQueue()
        telling = threading.Lock()
        measured = [name for name in names if measuring and self.load(name).measured]
        pairs = [name for name in names if self.load(name).together > 1 and name not in measured]
        for name in names:
            if name not in pairs and name not in measured:
                waiting.put(name)

        def work(slot: int) -> None:
            with contextlib.suppress(queue.Empty):
                while True:
                    finding = self.try_attack(waiting.get_nowait(), [slot])
                    with telling:
                        tell(finding)

        in_every_slot(work, len(self.uids))
        for name in pairs:
            tell(self.try_attack(name, list(range(len(self.uids)))))
        for name in measured:
            tell(self.measure_attack(name, list(range(len(self.uids)))))

    def measure_attack(
        self, name: str, slots: list[int], slack_bytes: int = kernel_memory.SLACK_BYTES
    ) -> Finding:
        """Runs one attack while nothing else does, and looks at how much memory the kernel took for
        it. What else happens on the machine only adds to that: the least of three counts."""
        attack = self.load(name)
        allowed = _memory_of(attack) * attack.together + slack_bytes
        findings: list[Finding] = []
        for pause_s in MEASUREMENTS_AFTER_S:
            time.sleep(pause_s)
            with kernel_memory.Meter(PATIENCE * SAMPLE_S) as meter:
                finding = self.try_attack(name, slots)
            finding.kernel_bytes, finding.kernel_kept_bytes = meter.grown, meter.kept
            findings.append(finding)
            if finding.complaints or meter.grown <= allowed:
                return finding
        least = min(findings, key=lambda one: one.kernel_bytes or 0)
        least.complaints.append(
            f"the kernel's memory grew by {(least.kernel_bytes or 0) >> 20} MB,"
            f" with {allowed >> 20} MB allowed"
        )
        return least

    def _judge_into(
        self, finding: Finding, attack: collection.Attack, slot: int, meeting: threading.Barrier
    ) -> None:
        def advance(status: Status, done: int) -> None:
            if status is Status.RUNNING and done == 0:
                with contextlib.suppress(threading.BrokenBarrierError):
                    meeting.wait(60)

        name = f"{attack.name}-{slot}"
        try:
            with contextlib.ExitStack() as cleaning:
                result = self._pipeline.judge(
                    slot, name, attack.task, Cancellation(), advance, cleaning
                )
        except (CannotJudge, SandboxFailure) as error:
            meeting.abort()
            finding.verdict = "judge_error"
            finding.complaints.append(f"could not be judged: {error}")
            return
        finding.verdict, finding.message = result.verdict.word, result.message
        finding.complaints += self.examine(attack, result)
        if left := leftovers.processes_of(range(self.uids[slot], self.uids[slot] + 1)):
            told = [leftovers.describe(pid) for pid in left]
            finding.complaints.append(f"processes are still there: {told}")

    def examine(self, attack: collection.Attack, result: Result) -> list[str]:
        complaints = []
        if result.verdict not in attack.verdicts:
            allowed = ", ".join(sorted(verdict.word for verdict in attack.verdicts))
            printed = b"".join(
                outcome.stdout[:200] + outcome.stderr[:400] for outcome in _outcomes(result)
            )
            complaints.append(
                f"{result.verdict.word} ({result.message}) and not {allowed}; printed "
                + repr(printed.decode("utf-8", "replace"))
            )
        for outcome in _outcomes(result):
            for stream in (outcome.stdout, outcome.stderr):
                if self.secret.encode() in stream:
                    complaints.append("the secret got out")
                complaints += [
                    line.decode("utf-8", "replace")
                    for line in stream.splitlines()
                    if line.startswith(b"ESCAPED")
                ]
        limits = attack.task.execute.limits.over(RULES.run_limits)
        for test in result.tests:
            ran = test.outcome
            late_ms = ran.wall_us / 1000 - (limits.wall_ms or 0)
            if late_ms > 5_000 * SLOWNESS:
                complaints.append(f"ended {late_ms:.0f} ms after its wall limit")
            if ran.processes > (limits.processes or 0):
                complaints.append(f"had {ran.processes} processes")
            # With what the kernel has for it, where that ended it.
            over = kernel_memory.SLACK_BYTES if result.verdict is Verdict.MEMORY_LIMIT else MIB
            if ran.memory_bytes > (limits.memory_bytes or 0) + over:
                complaints.append(f"had {ran.memory_bytes} bytes of memory")
        return complaints

    # ---- plain and cancelled runs -------------------------------------------------------------

    def _settle(self, slot: int) -> None:
        self._judge(slot, "settle", _plain(1), Cancellation())

    def _judge(self, slot: int, name: str, task: Task, cancellation: Cancellation) -> Result:
        with contextlib.ExitStack() as cleaning:
            return self._pipeline.judge(
                slot, f"{name}-{slot}", task, cancellation, lambda *_: None, cleaning
            )

    def run_many(self, slot: int, runs: int, per_task: int = 10) -> None:
        """That many runs of a small program, several to a task."""
        while runs > 0:
            result = self._judge(slot, "plain", _plain(min(per_task, runs)), Cancellation())
            assert result.status is Status.SUCCESS, result
            runs -= per_task

    def cancel_many(self, slot: int, cancels: int) -> int:
        """That many runs, each cancelled at another moment of its life; returns how many were
        over before."""
        over = 0
        for number in range(cancels):
            cancellation = Cancellation()
            timer = threading.Timer(number % 40 / 1000, cancellation.cancel)
            timer.start()
            try:
                self._judge(slot, "cancel", _BUSY, cancellation)
                over += 1
            except RunCancelled:
                pass
            timer.join()
        return over

    # ---- the machine ----------------------------------------------------------------------------

    def count(self) -> dict[str, object]:
        leftovers.wait_idle(self.box, self.uids)
        return leftovers.count(self.box, self.uids, self.state)


def in_every_slot(work: Callable[[int], None], slots: int) -> None:
    """Calls `work` for all slots at once; raises what the first of them raised."""
    failures: list[BaseException] = []

    def guard(slot: int) -> None:
        try:
            work(slot)
        except BaseException as error:  # noqa: BLE001 - raised below, in the caller's thread
            failures.append(error)

    threads = [threading.Thread(target=guard, args=(slot,)) for slot in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    if failures:
        raise failures[0]


def _memory_of(attack: collection.Attack) -> int:
    """The limit of the step that attacks: compilers are given a larger one."""
    if Verdict.COMPILE_ERROR in attack.verdicts:
        return attack.task.compile.limits.over(RULES.compile_limits).memory_bytes or 0
    return attack.task.execute.limits.over(RULES.run_limits).memory_bytes or 0


def _outcomes(result: Result) -> list[Outcome]:
    compiled = [result.compile] if result.compile else []
    return compiled + [test.outcome for test in result.tests]


def _plain(tests: int) -> Task:
    return Task(
        execute=Step(
            ("/bin/sh", "-c", "echo a >a; echo b >/tmp/b; sleep 60 & exit 0"),
            Limits(wall_ms=60_000),
        ),
        tests=(Test(),) * tests,
    )


_BUSY = Task(
    compile=Step(("/bin/sh", "-c", "echo made >made")),
    execute=Step(
        ("/bin/sh", "-c", "sleep 60 & setsid sleep 60 & echo a >/tmp/a; sleep 60"),
        Limits(wall_ms=30_000),
    ),
    tests=(Test(),) * 3,
)
