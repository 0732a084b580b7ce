"""What `oj` makes of a gateway's address and JSON: the other way round of what the gateway does."""

import json

import pytest

from oj import model, plain
from oj.cli.remote import reading
from oj.cli.remote.place import read_url
from oj.cli.remote.writing import write_task
from oj.errors import Rejected
from oj.gateway.reading import read_task
from oj.pieces import name_tests
from oj.rpc import ttypes as rpc


def through_json(value):
    return json.loads(json.dumps(value))


@pytest.mark.parametrize(
    ("url", "secure", "host", "port", "path", "name"),
    [
        ("https://judge.example", True, "judge.example", 443, "", "judge.example"),
        ("http://127.0.0.1:7580/", False, "127.0.0.1", 7580, "", "127.0.0.1:7580"),
        ("https://x/judge/api/v1/", True, "x", 443, "/judge", "x"),
        ("http://[::1]:8000", False, "::1", 8000, "", "[::1]:8000"),
    ],
)
def test_a_servers_url_is_taken_apart(url, secure, host, port, path, name):
    place = read_url(url)
    assert (place.secure, place.host, place.port, place.path) == (secure, host, port, path)
    assert place.name == name


@pytest.mark.parametrize(
    "url", ["", "judge.example", "ftp://x", "https://", "http://u:p@x", "http://x/?a", "http://x:y"]
)
def test_what_is_no_servers_url_is_refused(url):
    with pytest.raises(Rejected):
        read_url(url)


def test_only_what_others_can_read_is_open():
    assert not read_url("https://judge.example").is_open
    assert not read_url("http://localhost:7580").is_open
    assert read_url("http://judge.example").is_open


def test_a_task_arrives_as_it_was_written():
    task = model.Task(
        language="c",
        source=(
            model.File("a.c", model.Data(inline="ä\r\n\0".encode())),
            model.File("b.h", model.Data(inline=b"\xff\xfe")),
        ),
        data=(model.File("d/x", model.Data(digest="0" * 64)),),
        compile=model.Step(("gcc", "a.c"), model.Limits(cpu_ms=5)),
        execute=model.Step(limits=model.Limits(memory_bytes=1 << 20, processes=3)),
        tests=(
            model.Test("1", model.Data(inline=b""), model.Data(inline=b"x"), 0.0),
            model.Test(input=model.Data(digest="1" * 64)),
        ),
        user="ann",
        priority=-3,
        tags=frozenset({"a", "b"}),
        key="k",
        compare=model.Compare.FLOATS,
        tolerance=0.0,
        stop_on_failure=True,
        webhook="https://example.org/",
    )
    assert read_task(through_json(write_task(task))) == task
    command = model.Task(execute=model.Step(("/bin/true",)))
    assert read_task(through_json(write_task(command))) == command


def test_a_tasks_json_is_the_same_on_both_sides():
    outcome = model.Outcome(1500, 2500, 4096, 2, 0, None, "grün\n".encode(), False, b"", True)
    info = model.TaskInfo(
        id="6" * 24,
        status=model.Status.RUN_FAILED,
        verdict=model.Verdict.WRONG_ANSWER,
        executor="ex-1",
        attempt=2,
        add_time_ms=1_700_000_000_123,
        start_time_ms=1_700_000_001_000,
        report_time_ms=1_700_000_002_999,
        tests_done=2,
        tests_total=2,
        score=0.5,
        message="why",
        language="c",
        user="ann",
        priority=1,
        tags=frozenset({"x"}),
        key="k",
        result=model.Result(
            model.Status.RUN_FAILED,
            model.Verdict.WRONG_ANSWER,
            outcome,
            (
                model.TestResult("1", model.Verdict.ACCEPTED, outcome),
                model.TestResult("2", model.Verdict.WRONG_ANSWER, outcome, "line 1"),
            ),
            0.5,
            "why",
        ),
        attempts=(model.Attempt(1, "ex-0", 1_700_000_000_500, "lost"),),
    )
    assert reading.task(through_json(plain.task(info))) == info
    short = reading.task(through_json(plain.summary(info)))
    assert (short.id, short.verdict, short.result) == (info.id, info.verdict, None)


@pytest.mark.parametrize(
    "info",
    [
        rpc.ExecutorInfo(name="new", executing=0, drained=False, silent=False),
        rpc.ExecutorInfo(
            name="e",
            incarnation="i",
            facts=rpc.Facts(
                languages={"c": "1"}, slots=4, version="1", address="a", state="sick", message="m"
            ),
            report_time=1_700_000_000_000,
            executing=3,
            drained=True,
            silent=False,
        ),
        rpc.ExecutorInfo(
            name="s", facts=rpc.Facts(slots=1, state="ok"), executing=0, drained=True, silent=True
        ),
    ],
)
def test_an_executors_json_is_the_same_on_both_sides(info):
    value = plain.executor(info)
    assert plain.executor(reading.executor(through_json(value))) == value


def test_the_clusters_json_is_the_same_on_both_sides():
    info = rpc.Cluster(
        etcd=[rpc.EtcdMember(name="n", address="h:1", healthy=True, leader=True, learner=False)],
        database=[
            rpc.DatabaseMember(
                name="n", address="h:2", state="primary", healthy=True, voter=True, lag_ms=3
            )
        ],
        judicators=[
            rpc.JudicatorInfo(name="j", address="h:3", leader=True, healthy=True, version="1")
        ],
        troubles=["one"],
        seen_from="j",
    )
    value = plain.cluster(info)
    back = reading.cluster(through_json(value))
    assert plain.cluster(back) == value
    assert back.judicators[0].healthy is True


def test_counts_of_what_a_newer_judicator_adds_stay_numbers():
    value = {
        "by_status": {"success": 3, "77": 1},
        "by_verdict": {"accepted": 3},
        "queue": 1,
        "oldest_pending_ms": None,
        "executors": 1,
        "slots": 2,
        "executing": 0,
    }
    assert reading.stats(value).by_status == {10: 3, 77: 1}


def test_an_answer_that_is_not_understood_is_told():
    with pytest.raises(Rejected, match="not understood"):
        reading.read(reading.task, {"id": "x"})


@pytest.mark.parametrize(
    ("names", "files"),
    [
        ([], []),
        (["1", "sample-2"], ["1", "sample-2"]),
        (["../x", "2"], ["1", "2"]),
        (["a", "a"], ["1", "2"]),
        (["", "x y"], ["1", "2"]),
        (["compile"], ["1"]),
        (["-rf"], ["1"]),
    ],
)
def test_a_tests_name_that_is_no_good_for_a_file_becomes_its_number(names, files):
    assert name_tests(names) == files
