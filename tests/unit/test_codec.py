"""What goes over the wire comes back the same, and rubbish is named."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from oj import codec, model
from oj.errors import Rejected
from oj.rpc import ttypes as rpc

words = st.text(max_size=8)
counts = st.none() | st.integers(1, 2**31 - 1)
data = st.builds(model.Data, inline=st.binary(max_size=20)) | st.builds(
    model.Data, digest=st.text("0123456789abcdef", min_size=64, max_size=64)
)
files = st.tuples() | st.tuples(st.builds(model.File, words, data))
limits = st.builds(model.Limits, counts, counts, counts, counts, counts, counts)
steps = st.builds(model.Step, st.lists(words, max_size=3).map(tuple), limits)
tests = st.builds(
    model.Test, words, st.none() | data, st.none() | data, st.floats(0, 100, allow_nan=False)
)
tasks = st.builds(
    model.Task,
    language=words,
    source=files,
    data=files,
    compile=steps,
    execute=steps,
    tests=st.lists(tests, max_size=3).map(tuple),
    user=words,
    priority=st.integers(-100, 100),
    tags=st.frozensets(words),
    key=st.none() | words,
    compare=st.sampled_from(model.Compare),
    tolerance=st.floats(0, 1),
    stop_on_failure=st.booleans(),
)
outcomes = st.builds(
    model.Outcome,
    cpu_us=st.integers(0, 2**40),
    wall_us=st.integers(0, 2**40),
    memory_bytes=st.integers(0, 2**40),
    processes=st.integers(0, 99),
    exit_code=st.none() | st.integers(0, 255),
    signal=st.none() | st.integers(1, 64),
    stdout=st.binary(max_size=9),
    stdout_cut=st.booleans(),
    stderr=st.binary(max_size=9),
    stderr_cut=st.booleans(),
)
results = st.builds(
    model.Result,
    status=st.sampled_from(sorted(model.FINAL)),
    verdict=st.sampled_from(model.Verdict),
    compile=st.none() | outcomes,
    tests=st.lists(
        st.builds(model.TestResult, words, st.sampled_from(model.Verdict), outcomes, words),
        max_size=2,
    ).map(tuple),
    score=st.floats(0, 1),
    message=words,
)


@given(tasks)
def test_a_task_survives_the_wire(task):
    assert codec.task_from_rpc(codec.task_to_rpc(task)) == task


@given(results)
def test_a_result_survives_the_wire(result):
    assert codec.result_from_rpc(codec.result_to_rpc(result)) == result


def as_sent(info):
    """As a judicator puts it on the wire."""
    return rpc.TaskInfo(
        id=info.id,
        status=int(info.status),
        done=info.done,
        verdict=int(info.verdict),
        executor=info.executor,
        attempt=info.attempt,
        add_time=info.add_time_ms,
        start_time=info.start_time_ms,
        report_time=info.report_time_ms,
        tests_done=info.tests_done,
        tests_total=info.tests_total,
        score=info.score,
        message=info.message,
        language=info.language or None,
        user=info.user,
        priority=info.priority,
        tags=set(info.tags) or None,
        key=info.key,
        task=codec.task_to_rpc(info.task),
        result=codec.result_to_rpc(info.result),
        attempts=[
            rpc.Attempt(a.number, a.executor, a.start_time_ms, a.ended) for a in info.attempts
        ],
    )


@given(results, tasks)
def test_an_info_survives_the_wire(result, task):
    info = model.TaskInfo(
        "0" * 24,
        result.status,
        result.verdict,
        "ex-1",
        2,
        5,
        6,
        7,
        1,
        2,
        0.5,
        "m",
        task.language,
        task.user,
        task.priority,
        task.tags,
        task.key,
        task,
        result,
        (model.Attempt(1, "ex-0", 3, "lost"),),
    )
    assert codec.info_from_rpc(as_sent(info)) == info


@pytest.mark.parametrize(
    ("convert", "struct", "field"),
    [
        (codec.task_from_rpc, None, "task"),
        (codec.task_from_rpc, rpc.Task(compare=77), "compare"),
        (codec.task_from_rpc, rpc.Task(source=[rpc.File("a", None)]), "source[0]"),
        (codec.result_from_rpc, None, "result"),
        (codec.result_from_rpc, rpc.Result(status=99, verdict=1), "result.status"),
        (codec.result_from_rpc, rpc.Result(status=1, verdict=1), "result.status"),
        (codec.result_from_rpc, rpc.Result(status=10, verdict=None), "result.verdict"),
    ],
)
def test_rubbish_from_the_wire_is_named(convert, struct, field):
    with pytest.raises(Rejected) as error:
        convert(struct)
    assert error.value.field == field
