"""oj-executor: compiles and runs programs, and reports to the judicators.

Its life: as root, start oj-box and prepare directories; become an ordinary
user for good; prove that limits bite, then the languages; report. Threads: one
a slot (slots.py), two that report (reporter.py), the signals', and the main
one, which supervises.

Stopping (SIGTERM) gives running tasks back at once; SIGUSR1 finishes them and
takes no more, until the executor is started again.
"""

from __future__ import annotations

import logging
import os
import platform
import pwd
import signal
import sys
import threading
from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import NoReturn

from oj import __version__, incarnation, metrics, service
from oj.client import Judicators
from oj.clock import Deadline
from oj.errors import Unavailable
from oj.executor import languages, numbers, selftest
from oj.executor.cache import Cache
from oj.executor.configuration import Configuration, load, read_memory_bytes
from oj.executor.ledger import Ledger
from oj.executor.pipeline import CannotJudge, Pipeline
from oj.executor.proof import Proof
from oj.executor.reporter import Reporter
from oj.executor.sandbox import RunUnclear, Sandbox, SandboxFailure
from oj.executor.slots import Slots
from oj.executor.spool import Spool
from oj.executor.workspace import Places
from oj.model import BLOB_BYTES, Limits, Step, Task, Verdict
from oj.rpc import ttypes as rpc

BLOB_S = 60.0 + BLOB_BYTES / (2 << 20)
KILL_S = 5.0  # for killed runs to be cleaned away
REFUSED_S = 10.0  # before a machine that cannot serve is tried again by systemd
SICK_S = 30.0  # what does not recover by then needs a new oj-box, which only root can start
FAREWELL_S = 5.0  # for the judicators to hear of what is given back
DRAINING = "draining"
# Ample: a machine that stands still for a moment is not sick.
CANARY = Task(execute=Step(("/bin/true",), limits=Limits(cpu_ms=5_000, wall_ms=15_000)))

log = logging.getLogger("oj.executor")


def main() -> NoReturn:
    # Threads here are woken to say something at once, not after a long turn of another.
    sys.setswitchinterval(0.001)
    service.run(
        "executor",
        load,
        serve,
        "Compiles and runs programs, and reports to judicators.",
        lambda settings: settings.advice,
    )


def serve(daemon: service.Service, settings: Configuration) -> None:
    with ExitStack() as parts:
        try:
            daemon.status("starting the sandbox")
            sandbox = parts.enter_context(
                Sandbox.start(settings.box, settings.slots, settings.first_uid, pin=settings.pin)
            )
            prepare_directories(settings)
            described = languages.load(settings.directories.languages)
            drop_privileges(settings.user)
            executor = Executor(daemon, settings, sandbox)
            with cut_short(daemon.stop, sandbox):
                executor.prove(described)
        except (SandboxFailure, CannotJudge) as error:
            if daemon.stop.is_set():
                return  # cut short
            log.error("cannot run programs safely here: %s", error)
            daemon.status(f"cannot run programs safely here: {error}")
            if daemon.stop.wait(REFUSED_S):
                return
            raise SystemExit(1) from None
        if daemon.stop.is_set():
            return
        parts.enter_context(
            metrics.served("executor", settings.metrics, numbers.ALL, executor.look)
        )
        parts.callback(executor.stop)
        executor.start()
        executor.wait_until_heard()
        if not daemon.stop.is_set():
            daemon.ready(executor.describe())
            daemon.supervise(executor.check, every_s=1.0)


