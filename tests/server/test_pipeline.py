"""Whose fault it is when a command cannot be executed: the judge's, or the task's."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from oj.executor import languages
from oj.executor.cache import Cache
from oj.executor.languages import Language
from oj.executor.pipeline import CannotJudge, Pipeline, Rules
from oj.executor.sandbox import Sandbox
from oj.executor.workspace import Places
from oj.model import Data, File, Limits, Result, Step, Task, Verdict

TREE = Path(__file__).resolve().parents[2]
FIRST_UID = 100_000 + os.getpid() % 30_000 * 500 + 300
SOURCE = (File("main.x", Data(b"")),)
AMPLE = Limits(
    cpu_ms=20_000,
    wall_ms=60_000,
    memory_bytes=64 << 20,
    output_bytes=1 << 20,
    processes=16,
    disk_bytes=8 << 20,
)
Judge = Callable[[Language, Task], Result]


@pytest.fixture(scope="module")
def sandbox() -> Iterator[Sandbox]:
    subprocess.run(["make", "-s", "-C", TREE / "daemons" / "box"], check=True)
    path = os.environ.get("OJ_BOX", str(TREE / "build" / "box" / "oj-box"))
    with Sandbox.start(path, slots=1, first_uid=FIRST_UID) as started:
        yield started


@pytest.fixture
def judge(sandbox: Sandbox, tmp_path: Path) -> Judge:
    def try_out(language: Language, task: Task) -> Result:
        directories = [tmp_path / name for name in ("blobs", "small", "large")]
        for directory in directories:
            directory.mkdir(exist_ok=True)
        cache = Cache(directories[0], 1 << 20, lambda *_: None)  # type: ignore[arg-type]
        places = Places(directories[1], directories[2], cache)
        rules = Rules(AMPLE, AMPLE, AMPLE, 1000, 10_000)
        pipeline = Pipeline(sandbox, {language.name: language}, cache, places, rules)
        return pipeline.try_out(0, "task", task)

    return try_out


def language(run: tuple[str, ...], compile: tuple[str, ...] = ()) -> Language:
    return Language("x", "a language", "main.x", run, compile)


TASK = Task(language="x", source=SOURCE)


@pytest.mark.parametrize("code", [126, 127])
def test_a_compiler_that_ends_as_if_it_were_missing_is_a_compile_error(
    judge: Judge, code: int
) -> None:
    result = judge(language(("/bin/true",), ("/bin/sh", "-c", f"exit {code}")), TASK)
    assert result.verdict is Verdict.COMPILE_ERROR
    assert result.message == f"the compiler found errors (exit code {code})"


@pytest.mark.parametrize("code", [126, 127])
def test_a_program_that_ends_as_if_it_were_missing_is_a_runtime_error(
    judge: Judge, code: int
) -> None:
    result = judge(language(("/bin/sh", "-c", f"exit {code}")), TASK)
    assert result.verdict is Verdict.RUNTIME_ERROR
    assert result.tests[0].message == f"exit code {code}"


@pytest.mark.parametrize(
    "broken",
    [
        language(("/bin/true",), ("no-such-compiler", "x")),
        language(("/bin/true",), ("/usr/no-such-compiler",)),
        language(("no-such-interpreter", "{source}")),
        language(("/usr/bin/no-such-interpreter",)),
    ],
    ids=["compiler", "path of compiler", "interpreter", "path of interpreter"],
)
def test_a_missing_tool_of_the_language_is_the_judges_fault(judge: Judge, broken: Language) -> None:
    with pytest.raises(CannotJudge, match=r"no-such-\w+ cannot be executed: No such file"):
        judge(broken, TASK)


@pytest.mark.parametrize("run", ["./{binary}", "/box/program", "{source}"])
def test_a_compiler_that_left_no_program_is_a_runtime_error(judge: Judge, run: str) -> None:
    result = judge(language((run,), ("/bin/true",)), TASK)
    assert result.verdict is Verdict.RUNTIME_ERROR
    assert result.tests[0].message.startswith("cannot be executed: ")


def test_a_command_of_the_tasks_own_that_cannot_be_executed_says_why(judge: Judge) -> None:
    any_language = language(("/bin/true",))
    result = judge(any_language, Task(language="x", execute=Step(("nothing",))))
    assert result.verdict is Verdict.RUNTIME_ERROR
    assert result.tests[0].message == "cannot be executed: No such file or directory"
    result = judge(any_language, Task(language="x", compile=Step(("nothing",))))
    assert result.verdict is Verdict.COMPILE_ERROR
    assert result.message == "the compiler cannot be executed: No such file or directory"


@pytest.mark.parametrize(
    ("program", "verdict"),
    [
        ("const all = []; for (;;) all.push(new Array(1000).fill(0.5));", Verdict.MEMORY_LIMIT),
        ("process.abort();", Verdict.RUNTIME_ERROR),
        ("throw new Error('no memory');", Verdict.RUNTIME_ERROR),
    ],
)
def test_a_runtime_that_aborts_for_memory_is_told_from_one_that_aborts(
    judge: Judge, program: str, verdict: Verdict
) -> None:
    node = languages.read(TREE / "etc" / "languages.d" / "javascript.conf")
    assert node.find_missing() is None
    task = Task(language=node.name, source=(File("main.js", Data(program.encode())),))
    result = judge(node, task)
    assert result.verdict is verdict, result
