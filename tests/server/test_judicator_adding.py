"""Adding and finding tasks: keys, all or none, pages, statistics."""

from __future__ import annotations

import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_result, make_task
from oj.rpc import ttypes as rpc
from oj.rpc.ttypes import Conditions, Status, Verdict

MakeExecutor = Callable[..., FakeExecutor]
MakeTask = Callable[..., Any]


def test_the_same_key_returns_the_first_id(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    executor()
    first = caller.add(task(user="ann", key=language))
    assert caller.add(task(user="ann", key=language)) == first
    assert caller.add(task(user="ann", key=language, priority=9)) == first
    assert caller.add(task(user="bob", key=language)) != first
    assert caller.add(task(user="ann", key=language + "2")) != first
    assert caller.get(first, 0).key == language


def add_again(caller: Caller, one: Any, *, many: bool) -> str:
    """Until it is not refused, as clients do: by its key it is one task."""

    def attempt() -> str | None:
        with contextlib.suppress(rpc.Unavailable):
            return str(caller.addMany([one])[0] if many else caller.add(one))
        return None

    return servers.wait_until(attempt, 60, "an answer")


def test_one_of_many_concurrent_adds_with_the_same_key_wins(
    judicator: JudicatorUnderTest,
    start_judicator: Callable[..., JudicatorUnderTest],
    executor: MakeExecutor,
    task: MakeTask,
    language: str,
) -> None:
    ex = executor()
    other = start_judicator(name="j2", database=judicator.database, prefix=judicator.prefix)
    callers = [j.call() for j in (judicator, other) for _ in range(8)]

    def add(turn: tuple[int, Caller]) -> list[str]:
        number, caller = turn
        ids = []
        for key in range(10):
            one = task(user="ann", key=f"{language}-{key}")
            ids.append(add_again(caller, one, many=number % 2 == 1))
        return ids

    with ThreadPoolExecutor(16) as pool:
        answers = list(pool.map(add, enumerate(callers)))
    assert all(answer == answers[0] for answer in answers)
    assert len(set(answers[0])) == 10
    assert sorted(a.id for a in ex.take(50)) == sorted(answers[0])


def test_add_many_adds_all_in_order(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    executor()
    tasks = [task(user=f"u{i % 3}", tags={f"{language}-{i}"}) for i in range(200)]
    ids = caller.addMany(tasks)
    assert len(set(ids)) == 200
    for i in (0, 57, 199):
        assert caller.get(ids[i], 0).tags == {f"{language}-{i}"}
    assert caller.addMany([]) == []


def test_add_many_adds_none_if_one_is_wrong(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    executor()
    with pytest.raises(rpc.InvalidRequest) as error:
        caller.addMany([task(), task(priority=1000), task()])
    assert error.value.field == "tasks[1].priority"
    assert not caller.search(Conditions(language=language), "", 10).tasks


def test_add_many_with_known_keys_returns_their_ids(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    executor()
    known = caller.add(task(key=f"{language}-a"))
    keys = ["b", "a", "c", "b"]
    ids = caller.addMany([task(key=f"{language}-{key}") for key in keys])
    assert ids[1] == known
    assert ids[0] == ids[3]
    assert len(set(ids)) == 3
    assert caller.addMany([task(key=f"{language}-{key}") for key in keys]) == ids


def test_a_task_without_a_language_goes_to_any_executor(
    start_judicator: Callable[..., JudicatorUnderTest],
) -> None:
    own = start_judicator()
    task_id = own.call().add(make_task())
    ex = FakeExecutor(own.port, languages=())
    assert [a.id for a in ex.take()] == [task_id]
    ex.close()


def test_before_the_first_executor_every_language_is_accepted(
    start_judicator: Callable[..., JudicatorUnderTest], task: MakeTask
) -> None:
    own = start_judicator(settings="[tasks]\nlanguages = rust, go")
    caller = own.call()
    assert caller.add(task())
    ex = FakeExecutor(own.port, languages=("c",))
    ex.report()
    with pytest.raises(rpc.InvalidRequest):
        caller.add(task())
    assert caller.add(task(language="go"))
    ex.close()


def test_search_combines_conditions_and_pages_through_all(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    ex = executor(slots=100)
    ids = [
        caller.add(task(user=f"u{i % 2}-{language}", tags={language, f"t{i % 3}"}))
        for i in range(30)
    ]
    assigned = {a.id: a for a in ex.take(20)}
    done = [
        ex.completed(a, make_result(Status.RUN_FAILED, Verdict.WRONG_ANSWER) if i % 2 else None)
        for i, a in enumerate(assigned.values())
    ]
    ex.report(complete=done)

    def find(limit: int = 1000, **conditions: Any) -> list[str]:
        conditions.setdefault("language", language)
        found: list[str] = []
        cursor = ""
        while True:
            page = caller.search(Conditions(**conditions), cursor, limit)
            assert len(page.tasks) <= limit
            found += [info.id for info in page.tasks]
            if page.cursor is None:
                return found
            cursor = page.cursor

    newest_first = list(reversed(ids))
    assert find() == newest_first
    assert find(limit=7) == newest_first
    assert find(limit=10, oldest_first=True) == ids
    assert find(limit=1, user=f"u1-{language}") == [i for i in newest_first if ids.index(i) % 2]
    assert sorted(find(statuses={Status.PENDING})) == sorted(set(ids) - set(assigned))
    assert len(find(verdicts={Verdict.WRONG_ANSWER})) == 10
    assert len(find(statuses={Status.SUCCESS, Status.RUN_FAILED}, limit=3)) == 20
    assert len(find(done=True)) == 20 and len(find(done=False)) == 10
    assert find(done=True, statuses={Status.PENDING}) == []
    assert len(find(executor=ex.name, done=True)) == 20
    assert find(tags={language, "t1"}) == [i for i in newest_first if ids.index(i) % 3 == 1]
    assert find(ids=set(ids[3:6]), oldest_first=True) == ids[3:6]
    assert find(ids=set()) == []
    times = [caller.get(i, 0).add_time for i in ids]
    assert find(added_from=times[10], oldest_first=True)[0] == ids[times.index(times[10])]
    before = find(added_before=times[10])
    assert ids[10] not in before and set(before) <= set(ids[:10])
    assert len(find(added_from=times[0], added_before=times[-1] + 1)) == 30


def test_pages_stay_stable_while_tasks_are_added(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    executor()
    old = caller.addMany([task() for _ in range(10)])
    page = caller.search(Conditions(language=language), "", 4)
    caller.addMany([task() for _ in range(10)])
    rest = caller.search(Conditions(language=language), page.cursor, 100)
    assert [i.id for i in page.tasks + rest.tasks] == list(reversed(old))


def test_stats_count_every_status(
    start_judicator: Callable[..., JudicatorUnderTest], task: MakeTask, language: str
) -> None:
    own = start_judicator()
    caller = own.call()
    ex = FakeExecutor(own.port, languages=(language,), slots=3)
    ex.report()
    ids = caller.addMany([task() for _ in range(10)])
    assigned = ex.take(5)
    ex.report(
        complete=[ex.completed(a) for a in assigned[:3]],
        executing=[ex.executing(a) for a in assigned[3:]],
    )
    caller.cancel(ids[9])

    def counted() -> Any:
        stats = caller.stats()
        told = (stats.queue, stats.executors, stats.slots, stats.executing)
        return stats if stats.by_status[Status.RUNNING] == 2 and told == (4, 1, 3, 2) else None

    # Counts are kept for a moment, and progress of new tasks is stored after one.
    stats = servers.wait_until(counted, 20, "the counts")
    assert stats.by_status[Status.PENDING] == 4
    assert stats.by_status[Status.SUCCESS] == 3
    assert stats.by_status[Status.CANCELLED] == 1
    assert stats.by_verdict == {Verdict.ACCEPTED: 3}
    assert 0 < stats.oldest_pending_ms < 60_000
    (info,) = caller.executors()
    assert (info.name, info.executing, info.drained, info.silent) == (ex.name, 2, False, False)
    assert info.facts.languages == {language: "1.0"} and info.facts.slots == 3
    (judicator,) = caller.judicators()
    assert (judicator.name, judicator.address) == ("j1", f"127.0.0.1:{own.port}")
    ex.close()
