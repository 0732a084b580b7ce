"""The rules of a task: its moves, and what is refused and by which name."""

from dataclasses import replace

import pytest

from oj import model
from oj.errors import Oversized, Rejected
from oj.model import Data, File, Limits, Status, Step, Task, Test

SOUND = Task(language="c", source=(File("a.c", Data(b"int main(){}")),))
BLOB = Data(digest="a" * 64)


def test_a_sound_task_passes():
    model.check_task(SOUND)
    model.check_task(
        replace(
            SOUND,
            data=(File("lib/x.txt", BLOB),),
            tests=(Test("1", Data(b""), BLOB),),
            tags=frozenset({"x"}),
            key="k",
        )
    )
    model.check_task(Task(execute=Step(("/bin/true",))))


@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"language": "../c"}, "language"),
        ({"language": ""}, "language"),
        ({"source": ()}, "source"),
        ({"source": (File("../a", BLOB),)}, "source[0].name"),
        ({"source": (File("/etc/passwd", BLOB),)}, "source[0].name"),
        ({"source": (File("a//b", BLOB),)}, "source[0].name"),
        ({"source": (File("a/./b", BLOB),)}, "source[0].name"),
        ({"source": (File("a\nb", BLOB),)}, "source[0].name"),
        ({"source": (File("a\0b", BLOB),)}, "source[0].name"),
        ({"source": (File("", BLOB),)}, "source[0].name"),
        ({"source": (File("x" * 256, BLOB),)}, "source[0].name"),
        ({"source": (File("a", BLOB), File("a", BLOB))}, "source[1].name"),
        ({"source": (File("a", BLOB), File("a/b", BLOB))}, "source"),
        ({"data": (File("a.c", BLOB),)}, "data[0].name"),
        ({"source": (File("a", Data()),)}, "source[0].data"),
        ({"source": (File("a", Data(b"", "a" * 64)),)}, "source[0].data"),
        ({"source": (File("a", Data(digest="A" * 64)),)}, "source[0].data.digest"),
        ({"source": (File("a", Data(b"x" * 65537)),)}, "source[0].data.inline_data"),
        ({"source": tuple(File(str(i), BLOB) for i in range(257))}, "source"),
        ({"execute": Step(limits=Limits(cpu_ms=-1))}, "execute.limits.cpu_ms"),
        ({"execute": Step(limits=Limits(memory_bytes=0))}, "execute.limits.memory_bytes"),
        ({"compile": Step(limits=Limits(processes=10**6))}, "compile.limits.processes"),
        ({"compile": Step(("a", "b\0"))}, "compile.command[1]"),
        ({"execute": Step(("",))}, "execute.command[0]"),
        ({"tests": (Test(weight=float("nan")),)}, "tests[0].weight"),
        ({"tests": (Test(weight=-1.0),)}, "tests[0].weight"),
        ({"tests": (Test(input=Data()),)}, "tests[0].input"),
        ({"tests": (Test(),) * 1001}, "tests"),
        ({"user": "a\nb"}, "user"),
        ({"user": "x" * 129}, "user"),
        ({"priority": 101}, "priority"),
        ({"tags": frozenset({""})}, "tags"),
        ({"tags": frozenset(map(str, range(33)))}, "tags"),
        ({"key": ""}, "key"),
        ({"tolerance": float("inf")}, "tolerance"),
    ],
)
def test_an_unsound_task_is_refused_by_the_field(change, field):
    with pytest.raises(Rejected) as error:
        model.check_task(replace(SOUND, **change))
    assert error.value.field == field


def test_too_much_inline_data_is_refused_with_the_limit():
    tests = tuple(Test(input=Data(b"x" * 65536)) for _ in range(17))
    with pytest.raises(Oversized) as error:
        model.check_task(replace(SOUND, tests=tests))
    assert error.value.limit_bytes == model.TASK_INLINE_BYTES


@pytest.mark.parametrize("status", Status)
def test_final_is_final(status):
    for final in model.FINAL:
        assert not model.can_move(final, status)


def test_moves():
    assert model.can_move(Status.PENDING, Status.COMPILING)
    assert model.can_move(Status.COMPILING, Status.RUNNING)
    assert model.can_move(Status.RUNNING, Status.RETRYING)
    assert not model.can_move(Status.RUNNING, Status.PENDING)
    assert not model.can_move(Status.RUNNING, Status.COMPILING)
    assert not model.can_move(Status.PENDING, Status.SUCCESS)


def test_limits_fill_gaps_from_defaults():
    assert Limits(cpu_ms=1).over(Limits(cpu_ms=5, wall_ms=6)) == Limits(cpu_ms=1, wall_ms=6)


@pytest.mark.parametrize("bad", ["", "x", "g" * 24, "a" * 23, "A" * 24, None, 5])
def test_ids_are_checked(bad):
    with pytest.raises(Rejected):
        model.check_id(bad)
