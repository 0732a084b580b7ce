"""What is in hand and what the reports say of it, step by step, without any thread."""

from __future__ import annotations

import time
from pathlib import Path

import pytest

from oj.executor.jobs import Job, Report
from oj.executor.ledger import STOPPING, Ledger
from oj.executor.spool import Spool
from oj.model import Result, Status, Verdict
from oj.rpc import ttypes as rpc

SUCCESS = Result(Status.SUCCESS, Verdict.ACCEPTED)
RUN = rpc.Task(execute=rpc.Step(command=["/bin/true"]))


@pytest.fixture
def ledger(tmp_path: Path) -> Ledger:
    return Ledger("inc-2", 2, Spool(tmp_path))


def reply(
    assign: list[str] | None = None,
    cancel: list[str] | None = None,
    acknowledged: list[str] | None = None,
    attempt: int = 1,
    **more: object,
) -> rpc.ReportReply:
    return rpc.ReportReply(
        cancel=[rpc.TaskRef(i, attempt) for i in cancel or ()],
        assign=[rpc.Assignment(i, attempt, RUN) for i in assign or ()],
        acknowledged=[rpc.TaskRef(i, attempt) for i in acknowledged or ()],
        **more,
    )


def park(ledger: Ledger) -> Report:
    return ledger.open_report(wait_ms=20_000, carry=False)


def tell(ledger: Ledger) -> Report:
    return ledger.open_report(wait_ms=0, carry=True)


def assign(ledger: Ledger, *ids: str, attempt: int = 1) -> None:
    ledger.apply(park(ledger), reply(assign=list(ids), attempt=attempt))


def take(ledger: Ledger) -> Job:
    job = ledger.take()
    assert job is not None
    return job


def listed(report: Report) -> list[str]:
    return [executing.id for executing in report.executing]


def carried(report: Report) -> list[str]:
    return [completed.id for completed in report.complete]


def kept(tmp_path: Path) -> list[str]:
    return sorted(completed.id for completed, _ in Spool(tmp_path).load())


def test_a_task_is_listed_from_its_assignment_until_its_acknowledgement(
    ledger: Ledger, tmp_path: Path
) -> None:
    assert park(ledger).vacant == 2
    assign(ledger, "a")
    report = park(ledger)
    assert (listed(report), report.vacant) == (["a"], 1)
    ledger.finish(take(ledger), SUCCESS)
    assert kept(tmp_path) == ["a"]
    news = tell(ledger)
    assert (carried(news), listed(news), news.vacant) == (["a"], [], 2)
    ledger.apply(news, reply(acknowledged=["a"]))
    after = tell(ledger)
    assert (carried(after), listed(after)) == ([], [])
    assert kept(tmp_path) == []


def test_while_a_result_travels_other_reports_list_it_as_executing(ledger: Ledger) -> None:
    assign(ledger, "a")
    ledger.finish(take(ledger), SUCCESS)
    assert listed(park(ledger)) == ["a"]
    tell(ledger)
    assert listed(park(ledger)) == ["a"]
    second = tell(ledger)
    assert (carried(second), listed(second)) == ([], ["a"])


def test_a_result_that_was_not_acknowledged_travels_again(ledger: Ledger, tmp_path: Path) -> None:
    assign(ledger, "a")
    ledger.finish(take(ledger), SUCCESS)
    ledger.give_up(tell(ledger))
    overtaken = tell(ledger)
    assert carried(overtaken) == ["a"]
    ledger.apply(overtaken, reply())
    assert carried(tell(ledger)) == ["a"]
    assert kept(tmp_path) == ["a"]


def test_settled_stays_below_the_oldest_report_that_is_open(ledger: Ledger) -> None:
    first = park(ledger)
    assert (first.number, first.settled) == (1, 0)
    second = tell(ledger)
    assert (second.number, second.settled) == (2, 0)
    ledger.apply(second, reply())
    third = tell(ledger)
    assert (third.number, third.settled) == (3, 0)
    ledger.give_up(first)
    fourth = park(ledger)
    assert (fourth.number, fourth.settled) == (4, 2)
    ledger.apply(third, reply())
    ledger.apply(fourth, reply())
    assert tell(ledger).settled == 4


def test_a_report_settles_only_after_what_it_assigned_is_listed(ledger: Ledger) -> None:
    assign(ledger, "a")
    report = tell(ledger)
    assert report.settled == 1
    assert listed(report) == ["a"]


def test_a_cancelled_task_is_unlisted_at_once_but_its_slot_is_busy_until_it_is_clean(
    ledger: Ledger, tmp_path: Path
) -> None:
    assign(ledger, "a", "b")
    job = take(ledger)
    ledger.apply(tell(ledger), reply(cancel=["a"]))
    assert job.cancellation.cancelled
    report = tell(ledger)
    assert (listed(report), report.vacant) == (["b"], 0)
    ledger.finish(job, SUCCESS)  # it was too late to stop it
    report = tell(ledger)
    assert (listed(report), carried(report), report.vacant) == (["b"], [], 1)
    assert kept(tmp_path) == []