class Executor:
    """The parts, put together."""

    def __init__(self, daemon: service.Service, settings: Configuration, sandbox: Sandbox) -> None:
        directories = settings.directories
        self._daemon = daemon
        self._settings = settings
        self._sandbox = sandbox
        self._judicators = Judicators(
            settings.judicators, settings.etcd, timeout_s=settings.timeout_s
        )
        cache = Cache(
            directories.blobs,
            settings.cache_bytes,
            lambda digest, into: self._judicators.fetch_blob(digest, into, Deadline(BLOB_S)),
        )
        self._cache = cache
        places = Places(directories.small_tasks, directories.large_tasks, cache)
        if left := places.sweep():
            log.info("removed what %d tasks of an earlier process left behind", left)
        self._offered: dict[str, languages.Language] = {}
        self._versions: dict[str, str] = {}
        self._lock = threading.Lock()  # what is told last must be what holds
        self._sick = ""
        self._sick_deadline = Deadline(SICK_S)
        self._pipeline = Pipeline(sandbox, self._offered, cache, places, settings.rules)
        self._ledger = Ledger(
            incarnation.make(incarnation.keep_installation(directories.installation)),
            settings.slots,
            Spool(directories.results),
        )
        self._reporter = Reporter(settings.name, self._judicators, self._ledger)
        self._proof = Proof(sandbox, directories.small_tasks)
        self._slots = Slots(
            settings.name,
            self._ledger,
            self._pipeline,
            self._try_canary,
            settings.canary_s,
            self._set_sick,
        )
        if kept := self._ledger.count()[2]:
            log.info("%d results of an earlier process wait to be delivered", kept)

    def prove(self, described: Mapping[str, languages.Language]) -> None:
        """Refuses to go on where a limit does not bite; offers the languages that work."""
        self._daemon.status("proving that every limit bites")
        self._proof.prove_all()
        self._daemon.status("testing languages")
        self._offered.update(described)
        self._versions = selftest.prove(
            self._pipeline,
            described,
            self._settings.slots,
            self._settings.box,
            self._settings.directories.proven_languages,
            self._daemon.stop,
        )
        for name in set(described) - set(self._versions):
            del self._offered[name]
        log.info("languages: %s", " ".join(self._versions) or "none")

    def start(self) -> None:
        self._tell_facts()
        self._slots.start()
        self._reporter.start()
        self._daemon.on_signal(signal.SIGUSR1, self._drain)

    def wait_until_heard(self) -> None:
        """Ready means that a judicator knows us; until then we say what is in the way."""
        while not self._daemon.stop.is_set() and not self._reporter.wait_first_answer(0.5):
            try:
                self._reporter.check()
            except Unavailable as error:
                self._daemon.status(f"looking for a judicator: {error.message}")

    def describe(self) -> str:
        if refusal := self._reporter.refusal:
            return refusal
        running, queued, undelivered = self._ledger.count()
        pauses = self._ledger.pauses()
        words = [f"{self._settings.slots} slots, {running} running"]
        if queued:
            words.append(f"{queued} queued")
        if undelivered:
            words.append(f"{undelivered} to be delivered")
        words.append(f"{self._ledger.judged} judged")
        if DRAINING in pauses:
            words.append("drained, takes no tasks" if self._ledger.idle else "draining")
        elif self._ledger.drained:
            words.append("drained by an operator")
        return ", ".join(words) + "; languages " + (" ".join(self._versions) or "none")

    def check(self) -> str:
        """The real check; see Service.supervise for what its exceptions mean."""
        if not self._sandbox.alive():
            # Only root can start it again, and we are not root any more.
            log.error("oj-box has ended; leaving, to be started again")
            raise SystemExit(1)
        self._slots.check()
        self._reporter.check()
        if self._sick:
            if self._sick_deadline.expired:
                log.error("the sandbox does not recover; leaving, to be started again")
                raise SystemExit(1)
            raise Unavailable(f"sick, takes no tasks: {self._sick}")
        if refusal := self._reporter.refusal:
            raise Unavailable(refusal)
        return self.describe()

    def look(self) -> Iterator[metrics.Reading]:
        """For Prometheus."""
        return numbers.look(
            self._ledger,
            self._versions,
            bool(self._sick),
            self._reporter.answered_s,
            bool(self._reporter.refusal),
            self._cache.total_bytes,
        )

    def stop(self) -> None:
        """Gives back what is not finished and tells the judicators; bounded in time."""
        self._slots.stop(KILL_S)
        if not self._reporter.finish(FAREWELL_S):
            _, _, undelivered = self._ledger.count()
            log.warning("%d results or refusals are not delivered; results are kept", undelivered)

    def _drain(self) -> None:
        log.info("draining: finishes what it has and takes no more")
        with self._lock:
            self._ledger.pause(DRAINING, True)
            self._tell_facts()
        self._daemon.status(self.describe())

    def _set_sick(self, reason: str) -> None:
        """Called by slots."""
        with self._lock:
            if reason and not self._sick:
                self._sick_deadline = Deadline(SICK_S)
            self._sick = reason
            self._tell_facts()

    def _try_canary(self, slot: int, *, whole: bool) -> None:
        """See slots.Canary."""
        try:
            self._run_canary(slot, whole)
        except CannotJudge:
            numbers.CANARIES.add("bad")
            raise
        numbers.CANARIES.add("good")

    def _run_canary(self, slot: int, whole: bool) -> None:
        result = self._pipeline.try_out(slot, f"canary-{slot}", CANARY)
        if result.verdict is not Verdict.ACCEPTED:
            raise CannotJudge(f"the canary ended with {result.verdict.word}: {result.message}")
        try:
            if whole:
                self._proof.prove_slot(slot)
            else:
                self._proof.prove_next(slot)
        except SandboxFailure as error:
            raise CannotJudge(str(error), sick=True) from error
        except RunUnclear as error:
            if whole:
                raise CannotJudge(str(error)) from error
            log.info("the canary of slot %d proves nothing: %s", slot, error)

    def _tell_facts(self) -> None:
        draining = DRAINING in self._ledger.pauses()
        self._ledger.set_facts(
            rpc.Facts(
                languages=dict(self._versions),
                slots=self._settings.slots,
                version=__version__,
                state="sick" if self._sick else "draining" if draining else "ok",
                message=self._sick or None,
                system=read_system(),
            )
        )


