"""Runs programs under oj-box: the executor's only way to start anything foreign.

This module owns the conversation with oj-box (daemons/box/, oj-box(8)): one
process, started as root before the executor drops its privileges, with one
SOCK_SEQPACKET socket per slot. The Python process itself never forks for a run.

Trees and layers. `RunRequest.directory` is a directory of the caller's on the
host; the program sees it as /box. It is never written to: what a program
changes goes to a fresh, size-limited tmpfs laid over it, which dies with the
run. A run with `writable=True` (the compile step) keeps that tmpfs as a layer
of the slot, so that later runs of the same directory *in the same slot* see
what it left behind, and cannot alter it either. `data` is laid over both, for
files that only the run may see and that compile must not be able to replace.
The caller can therefore always delete its own directories; the layer goes when
the slot is given another directory or `forget` is called.

Memory that nobody counts. oj-box ends a run during which the kernel of the whole machine took
more memory than the run may have. That may have been a neighbour's doing, in another slot or a
daemon. So the run is repeated with no other slot beside it, and only if as much is taken again, and
comes back with the run's end, was it the program. The others wait no longer for that than it needs:
once a repetition has lasted twice as long as the run before, it goes on beside others. A directory
has ALONE_MOST repetitions, and more that clear it while they take less than ALONE_S together; if
nothing is certain then, or no quiet moment comes, another executor judges its task (RunUnclear).

Modes. Programs run as an own uid per slot, which owns nothing of the tree: the
caller makes files readable by others and directories writable by others (0644
or 0755, 0777), below a parent that only it can enter.
"""

from __future__ import annotations

import contextlib
import enum
import logging
import math
import os
import socket
import subprocess
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from types import TracebackType

from oj.executor import boxwire
from oj.executor.runs import LimitHit, RunLimits, RunRequest

__all__ = [
    "Cancellation",
    "LimitHit",
    "Output",
    "RunCancelled",
    "RunLimits",
    "RunRequest",
    "RunUnclear",
    "Sandbox",
    "SandboxFailure",
    "Usage",
]

log = logging.getLogger("oj.executor.sandbox")

GRACE_S = 10.0
"""How long oj-box may take, beyond a run's own time and that of its processes' death, before it
counts as broken."""


ALONE_MOST = 3
"""How often runs of one directory may stop all other slots without being cleared by that."""

ALONE_S = 30.0
"""For how long together; beyond that being cleared gives nothing back."""


class SandboxFailure(Exception):
    """The sandbox, not the program, failed. Never a verdict: the task is retried elsewhere."""


class RunCancelled(Exception):
    """The run was cancelled; every process of it is dead."""


class RunUnclear(Exception):
    """It could not be told who took the machine's memory: nobody's fault for certain."""


class Output:
    """What a run wrote to one stream, in an anonymous file, from its first byte.

    At most `output_bytes` of it; `cut` says that there was more. To be closed by
    the caller (it is a context manager)."""

    def __init__(self, fd: int, size_bytes: int, cut: bool) -> None:
        self._fd = fd
        self.size_bytes = size_bytes
        self.cut = cut

    @classmethod
    def empty(cls, name: str) -> Output:
        return cls(os.memfd_create(name, os.MFD_CLOEXEC), 0, False)

    def fileno(self) -> int:
        """The descriptor, still owned by this object; use os.pread, its offset is anywhere."""
        return self._fd

    def read(self, most_bytes: int | None = None) -> bytes:
        """The first `most_bytes` bytes, or all."""
        want = self.size_bytes if most_bytes is None else min(most_bytes, self.size_bytes)
        parts = []
        offset = 0
        while offset < want:
            part = os.pread(self._fd, want - offset, offset)
            if not part:
                break
            parts.append(part)
            offset += len(part)
        return b"".join(parts)

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def __enter__(self) -> Output:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


@dataclass(frozen=True)
class Usage:
    """How a run ended and what it used. Close `stdout` and `stderr`, or the Usage itself."""

    exit_code: int | None
    """None if it was ended by a signal. As in a shell 126 or 127 if argv[0] could not be
    executed or found, but a program may end so, too: see exec_error."""
    signal: int | None
    limit_hit: LimitHit
    cpu_us: int
    wall_us: int
    memory_bytes: int
    processes: int
    stdout: Output
    stderr: Output
    exec_error: int = 0
    """The errno with which argv[0] could not be executed; 0 if it was."""

    def close(self) -> None:
        self.stdout.close()
        self.stderr.close()

    def __enter__(self) -> Usage:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


