"""One task's way: files, compile once, then each test: run, compare, verdict.

A program's fault ends in a Result. Ours (the sandbox failed, a blob cannot be
had, a file cannot be written) ends in `CannotJudge`, and the task goes back to
the judicators: a failure of the judge is never a verdict.
"""

from __future__ import annotations

import errno
import fcntl
import os
from collections.abc import Callable, Mapping
from contextlib import ExitStack
from dataclasses import dataclass, fields, replace

from oj.errors import Rejected, Unavailable
from oj.executor import languages
from oj.executor.cache import Cache
from oj.executor.compare import Bytes, compare
from oj.executor.languages import ENVIRONMENT, Language
from oj.executor.runs import Difference
from oj.executor.sandbox import (
    Cancellation,
    Output,
    RunLimits,
    RunRequest,
    RunUnclear,
    Sandbox,
    SandboxFailure,
    Usage,
)
from oj.executor.verdict import RunFacts, judge_compile, judge_output, judge_run, sum_up
from oj.executor.workspace import Places, Workspace
from oj.model import (
    Data,
    Limits,
    Outcome,
    Result,
    Status,
    Step,
    Task,
    Test,
    TestResult,
    Verdict,
)

MESSAGE_CHARACTERS = 500
COMPILE_FILES = 32768  # compilers keep caches of many small files
OWN_LIMITS = (errno.ENOMEM, errno.E2BIG, errno.EAGAIN)  # why execve fails that are the task's


class CannotJudge(Exception):
    """This executor cannot judge the task; another may."""

    def __init__(self, reason: str, sick: bool = False) -> None:
        super().__init__(reason)
        self.reason = reason
        self.sick = sick  # it is not the task, it is this machine


@dataclass(frozen=True)
class Rules:
    """What a run may use and how much of what it prints is kept."""

    compile_limits: Limits
    run_limits: Limits
    most_limits: Limits
    keep_bytes: int  # of one stream of one run
    keep_total_bytes: int  # of all runs of a task


class Pipeline:
    """Judges tasks; one per executor, used by all slots at once."""

    def __init__(
        self,
        sandbox: Sandbox,
        offered: Mapping[str, Language],
        cache: Cache,
        places: Places,
        rules: Rules,
    ) -> None:
        self._sandbox = sandbox
        self._languages = offered
        self._cache = cache
        self._places = places
        self._rules = rules

    def judge(
        self,
        slot: int,
        name: str,
        task: Task,
        cancellation: Cancellation,
        advance: Callable[[Status, int], None],
        cleaning: ExitStack,
    ) -> Result:
        """The result. Raises CannotJudge, or RunCancelled.

        What is left to clean is put on `cleaning`, for the caller to unwind once
        the result is on its way; that may raise SandboxFailure.
        """
        language = self._languages.get(task.language)
        if task.language and language is None:
            raise CannotJudge(f"language {task.language} is not offered here")
        try:
            workspace = cleaning.enter_context(self._places.make(name, task.source, task.data))
            cleaning.callback(self._sandbox.forget, slot)
            run = _Run(self._sandbox, self._cache, self._rules, slot, task, language, workspace)
            return run.judge(cancellation, advance)
        except SandboxFailure as error:
            raise CannotJudge(f"the sandbox failed: {error}", sick=True) from error
        except RunUnclear as error:
            raise CannotJudge(f"{error}") from error
        except (Rejected, Unavailable) as error:
            raise CannotJudge(error.message) from error
        except OSError as error:
            raise CannotJudge(f"{error}", sick=True) from error

    def try_out(self, slot: int, name: str, task: Task) -> Result:
        """Judges a task of our own: a canary, a self-test. Raises CannotJudge."""
        try:
            with ExitStack() as cleaning:
                return self.judge(slot, name, task, Cancellation(), lambda *_: None, cleaning)
        except SandboxFailure as error:
            raise CannotJudge(f"the sandbox failed: {error}", sick=True) from error

    def print_version(self, slot: int, language: Language) -> str:
        """The first line that the language's version command prints."""
        if not language.version:
            return ""
        with self._places.make(f"version-{language.name}", (), ()) as workspace:
            request = RunRequest(
                language.version,
                workspace.source,
                _run_limits(language.compile_limits, self._rules.compile_limits, self._rules),
                env={**ENVIRONMENT, **language.environment},
            )
            try:
                with self._sandbox.run(slot, request) as usage:
                    text = usage.stdout.read(1000) or usage.stderr.read(1000)
                    failed = judge_run(_facts(usage))[0] is not None
            except RunUnclear as error:
                raise CannotJudge(str(error)) from error
            finally:
                self._sandbox.forget(slot)
        lines = text.decode("utf-8", "replace").strip().splitlines()
        if failed or not lines:
            raise CannotJudge(f"{language.version[0]} does not tell its version")
        return lines[0][:100]