@contextmanager
def cut_short(stop: threading.Event, sandbox: Sandbox) -> Iterator[None]:
    """Ends the sandbox, and so whatever runs in it meanwhile, when we are told to stop.

    The first proof of many languages may take longer than systemd waits."""
    lock = threading.Lock()
    over = False

    def watch() -> None:
        stop.wait()
        with lock:
            if not over:
                sandbox.close()

    threading.Thread(target=watch, name="cut-short", daemon=True).start()
    try:
        yield
    finally:
        with lock:
            over = True


def prepare_directories(settings: Configuration) -> None:
    """Makes what is missing and hands it to the user that we become."""
    directories = settings.directories
    for path in (directories.state, directories.runtime, *directories.own):
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
    if os.geteuid() == 0 and settings.user:
        owner = pwd.getpwnam(settings.user)
        for path in (directories.state, directories.runtime, *directories.own):
            os.chown(path, owner.pw_uid, owner.pw_gid, follow_symlinks=False)


def drop_privileges(user: str) -> None:
    """Becomes `user` for good; oj-box alone stays root."""
    if not user or pwd.getpwuid(os.geteuid()).pw_name == user:
        return
    if os.geteuid() != 0:
        log.error('must be started as root to become %s (or set user = "")', user)
        raise SystemExit(service.EXIT_CONFIG)
    owner = pwd.getpwnam(user)
    os.setgroups([])
    os.setresgid(owner.pw_gid, owner.pw_gid, owner.pw_gid)
    os.setresuid(owner.pw_uid, owner.pw_uid, owner.pw_uid)
    os.environ["HOME"] = owner.pw_dir


def read_system() -> dict[str, str]:
    """What is worth knowing of the machine."""
    unified = Path("/sys/fs/cgroup/cgroup.controllers").exists()
    return {
        "kernel": platform.release(),
        "machine": platform.machine(),
        "cores": str(os.cpu_count() or 1),
        "memory_bytes": str(read_memory_bytes()),
        "cgroup": "v2" if unified else "v1",
    }