class Cancellation:
    """Cancels what runs with it, now and later. One per task; safe from any thread."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._cancelled = False
        self._kill: Callable[[], None] | None = None

    @property
    def cancelled(self) -> bool:
        return self._cancelled

    def cancel(self) -> None:
        """Kills the run that uses this at once; later runs with it raise RunCancelled."""
        with self._lock:
            self._cancelled = True
            if self._kill is not None:
                self._kill()

    @contextlib.contextmanager
    def _covering(self, start: Callable[[], None], kill: Callable[[], None]) -> Iterator[None]:
        """Starts a run so that no cancel falls between the look at the flag and the start."""
        with self._lock:
            if self._cancelled:
                raise RunCancelled
            start()
            self._kill = kill
        try:
            yield
        finally:
            with self._lock:
                self._kill = None


class _Whose(enum.Enum):
    """The memory that nobody counts and that a run ended for."""

    COUNTED = enum.auto()  # it did not
    OWN = enum.auto()  # or that of a run beside it
    NOBODYS = enum.auto()  # it did not come back with the run's end


class _Alone:
    """One run's time without others."""

    lasts = True  # up to the end of the run, or now
    lasted_s = 0.0


class _Turns:
    """Runs at the same time, or one alone. One that wants to be alone comes before new ones."""

    LOOK_S = 0.2  # how long a cancel may go unnoticed while it waits
    PATIENCE_S = 10.0  # of one that wants to be alone: all others wait as well

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._running = 0
        self._alone = False
        self._wanted = 0

    @contextlib.contextmanager
    def beside_others(self, cancellation: Cancellation) -> Iterator[None]:
        with self._changed:
            self._wait(lambda: not self._alone and not self._wanted, cancellation)
            self._running += 1
        try:
            yield
        finally:
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    @contextlib.contextmanager
    def alone(self, cancellation: Cancellation, most_s: float = math.inf) -> Iterator[_Alone]:
        """After `most_s` others may run beside it: what is yielded tells whether they may."""
        with self._changed:
            self._wanted += 1
            try:
                self._wait(
                    lambda: not self._alone and not self._running, cancellation, self.PATIENCE_S
                )
                self._alone = True
            finally:
                self._wanted -= 1
                self._changed.notify_all()
        turn = _Alone()
        began_s = time.monotonic()

        def end() -> None:
            with self._changed:
                if turn.lasts:
                    turn.lasts = False
                    turn.lasted_s = time.monotonic() - began_s
                    self._alone = False
                    self._running += 1
                    self._changed.notify_all()

        timer = threading.Timer(min(most_s, threading.TIMEOUT_MAX), end)
        timer.daemon = True
        timer.start()
        try:
            yield turn
        finally:
            timer.cancel()
            was_alone = turn.lasts
            end()
            turn.lasts = was_alone
            with self._changed:
                self._running -= 1
                self._changed.notify_all()

    def _wait(
        self, free: Callable[[], bool], cancellation: Cancellation, most_s: float = math.inf
    ) -> None:
        end_s = time.monotonic() + most_s
        while not free():
            if cancellation.cancelled:
                raise RunCancelled
            if time.monotonic() > end_s:
                raise RunUnclear("no quiet moment came to tell who took the machine's memory")
            self._changed.wait(self.LOOK_S)


class _Slot:
    """The client's end of one slot: one conversation at a time."""

    def __init__(self, sock: socket.socket) -> None:
        self.start_directory()
        self._sock = sock
        self._lock = threading.Lock()
        self._number = 0
        self._broken: str | None = None
        self.clearing_s = 0.0
        """What the run before may still need: its files are freed after its answer."""

    def start_directory(self) -> None:
        """Nothing is known of the programs that come."""
        self.alone_left = ALONE_MOST
        self.alone_s = 0.0
        self.proven_hungry = False  # one of its directory's runs took what nobody counts, alone

    def ask(
        self,
        pack: Callable[[int], bytes],
        fds: Sequence[int],
        timeout_s: float,
        cancellation: Cancellation,
    ) -> boxwire.Answer:
        """Sends a message and waits for its answer."""
        with self._lock:
            if self._broken is not None:
                raise SandboxFailure(self._broken)
            self._number += 1
            number = self._number
            message = pack(number)
            try:
                with cancellation._covering(
                    start=lambda: self._send(message, fds, timeout_s),
                    kill=lambda: self._cancel(number),
                ):
                    data = self._sock.recv(boxwire.ANSWER_BYTES + 1)
                if not data:
                    raise OSError("oj-box died")
                answer = boxwire.parse_answer(data)
                if answer.number not in (number, 0):
                    raise ValueError("an answer to another request")
            except (OSError, ValueError) as error:
                # Closing it makes the slot kill whatever it still runs.
                self._broken = f"the sandbox failed: {error or type(error).__name__}"
                self._sock.close()
                raise SandboxFailure(self._broken) from error
            return answer

    def _send(self, message: bytes, fds: Sequence[int], timeout_s: float) -> None:
        self._sock.settimeout(timeout_s)
        if fds:
            socket.send_fds(self._sock, [message], fds)
        else:
            self._sock.send(message)

    def _cancel(self, number: int) -> None:
        # A dead oj-box has nothing left to cancel; the waiting run sees its end.
        with contextlib.suppress(OSError):
            self._sock.send(boxwire.pack_plain(boxwire.Kind.CANCEL, number))

    def close(self) -> None:
        # Not under the lock: a run that waits for its answer must see the end.
        with contextlib.suppress(OSError):
            self._sock.shutdown(socket.SHUT_RDWR)
        with self._lock:
            self._broken = self._broken or "the sandbox is closed"
            self._sock.close()