def test_a_queued_task_that_is_cancelled_is_never_taken(ledger: Ledger) -> None:
    assign(ledger, "a", "b")
    ledger.apply(tell(ledger), reply(cancel=["a"]))
    assert take(ledger).id == "b"
    assert tell(ledger).vacant == 1


def test_a_cancel_of_another_attempt_changes_nothing(ledger: Ledger) -> None:
    assign(ledger, "a", attempt=2)
    job = take(ledger)
    ledger.apply(tell(ledger), reply(cancel=["a"], attempt=1))
    assert not job.cancellation.cancelled
    assert listed(tell(ledger)) == ["a"]


def test_a_newer_attempt_replaces_the_older_one(ledger: Ledger) -> None:
    assign(ledger, "a")
    old = take(ledger)
    assign(ledger, "a", attempt=2)
    assert old.cancellation.cancelled
    assert [(e.id, e.attempt) for e in tell(ledger).executing] == [("a", 2)]
    ledger.drop(old)
    assert take(ledger).attempt == 2


def test_a_repeated_assignment_is_taken_once(ledger: Ledger) -> None:
    assign(ledger, "a")
    assign(ledger, "a")
    take(ledger)
    assert ledger.count() == (1, 0, 0)


def test_results_of_an_earlier_process_are_carried_with_its_incarnation(tmp_path: Path) -> None:
    old = Ledger("inc-1", 2, Spool(tmp_path))
    assign(old, "a", "b")
    old.finish(take(old), SUCCESS)
    new = Ledger("inc-2", 2, Spool(tmp_path))
    report = tell(new)
    assert [(c.id, c.incarnation) for c in report.complete] == [("a", "inc-1")]
    assert listed(park(new)) == []  # the new incarnation does not execute it
    new.apply(report, reply(acknowledged=["a"]))
    assert kept(tmp_path) == []


def test_a_task_that_is_given_back_is_not_kept_on_disk(ledger: Ledger, tmp_path: Path) -> None:
    assign(ledger, "a")
    ledger.give_back(take(ledger), "the sandbox failed")
    report = tell(ledger)
    assert [(c.id, c.give_back, c.result) for c in report.complete] == [
        ("a", "the sandbox failed", None)
    ]
    assert kept(tmp_path) == []


def test_short_tasks_are_fetched_ahead(ledger: Ledger) -> None:
    for number in range(20):
        assign(ledger, str(number))
        ledger.finish(take(ledger), SUCCESS)
        news = tell(ledger)
        ledger.apply(news, reply(acknowledged=[str(number)]))
    vacant = park(ledger).vacant
    assert vacant >= 4
    assign(ledger, "a", "b", "c")
    assert park(ledger).vacant == vacant - 3


def test_no_report_is_parked_while_short_tasks_are_about_to_end(ledger: Ledger) -> None:
    for number in range(20):
        assign(ledger, str(number))
        ledger.finish(take(ledger), SUCCESS)
        ledger.apply(tell(ledger), reply(acknowledged=[str(number)]))
    assert ledger.wait_to_park(0.001)
    assign(ledger, "a")
    begun_s = time.monotonic()
    assert ledger.wait_to_park(5)  # it is not as short as it was thought to be
    assert time.monotonic() - begun_s < 1
    ledger.finish(take(ledger), SUCCESS)
    assert not ledger.wait_to_park(0.01)
    ledger.apply(tell(ledger), reply(acknowledged=["a"]))
    assert ledger.wait_delivered(0) and ledger.wait_to_park(0.001)


def test_whoever_pauses_takes_nothing(ledger: Ledger) -> None:
    ledger.pause("draining", True)
    ledger.pause("sick", True)
    ledger.pause("sick", False)
    assert park(ledger).vacant == 0
    ledger.pause("draining", False)
    assert park(ledger).vacant == 2


def test_an_executor_drained_by_an_operator_goes_on_offering_its_slots(ledger: Ledger) -> None:
    ledger.apply(tell(ledger), reply(drained=True))
    assert (ledger.drained, park(ledger).vacant) == (True, 2)
    ledger.apply(tell(ledger), reply())
    assert not ledger.drained


def test_closing_gives_everything_back_that_is_not_finished(ledger: Ledger) -> None:
    assign(ledger, "a", "b", "c")
    finished, running = take(ledger), take(ledger)
    ledger.finish(finished, SUCCESS)
    ledger.close()
    assert running.cancellation.cancelled
    assert ledger.take() is None
    report = tell(ledger)
    assert {c.id: c.give_back for c in report.complete} == {
        "a": None,
        "b": STOPPING,
        "c": STOPPING,
    }
    assert (listed(report), report.vacant) == ([], 0)
    # Assigned by a report that was under way.
    assign(ledger, "d")
    assert carried(tell(ledger)) == ["d"]


def test_facts_go_with_the_news_until_they_arrive_and_again_when_asked(ledger: Ledger) -> None:
    facts = rpc.Facts(slots=2)
    ledger.set_facts(facts)
    assert park(ledger).facts is None
    lost = tell(ledger)
    assert lost.facts == facts
    ledger.give_up(lost)
    arrived = tell(ledger)
    assert arrived.facts == facts
    ledger.apply(arrived, reply())
    ledger.set_facts(rpc.Facts(slots=2))
    silent = tell(ledger)
    assert silent.facts is None
    ledger.apply(silent, reply(want_facts=True))
    assert tell(ledger).facts == facts


