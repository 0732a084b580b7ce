"""The files of a task: what was submitted and what was printed, each with a path of its own.

`source/` and `data/` as they were given; `tests/NAME.in` and `.ans`; `outputs/NAME.out` and `.err`,
and those of `compile`. A test's name that would be no good as a file's is replaced by its number.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from oj import model

_GOOD = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")


def name_tests(names: Sequence[str]) -> list[str]:
    """Of each test, the name of its files."""
    good = all(_GOOD.match(name) for name in names) and len(set(names)) == len(names)
    # `compile` has outputs, too.
    if good and "compile" not in names:
        return list(names)
    return [str(number) for number in range(1, len(names) + 1)]


def of_task(info: model.TaskInfo) -> Iterator[tuple[str, model.Data | bytes]]:
    """Paths, and where the content is."""
    task, result = info.task, info.result
    if task is not None:
        yield from ((f"source/{file.name}", file.data) for file in task.source)
        yield from ((f"data/{file.name}", file.data) for file in task.data)
        names = name_tests([test.name or str(n) for n, test in enumerate(task.tests, 1)])
        for name, test in zip(names, task.tests, strict=True):
            if test.input is not None:
                yield f"tests/{name}.in", test.input
            if test.expected is not None:
                yield f"tests/{name}.ans", test.expected
    if result is not None:
        names = name_tests([test.name for test in result.tests])
        outcomes = [(name, t.outcome) for name, t in zip(names, result.tests, strict=True)]
        if result.compile is not None:
            outcomes.insert(0, ("compile", result.compile))
        for name, outcome in outcomes:
            for ending, content in (("out", outcome.stdout), ("err", outcome.stderr)):
                if content:
                    yield f"outputs/{name}.{ending}", content