class Sandbox:
    """oj-box and its slots. A context manager; `run` is safe from several threads."""

    def __init__(
        self,
        process: subprocess.Popen[bytes],
        control: socket.socket,
        slots: Sequence[socket.socket],
    ) -> None:
        self._process = process
        self._control = control
        self._slots = [_Slot(sock) for sock in slots]
        self._turns = _Turns()

    @classmethod
    def start(
        cls,
        box_path: str,
        slots: int,
        first_uid: int = 64100,
        start_timeout_s: float = 20.0,
        parts: Sequence[str] = (),
        pin: bool = False,
    ) -> Sandbox:
        """Starts oj-box; to be called as root, before privileges are dropped.

        `parts` are further directories of the host that programs may read; `pin` gives each
        slot's programs a core of their own where there are more cores than slots. Raises
        SandboxFailure with oj-box's own words if it cannot enforce a limit here."""
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        command = [box_path, "serve", "--socket", str(theirs.fileno())]
        command += ["--slots", str(slots), "--first-uid", str(first_uid)]
        if pin:
            command.append("--pin")
        for part in parts:
            command += ["--part", part]
        with contextlib.ExitStack() as undo:
            undo.callback(ours.close)
            with theirs:
                try:
                    process = subprocess.Popen(
                        command, stdin=subprocess.DEVNULL, pass_fds=[theirs.fileno()], env={}
                    )
                except OSError as error:
                    raise SandboxFailure(f"cannot start {box_path}: {error}") from error
            undo.callback(_end, process)
            undo.callback(ours.close)
            try:
                ours.settimeout(start_timeout_s)
                data, fds, _, _ = socket.recv_fds(ours, boxwire.ANSWER_BYTES + 1, slots)
                sockets = [socket.socket(fileno=fd) for fd in fds]
                answer = boxwire.parse_answer(data)
            except (OSError, ValueError) as error:
                raise SandboxFailure(f"oj-box did not start: {error}") from error
            if answer.kind is not boxwire.AnswerKind.READY or len(sockets) != slots:
                raise SandboxFailure(answer.fault or "oj-box did not start its slots")
            undo.pop_all()
            return cls(process, ours, sockets)

    @property
    def slots(self) -> int:
        return len(self._slots)

    def run(
        self, slot: int, request: RunRequest, cancellation: Cancellation | None = None
    ) -> Usage:
        """Runs one program in `slot` (0 up to slots - 1) and waits for its end.

        One run per slot at a time. Raises RunCancelled, SandboxFailure if the sandbox
        failed or oj-box died, and RunUnclear."""
        cancellation = cancellation or Cancellation()
        own = self._slots[slot]
        with self._turns.beside_others(cancellation):
            usage, whose = self._run_once(own, request, cancellation)
        # Also when no other slot ran anything: daemons of the machine take and give back, too. Only
        # what happens twice, at least once of it alone, is the program's.
        hungry = 2 if own.proven_hungry else int(whose is _Whose.OWN)
        while whose is _Whose.NOBODYS or (whose is _Whose.OWN and hungry < 2):
            usage.close()
            if own.alone_left == 0:
                raise RunUnclear("whether this program took the machine's memory cannot be told")
            own.alone_left -= 1
            log.info("slot %d: the kernel's memory grew by more than a limit; again alone", slot)
            _rewind(request.stdin)
            # As much takes as long again, and somewhat longer at most.
            with self._turns.alone(cancellation, 2 * usage.wall_us / 1e6 + 1) as turn:
                usage, whose = self._run_once(own, request, cancellation)
            own.alone_s += turn.lasted_s
            if whose is _Whose.COUNTED and own.alone_s < ALONE_S:
                own.alone_left += 1  # the others were to blame, and may be so again
            elif whose is _Whose.OWN and not turn.lasts:
                whose = _Whose.NOBODYS
            hungry += whose is _Whose.OWN
        own.proven_hungry |= whose is _Whose.OWN
        return usage

    def _run_once(
        self, slot: _Slot, request: RunRequest, cancellation: Cancellation
    ) -> tuple[Usage, _Whose]:
        """How it ended, and whose memory it ended for that nobody counts."""
        with contextlib.ExitStack() as inputs, contextlib.ExitStack() as outputs:
            stdout = outputs.enter_context(Output.empty("stdout"))
            stderr = outputs.enter_context(Output.empty("stderr"))
            fds = [_open_directory(request.directory, inputs), _open_stdin(request.stdin, inputs)]
            fds += [stdout.fileno(), stderr.fileno()]
            if request.data is not None:
                fds.append(_open_directory(request.data, inputs))
            before_s, slot.clearing_s = slot.clearing_s, request.limits.dying_s
            answer = slot.ask(
                lambda number: _pack(number, request),
                fds,
                request.limits.wall_ms / 1000 + request.limits.dying_s + before_s + GRACE_S,
                cancellation,
            )
            if answer.kind is not boxwire.AnswerKind.RAN:
                raise SandboxFailure(answer.fault)
            if answer.flags & boxwire.AnswerFlag.CANCELLED:
                raise RunCancelled
            stdout.size_bytes = answer.stdout_bytes
            stdout.cut = bool(answer.flags & boxwire.AnswerFlag.STDOUT_CUT)
            stderr.size_bytes = answer.stderr_bytes
            stderr.cut = bool(answer.flags & boxwire.AnswerFlag.STDERR_CUT)
            outputs.pop_all()
            usage = Usage(
                exit_code=answer.exit_code if answer.exit_code >= 0 else None,
                signal=answer.signal or None,
                limit_hit=LimitHit(answer.limit),
                cpu_us=answer.cpu_us,
                wall_us=answer.wall_us,
                memory_bytes=answer.memory_bytes,
                processes=answer.processes,
                stdout=stdout,
                stderr=stderr,
                exec_error=answer.error,
            )
            return usage, _find_whose(answer.flags)

    def forget(self, slot: int) -> None:
        """Drops the slot's directory and layer, so that the caller's files are not held."""
        self._slots[slot].start_directory()
        answer = self._slots[slot].ask(
            lambda number: boxwire.pack_plain(boxwire.Kind.FORGET, number),
            (),
            self._slots[slot].clearing_s + GRACE_S,
            Cancellation(),
        )
        if answer.kind is not boxwire.AnswerKind.FORGOT:
            raise SandboxFailure(answer.fault)

    def alive(self) -> bool:
        """Whether oj-box still runs. If not, only a new process can start it again."""
        return self._process.poll() is None

    def close(self) -> None:
        """Ends oj-box with everything it runs, and waits for it."""
        self._control.close()
        for slot in self._slots:
            slot.close()
        _end(self._process)

    def __enter__(self) -> Sandbox:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.close()