def test_a_refused_report_finds_the_result_to_blame_and_gives_that_task_back(
    ledger: Ledger, tmp_path: Path
) -> None:
    assign(ledger, "a", "b")
    for _ in range(2):
        ledger.finish(take(ledger), SUCCESS)
    both = tell(ledger)
    assert carried(both) == ["a", "b"]
    ledger.refuse(both, "wrong")
    one = tell(ledger)
    assert (carried(one), listed(one)) == (["a"], ["b"])
    ledger.refuse(one, "wrong")
    assert kept(tmp_path) == ["b"]
    again = tell(ledger)
    assert [(c.id, c.give_back) for c in again.complete] == [("a", "wrong")]


def test_results_too_large_for_one_report_travel_in_several(tmp_path: Path) -> None:
    ledger = Ledger("inc-2", 2, Spool(tmp_path), report_bytes=1)
    assign(ledger, "a", "b")
    for _ in range(2):
        ledger.finish(take(ledger), SUCCESS)
    first = tell(ledger)
    assert (carried(first), listed(first)) == (["a"], ["b"])
    ledger.apply(first, reply(acknowledged=["a"]))
    assert carried(tell(ledger)) == ["b"]


def test_there_are_news_when_something_finished_and_not_before(ledger: Ledger) -> None:
    assert not ledger.wait_for_news(0)
    assign(ledger, "a")
    job = take(ledger)
    ledger.advance(job, Status.RUNNING, 0)
    assert not ledger.wait_for_news(0)  # progress waits
    ledger.finish(job, SUCCESS)
    assert ledger.wait_for_news(0)
    assert not ledger.wait_to_park(0.01)
    ledger.apply(tell(ledger), reply(acknowledged=["a"]))
    assert not ledger.wait_for_news(0)
    assert ledger.wait_to_park(0.01)


def test_leases_are_renewed_in_time_while_anything_is_in_hand(ledger: Ledger) -> None:
    ledger.apply(park(ledger), reply(assign=["a"], lease_ms=300))
    assert ledger.wait_for_news(1.0)
    tell(ledger)
    assert not ledger.wait_for_news(0)


def test_a_task_that_cannot_be_read_is_given_back(ledger: Ledger) -> None:
    bad = rpc.Assignment("a", 1, rpc.Task(compare=77))
    ledger.apply(park(ledger), rpc.ReportReply(cancel=[], assign=[bad], acknowledged=[]))
    report = tell(ledger)
    assert carried(report) == ["a"]
    assert "compare" in report.complete[0].give_back
    assert report.settled == 1


def test_a_sick_executor_gives_back_what_it_has_and_what_still_comes(ledger: Ledger) -> None:
    late = park(ledger)
    assign(ledger, "a", "b", "c")
    running, other = take(ledger), take(ledger)
    ledger.finish(other, SUCCESS)
    ledger.evacuate("sick")
    assert running.cancellation.cancelled
    ledger.apply(late, reply(assign=["d"]))
    news = tell(ledger)
    ends = {completed.id: completed.give_back for completed in news.complete}
    assert ends == {"a": "sick", "b": None, "c": "sick", "d": "sick"}
    ledger.drop(running)
    ledger.apply(news, reply(acknowledged=["a", "b", "c", "d"]))
    assert ledger.count() == (0, 0, 0)
    assert ledger.take(0.001) is None and not ledger.closed

    ledger.readmit()
    assign(ledger, "a", attempt=2)
    assert take(ledger).id == "a"


def test_an_executor_is_not_idle_while_a_task_may_be_on_its_way(ledger: Ledger) -> None:
    offer, other = park(ledger), tell(ledger)
    ledger.pause("draining", True)
    assert ledger.count() == (0, 0, 0) and not ledger.idle
    ledger.give_up(other)
    assert not ledger.idle
    ledger.apply(offer, reply(assign=["a"]))
    assert not ledger.idle
    ledger.finish(take(ledger), SUCCESS)
    news = tell(ledger)
    assert news.vacant == 0 and not ledger.idle
    ledger.apply(news, reply(acknowledged=["a"]))
    assert ledger.idle
    park(ledger)
    assert ledger.idle, "what offers nothing brings nothing"


def test_facts_of_a_report_that_was_overtaken_are_told_again(ledger: Ledger) -> None:
    ledger.set_facts(rpc.Facts(state="sick"))
    news = tell(ledger)
    assert news.facts is not None
    assert not ledger.wait_to_park(0.01)  # it would overtake them
    overtaking = park(ledger)
    ledger.apply(news, reply())
    assert ledger.wait_for_news(0)
    again = tell(ledger)
    assert again.facts == news.facts
    ledger.apply(again, reply())
    assert not ledger.wait_for_news(0)
    assert ledger.wait_to_park(0.01)
    ledger.apply(overtaking, reply())
