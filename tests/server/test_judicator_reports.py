"""The report protocol, said word by word: docs/protocol.md is what this holds it to."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_result
from oj.rpc import ttypes as rpc
from oj.rpc.ttypes import Status, Verdict

MakeExecutor = Callable[..., FakeExecutor]
MakeTask = Callable[..., Any]
GET_ALL = 7


def in_background(call: Callable[[], Any]) -> Callable[[], Any]:
    """Runs the call on a thread; what is returned waits for its outcome."""
    pool = ThreadPoolExecutor(1)
    future = pool.submit(call)
    pool.shutdown(wait=False)
    return lambda: future.result(70)


def test_a_task_goes_from_add_to_a_recorded_result(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    ex = executor()
    task_id = caller.add(task(user="ann", tags={"x", "y"}, priority=7))
    before = caller.get(task_id, GET_ALL)
    assert (before.status, before.done, before.attempt) == (Status.PENDING, False, 0)
    assert before.task.source[0].data.inline_data == b"source"
    (assigned,) = ex.take()
    assert (assigned.id, assigned.attempt) == (task_id, 1)
    assert assigned.task == before.task
    assert caller.get(task_id, 0).status == Status.COMPILING
    reply = ex.report(complete=[ex.completed(assigned, make_result(message="fine", score=1.0))])
    assert [(ref.id, ref.attempt) for ref in reply.acknowledged] == [(task_id, 1)]
    info = caller.get(task_id, GET_ALL)
    assert (info.status, info.verdict, info.done) == (Status.SUCCESS, Verdict.ACCEPTED, True)
    assert (info.user, info.tags, info.priority) == ("ann", {"x", "y"}, 7)
    assert (info.language, info.executor, info.attempt) == (language, ex.name, 1)
    assert (info.score, info.message, info.tests_done) == (1.0, "fine", 1)
    assert info.result.tests[0].outcome.exit_code == 0
    assert [(a.number, a.executor, a.ended) for a in info.attempts] == [(1, ex.name, None)]
    assert info.add_time <= info.start_time <= info.report_time


def test_a_parked_report_answers_the_moment_a_task_is_added(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    def wake() -> float:
        ex = executor()
        answer = in_background(lambda: ex.report(vacant=1, wait_ms=10_000))
        time.sleep(0.3)  # it is parked by then, or it finds the task: both are right
        begun = time.monotonic()
        task_id = caller.add(task())
        (assigned,) = answer().assign
        took_s = time.monotonic() - begun
        assert assigned.id == task_id
        ex.report(complete=[ex.completed(assigned)])
        return took_s

    servers.assert_within(1, wake)


def test_a_parked_report_answers_empty_when_its_time_is_up(executor: MakeExecutor) -> None:
    def park() -> float:
        begun = time.monotonic()
        reply = executor().report(vacant=1, wait_ms=400)
        took_s = time.monotonic() - begun
        assert not reply.assign and not reply.cancel and not reply.acknowledged
        assert took_s > 0.35
        return took_s

    servers.assert_within(3, park)


def test_late_report_of_an_old_attempt_is_ignored(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    slow, quick = executor(), executor()
    task_id = caller.add(task())
    (old,) = slow.take()
    slow.report()  # settled, and the task is not listed: it goes to others
    (new,) = quick.take()
    assert (new.id, new.attempt) == (task_id, 2)
    wrong = make_result(Status.RUN_FAILED, Verdict.WRONG_ANSWER)
    late = slow.report(complete=[slow.completed(old, wrong)])
    assert [ref.attempt for ref in late.acknowledged] == [1]  # not wanted: forget it
    assert caller.get(task_id, 0).status == Status.COMPILING
    quick.report(complete=[quick.completed(new)])
    assert slow.report(complete=[slow.completed(old, wrong)]).acknowledged
    info = caller.get(task_id, GET_ALL)
    assert (info.verdict, info.executor, info.attempt) == (Verdict.ACCEPTED, quick.name, 2)
    assert [(a.number, bool(a.ended)) for a in info.attempts] == [(1, True), (2, False)]


def test_a_result_is_recorded_once_however_often_it_is_sent(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task())
    (assigned,) = ex.take()
    ex.report(complete=[ex.completed(assigned)])
    first = caller.get(task_id, GET_ALL)
    again = ex.report(complete=[ex.completed(assigned, make_result(Status.RUN_FAILED, 2))])
    assert len(again.acknowledged) == 1
    assert caller.get(task_id, GET_ALL) == first


def test_a_restarted_executor_delivers_the_result_that_it_kept(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    kept, lost = caller.add(task()), caller.add(task())
    assigned = {a.id: a for a in ex.take(2)}
    again = ex.restart()
    done = again.completed(assigned[kept], incarnation=ex.incarnation)
    assert [r.id for r in again.report(complete=[done]).acknowledged] == [kept]
    assert caller.get(kept, 0).verdict == Verdict.ACCEPTED
    # The other was in hand of the old process: free at once, and told why.
    info = caller.get(lost, GET_ALL)
    assert info.status == Status.RETRYING
    assert "restarted" in info.attempts[0].ended
    again.close()


def test_what_is_not_listed_is_retried_only_when_settled(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task())
    (assigned,) = ex.take()
    claimed_by = ex.number
    # The answer to that report may still be on its way: nothing is concluded.
    ex.report(settled=claimed_by - 1)
    assert caller.get(task_id, 0).status == Status.COMPILING
    ex.report(executing=[ex.executing(assigned)], settled=claimed_by)
    # Progress of a task that is in hand for moments only is stored with a delay.
    servers.wait_until(lambda: caller.get(task_id, 0).status == Status.RUNNING, 5)
    ex.report(settled=claimed_by)
    assert caller.get(task_id, 0).status == Status.RETRYING


def test_a_superseded_parked_report_answers_empty_at_once(
    caller: Caller, judicator: JudicatorUnderTest, executor: MakeExecutor, task: MakeTask
) -> None:
    def supersede() -> float:
        ex = executor()
        begun = time.monotonic()
        older = in_background(lambda: ex.report(vacant=1, wait_ms=60_000))
        servers.wait_until(lambda: ex.number == 2)
        time.sleep(0.2)
        ex.report(vacant=0, caller=judicator.call())
        reply = older()
        assert not reply.assign and not reply.cancel
        return time.monotonic() - begun

    servers.assert_within(5, supersede)
    # And what is added now does not go to the report that was sent off.
    assert caller.get(caller.add(task()), 0).status == Status.PENDING


def test_a_report_that_was_overtaken_gets_nothing(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    ex.report(number=10)
    caller.add(task())
    assert not ex.report(vacant=1, number=9, wait_ms=5000).assign
    assert len(ex.report(vacant=1, number=11).assign) == 1


def test_a_task_that_is_not_this_executors_is_told_to_stop(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task())
    stranger = rpc.Executing(task_id, 1, Status.RUNNING, 0)
    unknown = rpc.Executing("0" * 24, 3, Status.RUNNING, 0)
    reply = ex.report(executing=[stranger, unknown])
    assert {(ref.id, ref.attempt) for ref in reply.cancel} == {(task_id, 1), ("0" * 24, 3)}


def test_cancel_before_start_ends_the_task(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task())
    assert caller.cancel(task_id) is True
    assert caller.cancel(task_id) is False
    assert not ex.take()
    info = caller.get(task_id, GET_ALL)
    assert (info.status, info.done, info.verdict) == (Status.CANCELLED, True, None)


def test_cancel_while_running_reaches_a_parked_report_at_once(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    def cancel() -> float:
        ex = executor()
        task_id = caller.add(task())
        (assigned,) = ex.take()
        answer = in_background(
            lambda: ex.report(executing=[ex.executing(assigned)], vacant=1, wait_ms=15_000)
        )
        servers.wait_until(lambda: caller.get(task_id, 0).status == Status.RUNNING)
        begun = time.monotonic()
        assert caller.cancel(task_id) is True
        assert [(r.id, r.attempt) for r in answer().cancel] == [(task_id, 1)]
        took_s = time.monotonic() - begun
        assert ex.report(complete=[ex.completed(assigned)]).acknowledged
        assert caller.get(task_id, 0).status == Status.CANCELLED
        return took_s

    servers.assert_within(1, cancel)


def test_cancel_while_running_is_told_with_the_next_report(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task())
    (assigned,) = ex.take()
    caller.cancel(task_id)
    assert [r.id for r in ex.report(executing=[ex.executing(assigned)]).cancel] == [task_id]


def test_a_replaced_process_gets_nothing_and_takes_nothing_away(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    old = executor()
    task_id = caller.add(task())
    new = old.restart()
    (assigned,) = new.take()
    reply = old.report(vacant=1, executing=[old.executing(assigned)], wait_ms=100)
    assert not reply.assign and [r.id for r in reply.cancel] == [task_id]
    assert caller.get(task_id, 0).status == Status.COMPILING
    # Nor does it hold its successor up while it is kept waiting.
    in_background(lambda: old.report(vacant=1, wait_ms=20_000))
    time.sleep(0.2)

    def report() -> float:
        begun = time.monotonic()
        assert not new.report(executing=[new.executing(assigned)]).cancel
        return time.monotonic() - begun

    servers.assert_within(2, report)
    new.close()


def test_what_was_given_back_goes_to_another_executor(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    sick, other = executor(), executor()
    task_id = caller.add(task())
    (assigned,) = sick.take()
    sick.report(complete=[sick.completed(assigned, give_back="the sandbox failed")])
    assert caller.get(task_id, 0).status == Status.RETRYING
    assert not sick.take()
    (again,) = other.take()
    assert (again.id, again.attempt) == (task_id, 2)
    (first, _) = caller.get(task_id, GET_ALL).attempts
    assert (first.executor, first.ended) == (sick.name, "given back: the sandbox failed")


def test_what_was_given_back_returns_to_an_executor_that_is_alone(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task())
    (assigned,) = ex.take()
    ex.report(complete=[ex.completed(assigned, give_back="hiccup")])
    (again,) = ex.take(wait_ms=5000)
    assert (again.id, again.attempt) == (task_id, 2)


def test_what_every_executor_gave_back_goes_round_until_its_attempts_are_used_up(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    one, two = executor(), executor()
    task_id = caller.add(task())
    for attempt, ex in enumerate((one, two, one, two, one), 1):
        (assigned,) = ex.take(wait_ms=5000)
        assert (assigned.id, assigned.attempt) == (task_id, attempt)
        ex.report(complete=[ex.completed(assigned, give_back="no luck")])
    assert caller.get(task_id, 0).status == Status.INTERNAL_ERROR


def test_an_answer_carries_no_more_tasks_than_fit(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    tests = [rpc.Test(input=rpc.Data(b"x" * 50_000)) for _ in range(20)]
    ids = [caller.add(task(tests=tests)) for _ in range(20)]
    taken: list[str] = []
    while len(taken) < len(ids):
        batch = ex.take(20)
        assert 0 < len(batch) < 20
        taken += [assigned.id for assigned in batch]
        ex.report(complete=[ex.completed(assigned) for assigned in batch])
    assert taken == ids


def test_a_poisonous_task_ends_after_its_attempts(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task())
    for attempt in range(1, 6):
        (assigned,) = ex.take(wait_ms=5000)
        assert (assigned.id, assigned.attempt) == (task_id, attempt)
        ex.report()  # lost it
    assert not ex.take()
    info = caller.get(task_id, GET_ALL)
    assert (info.status, info.verdict) == (Status.INTERNAL_ERROR, Verdict.JUDGE_ERROR)
    assert "5 attempts" in info.message
    assert info.result.status == Status.INTERNAL_ERROR
    assert [a.number for a in info.attempts] == [1, 2, 3, 4, 5]
    assert all(a.ended and a.executor == ex.name for a in info.attempts)


def test_priorities_go_first(caller: Caller, executor: MakeExecutor, task: MakeTask) -> None:
    ex = executor()
    ids = {p: caller.add(task(priority=p)) for p in (0, -5, 100, 3)}
    assert [a.id for a in ex.take(10)] == [ids[100], ids[3], ids[0], ids[-5]]


def test_users_take_turns(caller: Caller, executor: MakeExecutor, task: MakeTask) -> None:
    ex = executor()
    caller.addMany([task(user="flood") for _ in range(50)])
    caller.addMany([task(user="ann") for _ in range(3)])
    caller.add(task(user="bob"))
    users = [a.task.user for a in ex.take(8)]
    assert sorted(users) == ["ann"] * 3 + ["bob"] + ["flood"] * 4
    assert users[:3].count("flood") == 1


def test_a_user_who_comes_later_does_not_wait_behind_a_backlog(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    caller.addMany([task(user="flood") for _ in range(40)])
    in_hand = ex.take(20)
    caller.addMany([task(user="late") for _ in range(10)])
    more = ex.report(executing=[ex.executing(a) for a in in_hand], vacant=10).assign
    assert 4 <= [a.task.user for a in more].count("late") <= 6


def test_high_priority_of_one_user_does_not_cost_another_his_turn(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    caller.addMany([task(user="flood") for _ in range(50)])
    caller.add(task(user="flood", priority=10))
    in_hand = ex.take(1)
    assert in_hand[0].task.priority == 10
    caller.add(task(user="ann"))
    more = ex.report(executing=[ex.executing(a) for a in in_hand], vacant=2).assign
    assert "ann" in [a.task.user for a in more]


def test_a_retried_task_goes_before_what_came_later(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    first = caller.add(task(user="ann"))
    ex.take()
    for _ in range(3):
        caller.add(task(user="bob"))
    ex.report()
    assert ex.take(1)[0].id == first


def test_tasks_go_only_to_executors_with_their_language(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    has_it, has_not = executor(), executor(languages=("another-language",))
    task_id = caller.add(task())
    assert not has_not.take(4)
    assert [a.id for a in has_it.take(4)] == [task_id]


def test_twenty_claimers_never_get_the_same_task(
    judicator: JudicatorUnderTest, caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    executors = [executor() for _ in range(20)]
    ids = caller.addMany([task(user=f"u{i % 7}") for i in range(300)])
    barrier = threading.Barrier(20)

    def claim(ex: FakeExecutor) -> list[str]:
        barrier.wait()
        mine: list[Any] = []
        for count in (1, 3, 1, 5, 1, 1, 3):
            reply = ex.report(executing=[ex.executing(a) for a in mine], vacant=count)
            assert len(reply.assign) <= count and not reply.cancel
            mine += reply.assign
        return [a.id for a in mine]

    with ThreadPoolExecutor(20) as pool:
        claimed = [task_id for mine in pool.map(claim, executors) for task_id in mine]
    assert len(claimed) == len(set(claimed)) == 300
    assert set(claimed) == set(ids)


def test_one_report_claims_as_many_as_it_has_room_for(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    ids = caller.addMany([task() for _ in range(12)])
    assert [a.id for a in ex.take(8)] == ids[:8]


def test_a_parked_report_whose_peer_has_gone_is_given_nothing(
    judicator: JudicatorUnderTest, caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    def hand_out() -> float:
        gone, there = executor(), executor()
        in_background(lambda: gone.report(vacant=1, wait_ms=20_000))
        time.sleep(0.2)
        answer = in_background(lambda: there.report(vacant=1, wait_ms=20_000))
        time.sleep(0.2)
        gone.caller.socket.handle.shutdown(2)
        begun = time.monotonic()
        task_id = caller.add(task())
        (assigned,) = answer().assign
        took_s = time.monotonic() - begun
        assert (assigned.id, assigned.attempt) == (task_id, 1)
        there.report(complete=[there.completed(assigned)])
        return took_s

    servers.assert_within(1, hand_out)


def test_a_drained_executor_gets_no_more_and_is_told_so(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    answer = in_background(lambda: ex.report(vacant=1, wait_ms=15_000))
    time.sleep(0.2)
    caller.drain(ex.name, True)
    assert answer().drained is True
    task_id = caller.add(task())
    reply = ex.report(vacant=1)
    assert reply.drained is True and not reply.assign
    servers.wait_until(
        lambda: {e.name: e.drained for e in caller.executors()}[ex.name] is True,
        10,
        "the executor to be shown as drained",
    )
    caller.drain(ex.name, False)
    assert [a.id for a in ex.take()] == [task_id]


def test_a_forgotten_executor_is_off_the_list_until_it_reports_again(
    caller: Caller, executor: MakeExecutor
) -> None:
    ex = executor()
    caller.drain(ex.name, True)
    caller.forget(ex.name)
    assert ex.name not in {e.name for e in caller.executors()}
    with pytest.raises(rpc.NotFound):
        caller.forget(ex.name)
    again = executor(ex.name)
    assert {e.name: e.drained for e in caller.executors()}[again.name] is False


def test_a_sick_executor_gets_nothing_until_it_is_well(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor(state="sick")
    task_id = caller.add(task())
    assert not ex.take()
    ex.facts.state = "ok"
    assert [a.id for a in ex.report(vacant=1, facts=ex.facts).assign] == [task_id]


def test_facts_are_asked_for_when_they_are_not_known(
    judicator: JudicatorUnderTest, language: str
) -> None:
    ex = FakeExecutor(judicator.port, f"factless-{language}", (language,))
    reply = ex.report(number=7, vacant=1, wait_ms=5000)
    assert reply.want_facts is True
    assert not ex.report(number=8, facts=ex.facts).want_facts
    ex.close()


def test_a_report_that_parks_right_after_the_first_is_noted_lest_it_count_as_silent(
    caller: Caller, executor: MakeExecutor
) -> None:
    ex = executor()

    def noted_ms() -> int:
        (known,) = [e for e in caller.executors() if e.name == ex.name]
        return int(known.report_time)

    first_ms = noted_ms()
    time.sleep(0.01)  # the time is in milliseconds
    answer = in_background(lambda: ex.report(vacant=1, wait_ms=1500))
    servers.wait_until(lambda: noted_ms() > first_ms, 1.2, "the parked report to be noted")
    answer()


def test_progress_reaches_who_waits(
    judicator: JudicatorUnderTest, caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    ex = executor()
    task_id = caller.add(task(tests=[rpc.Test(name=str(i)) for i in range(5)]))
    (assigned,) = ex.take()
    other = judicator.call()
    running = in_background(lambda: other.wait(task_id, Status.COMPILING, 10_000, 0, -1))
    ex.report(executing=[ex.executing(assigned, Status.RUNNING, 0)])
    assert running().status == Status.RUNNING
    tests = in_background(lambda: other.wait(task_id, Status.RUNNING, 10_000, 0, 1))
    ex.report(executing=[ex.executing(assigned, Status.RUNNING, 1)])
    ex.report(executing=[ex.executing(assigned, Status.RUNNING, 3)])
    info = tests()
    assert (info.status, info.tests_done, info.tests_total) == (Status.RUNNING, 3, 5)
    done = in_background(lambda: other.wait(task_id, Status.RUNNING, 10_000, 2, -1))
    ex.report(complete=[ex.completed(assigned)])
    assert done().result.verdict == Verdict.ACCEPTED


def test_wait_answers_when_time_is_up_and_at_once_when_there_is_news(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    executor()
    task_id = caller.add(task())

    def wait_in_vain() -> float:
        begun = time.monotonic()
        assert caller.wait(task_id, Status.PENDING, 300, 0, -1).status == Status.PENDING
        took_s = time.monotonic() - begun
        assert took_s > 0.25
        return took_s

    def wait_for_news() -> float:
        begun = time.monotonic()
        news = caller.wait(task_id, Status.RUNNING, 60_000, 0, -1, timeout_s=70)
        assert news.status == Status.PENDING
        return time.monotonic() - begun

    servers.assert_within(3, wait_in_vain)
    servers.assert_within(2, wait_for_news)