def _end(process: subprocess.Popen[bytes]) -> None:
    """Waits for an oj-box whose control socket was closed: that is what ends it."""
    try:
        process.wait(GRACE_S)
    except subprocess.TimeoutExpired:
        # Without root the signal is refused; then systemd ends it with the unit.
        with contextlib.suppress(PermissionError):
            process.kill()
            process.wait(GRACE_S)


def _open_directory(path: str, undo: contextlib.ExitStack) -> int:
    try:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxFailure(f"cannot open the directory {path}: {error.strerror}") from error
    undo.callback(os.close, fd)
    return fd


def _find_whose(flags: boxwire.AnswerFlag) -> _Whose:
    if not flags & boxwire.AnswerFlag.UNCOUNTED:
        return _Whose.COUNTED
    return _Whose.NOBODYS if flags & boxwire.AnswerFlag.UNSURE else _Whose.OWN


def _rewind(source: str | int | None) -> None:
    """For another run of the same input. Raises RunUnclear for one that can be read only once."""
    if isinstance(source, int):
        try:
            os.lseek(source, 0, os.SEEK_SET)
        except OSError as error:
            raise RunUnclear(f"the input cannot be read again: {error.strerror}") from error


def _open_stdin(source: str | int | None, undo: contextlib.ExitStack) -> int:
    if isinstance(source, int):
        return source
    path = os.devnull if source is None else source
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    except OSError as error:
        raise SandboxFailure(f"cannot open the input {path}: {error.strerror}") from error
    undo.callback(os.close, fd)
    return fd


def _pack(number: int, request: RunRequest) -> bytes:
    limits = request.limits
    flags = boxwire.RunFlag(0)
    if request.writable:
        flags |= boxwire.RunFlag.KEEP
    if request.data is not None:
        flags |= boxwire.RunFlag.DATA
    return boxwire.pack_run(
        number,
        flags,
        (
            limits.cpu_ms * 1000,
            limits.wall_ms * 1000,
            limits.memory_bytes,
            limits.output_bytes,
            limits.processes,
            limits.disk_bytes,
            limits.files,
        ),
        request.cwd,
        request.argv,
        request.env,
    )
