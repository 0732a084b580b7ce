"""The tasks of the load, and how each must end whatever happens to the cluster."""

from __future__ import annotations

import random
from dataclasses import dataclass

from oj.model import Data, File, Limits, Step, Task, Test

# Far more than they need: a busy machine is no reason for another verdict.
PATIENT = Limits(cpu_ms=60_000, wall_ms=120_000)
USERS = ("ada", "bob", "cleo", "dan", "eve")
BLOBS = 50
BLOB_BYTES = 100_000

PROGRAM = """
#include <stdio.h>
int main(void) { int a, b; while (scanf("%d%d", &a, &b) == 2) printf("%d\\n", a + b); }
"""
BROKEN_PROGRAM = "int main(void) { return nothing; }\n"


@dataclass(frozen=True)
class Draft:
    task: Task
    ends: tuple[str, str]


def draw(chance: random.Random, key: str) -> Draft:
    kind = chance.choices(list(_KINDS), [weight for weight, _ in _KINDS.values()])[0]
    fields, ends = _KINDS[kind][1](chance)
    return Draft(Task(user=chance.choice(USERS), key=key, tags=frozenset({kind}), **fields), ends)


def plain(key: str) -> Draft:
    """One that is judged at once."""
    return Draft(Task(execute=Step(("/bin/true",), PATIENT), user="probe", key=key), ACCEPTED)


ACCEPTED = ("success", "accepted")


def _true(chance: random.Random):
    return {"execute": Step(("/bin/true",), PATIENT)}, ACCEPTED


def _sleep(chance: random.Random):
    duration_s = chance.uniform(0.1, 0.8) if chance.random() < 0.9 else chance.uniform(2, 4)
    return {"execute": Step(("/bin/sleep", f"{duration_s:.2f}"), PATIENT)}, ACCEPTED


def _fail(chance: random.Random):
    return {"execute": Step(("/bin/false",), PATIENT)}, ("run_failed", "runtime_error")


def _compile(chance: random.Random):
    source = (File("main.c", Data(PROGRAM.encode())),)
    tests = (_test("1", b"1 2\n", b"3\n"), _test("2", b"5 5\n7 -7\n", b"10\n0\n"))
    limits = {"compile": Step(limits=PATIENT), "execute": Step(limits=PATIENT)}
    return {"language": "c", "source": source, "tests": tests, **limits}, ACCEPTED


def _compile_error(chance: random.Random):
    source = (File("main.c", Data(BROKEN_PROGRAM.encode())),)
    fields = {"language": "c", "source": source, "compile": Step(limits=PATIENT)}
    return fields, ("compile_failed", "compile_error")


def _tests(chance: random.Random):
    numbers = [b"%d\n" % chance.randrange(10**9) for _ in range(3)]
    tests = tuple(_test(str(n), text, text) for n, text in enumerate(numbers))
    return {"execute": Step(("/bin/cat",), PATIENT), "tests": tests}, ACCEPTED


def _blob(chance: random.Random):
    content = random.Random(chance.randrange(BLOBS)).randbytes(BLOB_BYTES // 2).hex().encode()
    fields = {
        "execute": Step(("/bin/cat",), PATIENT),
        "tests": (_test("1", content, content),),
    }
    return fields, ACCEPTED


def _test(name: str, given: bytes, expected: bytes) -> Test:
    return Test(name=name, input=Data(given), expected=Data(expected))


# How many of a hundred, and how it is made.
_KINDS = {
    "true": (61, _true),
    "sleep": (18, _sleep),
    "fail": (8, _fail),
    "tests": (7, _tests),
    "blob": (3, _blob),
    "compile": (2, _compile),
    "compile-error": (1, _compile_error),
}