class _Run:
    """The judging of one task."""

    def __init__(
        self,
        sandbox: Sandbox,
        cache: Cache,
        rules: Rules,
        slot: int,
        task: Task,
        language: Language | None,
        workspace: Workspace,
    ) -> None:
        self._sandbox = sandbox
        self._cache = cache
        self._rules = rules
        self._slot = slot
        self._task = task
        self._language = language
        self._workspace = workspace
        self._left_bytes = rules.keep_total_bytes
        self._env = {**ENVIRONMENT, **(language.environment if language else {})}

    def judge(self, cancellation: Cancellation, advance: Callable[[Status, int], None]) -> Result:
        compiled: Outcome | None = None
        command = self._task.compile.command or (self._language.compile if self._language else ())
        if command:
            advance(Status.COMPILING, 0)
            compiled, problem = self._compile(command, cancellation)
            if problem:
                return Result(
                    Status.COMPILE_FAILED, Verdict.COMPILE_ERROR, compiled, message=problem
                )
        advance(Status.RUNNING, 0)
        tests = self._task.tests or (Test(),)
        results: list[TestResult] = []
        request = self._request_run()
        for number, test in enumerate(tests, 1):
            result = self._run(request, test, test.name or str(number), cancellation)
            results.append(result)
            if number < len(tests):
                advance(Status.RUNNING, number)
            if self._task.stop_on_failure and result.verdict is not Verdict.ACCEPTED:
                results += [
                    TestResult(left.name or str(n), Verdict.SKIPPED)
                    for n, left in enumerate(tests[number:], number + 1)
                ]
                break
        return replace(sum_up(results, [test.weight for test in tests]), compile=compiled)

    def _compile(
        self, command: tuple[str, ...], cancellation: Cancellation
    ) -> tuple[Outcome, str | None]:
        step, language = self._task.compile, self._language
        defaults = self._rules.compile_limits
        if language:
            defaults = language.compile_limits.over(defaults)
        limits = replace(_run_limits(step.limits, defaults, self._rules), files=COMPILE_FILES)
        request = RunRequest(
            self._expand(command, limits, step),
            self._workspace.source,
            limits,
            env=self._env,
            writable=True,
        )
        try:
            ran = self._sandbox.run(self._slot, request, cancellation)
        except ValueError as error:
            return Outcome(), f"the compiler cannot be started: {error}"
        with ran as usage:
            self._check_executed(step, request, usage)
            return self._outcome(usage), judge_compile(_facts(usage, limits))

    def _check_executed(self, step: Step, request: RunRequest, usage: Usage) -> None:
        """Raises CannotJudge if a command of ours, not of the task, cannot be executed.

        What lies in /box is the task's: a compiler that left no program is no fault here."""
        name = request.argv[0]
        ours = not name.startswith("/box/") and (name.startswith("/") or "/" not in name)
        if not step.command and ours and usage.exec_error not in (0, *OWN_LIMITS):
            reason = os.strerror(usage.exec_error)
            raise CannotJudge(f"{name} cannot be executed: {reason}")

    def _request_run(self) -> RunRequest:
        step, language = self._task.execute, self._language
        given, defaults = step.limits, self._rules.run_limits
        if language:
            defaults = language.run_limits.over(defaults)
        given = _derive_wall(given, defaults)
        limits = _run_limits(given, defaults, self._rules)
        command = step.command or (language.run if language else ())
        argv = self._expand(command, limits, step)
        if language:
            # After the command: what the language adds for itself is not for the program.
            limits = stretch(limits, language)
        return RunRequest(
            argv,
            self._workspace.source,
            limits,
            env=self._env,
            data=self._workspace.data,
        )

    def _expand(self, command: tuple[str, ...], limits: RunLimits, step: Step) -> tuple[str, ...]:
        if step.command or self._language is None:
            return command  # the task's own words are taken as they are
        names = [file.name for file in self._task.source]
        return languages.expand(command, names, self._language.suffix, limits.memory_bytes)

    def _run(
        self, request: RunRequest, test: Test, name: str, cancellation: Cancellation
    ) -> TestResult:
        with ExitStack() as stack:
            stdin = self._open(test.input, stack)
            try:
                usage = stack.enter_context(
                    self._sandbox.run(self._slot, replace(request, stdin=stdin), cancellation)
                )
            except ValueError as error:  # a command that cannot even be said
                return TestResult(
                    name, Verdict.RUNTIME_ERROR, message=f"cannot be started: {error}"
                )
            self._check_executed(self._task.execute, request, usage)
            verdict, message = judge_run(self._facts_of_run(usage, request.limits))
            if verdict is None:
                verdict, message = judge_output(self._compare(usage.stdout, test.expected, stack))
            return TestResult(name, verdict, self._outcome(usage), message[:MESSAGE_CHARACTERS])

    def _facts_of_run(self, usage: Usage, limits: RunLimits) -> RunFacts:
        facts, language = _facts(usage, limits), self._language
        if language is None or self._task.execute.command:
            return facts
        return replace(
            facts,
            memory_bytes=usage.memory_bytes,
            memory_allowed_bytes=limits.memory_bytes - language.memory_extra_bytes,
            memory_signal=language.memory_signal,
        )

    def _open(self, data: Data | None, stack: ExitStack) -> int | None:
        """A descriptor to read the data from, which the program cannot change."""
        if data is None or data.inline == b"":
            return None
        if data.digest is not None:
            fd = self._cache.open(data.digest)
            stack.callback(os.close, fd)
            return fd
        fd = os.memfd_create("input", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        stack.callback(os.close, fd)
        content = data.inline or b""
        while content:
            content = content[os.write(fd, content) :]
        fcntl.fcntl(
            fd,
            fcntl.F_ADD_SEALS,
            fcntl.F_SEAL_WRITE | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_SEAL,
        )
        os.lseek(fd, 0, os.SEEK_SET)
        return fd

    def _compare(
        self, output: Output, expected: Data | None, stack: ExitStack
    ) -> Difference | None:
        if expected is None:
            return None
        if expected.digest is not None:
            fd = self._cache.open(expected.digest)
            stack.callback(os.close, fd)
            right = Bytes.of_file(fd)
        else:
            right = Bytes.of(expected.inline or b"")
        return compare(
            Bytes.of_file(output.fileno(), output.size_bytes),
            right,
            self._task.compare,
            self._task.tolerance,
        )

    def _outcome(self, usage: Usage) -> Outcome:
        stdout, stdout_cut = self._keep(usage.stdout)
        stderr, stderr_cut = self._keep(usage.stderr)
        return Outcome(
            cpu_us=usage.cpu_us,
            wall_us=usage.wall_us,
            memory_bytes=usage.memory_bytes,
            processes=usage.processes,
            exit_code=usage.exit_code,
            signal=usage.signal,
            stdout=stdout,
            stdout_cut=stdout_cut,
            stderr=stderr,
            stderr_cut=stderr_cut,
        )

    def _keep(self, output: Output) -> tuple[bytes, bool]:
        if not output.size_bytes:
            return b"", output.cut
        most_bytes = min(self._rules.keep_bytes, self._left_bytes)
        kept = output.read(most_bytes)
        self._left_bytes -= len(kept)
        return kept, output.cut or output.size_bytes > most_bytes


def _facts(usage: Usage, limits: RunLimits | None = None) -> RunFacts:
    return RunFacts(
        limit_hit=usage.limit_hit,
        exit_code=usage.exit_code,
        signal=usage.signal,
        cpu_us=usage.cpu_us,
        cpu_limit_ms=limits.cpu_ms if limits else 0,
        exec_error=usage.exec_error,
    )


def stretch(limits: RunLimits, language: Language) -> RunLimits:
    """The limits of a run in this language; a limit of 0 would not be one."""
    return replace(
        limits,
        cpu_ms=max(1, round(limits.cpu_ms * language.cpu_factor)),
        wall_ms=round(limits.wall_ms * max(1.0, language.cpu_factor)),
        memory_bytes=limits.memory_bytes + language.memory_extra_bytes,
    )


def _derive_wall(given: Limits, defaults: Limits) -> Limits:
    """Somebody who allows 10 s of CPU time means more than the usual wall time."""
    if given.cpu_ms is None or given.wall_ms is not None:
        return given
    usual_ms = defaults.wall_ms or 0
    return replace(given, wall_ms=max(usual_ms, given.cpu_ms * 2 + 1000))


def _run_limits(given: Limits, defaults: Limits, rules: Rules) -> RunLimits:
    """Every limit set: as given, or the default, but never above the most."""
    wanted = given.over(defaults)
    values = {
        f.name: min(getattr(wanted, f.name), getattr(rules.most_limits, f.name))
        for f in fields(Limits)
    }
    return RunLimits(**values)
