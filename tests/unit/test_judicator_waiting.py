"""Who is woken by what, without a database."""

from __future__ import annotations

import threading

from oj.judicator.waiting import Parked, ParkedReports, Waiters, Wake


def test_one_task_wakes_one_report_that_can_take_it() -> None:
    reports = ParkedReports()
    c1, c2, py = Parked("a", ["c"]), Parked("b", ["c", "py"]), Parked("d", ["py"])
    for parked in (c1, c2, py):
        reports.park(parked)
    reports.offer("c")
    assert c1.sleep(0) == {Wake.WORK}
    assert c2.sleep(0) == set() and py.sleep(0) == set()
    reports.offer("c")
    reports.offer("c")  # nobody is left who was not woken yet
    assert c2.sleep(0) == {Wake.WORK}
    reports.offer("py", 5)
    assert py.sleep(0) == {Wake.WORK}
    reports.offer("none")


def test_a_woken_report_listens_again_only_when_it_says_so() -> None:
    reports = ParkedReports()
    parked = Parked("a", ["c"])
    reports.park(parked)
    reports.offer("c")
    assert parked.sleep(0) == {Wake.WORK}
    reports.offer("c")
    assert parked.sleep(0) == set()
    parked.offered.clear()
    reports.listen_again(parked)
    reports.offer("c")
    assert parked.sleep(0) == {Wake.WORK}


def test_work_that_a_leaving_report_did_not_look_at_goes_to_another() -> None:
    reports = ParkedReports()
    first, second = Parked("a", ["c"]), Parked("b", ["c"])
    reports.park(first)
    reports.park(second)
    reports.offer("c")
    reports.leave(first)  # its connection broke before it looked
    assert second.sleep(0) == {Wake.WORK}


def test_an_executor_can_be_left_out() -> None:
    reports = ParkedReports()
    first, second = Parked("a", ["c"]), Parked("b", ["c"])
    reports.park(first)
    reports.offer("c", but="a")
    assert first.sleep(0) == set()
    reports.park(second)
    reports.offer("c", but="a")
    assert first.sleep(0) == set() and second.sleep(0) == {Wake.WORK}


def test_a_newer_report_sends_the_older_off() -> None:
    reports = ParkedReports()
    older, newer = Parked("a", ["c"]), Parked("a", ["c"])
    reports.park(older)
    reports.park(newer)
    assert older.sleep(0) == {Wake.SUPERSEDED}
    reports.listen_again(older)
    reports.leave(older)
    reports.offer("c")
    assert newer.sleep(0) == {Wake.WORK}
    reports.supersede("a")
    assert newer.sleep(0) == {Wake.SUPERSEDED}
    assert reports.executors() == [] and reports.languages() == []


def test_closing_sends_everybody_off_and_whoever_comes_later() -> None:
    reports = ParkedReports()
    early, late = Parked("a", ["c"]), Parked("b", ["c"])
    reports.park(early)
    reports.close()
    reports.park(late)
    assert early.sleep(0) == late.sleep(0) == {Wake.CLOSING}


def test_waiters_hear_of_their_task_only() -> None:
    waiters: Waiters[str] = Waiters()
    one, two = waiters.join("t1"), waiters.join("t2")
    waiters.tell("t1", "news")
    assert one.sleep(0) == (True, "news")
    assert two.sleep(0) == (False, None)
    waiters.leave("t1", one)
    assert waiters.tasks() == ["t2"]
    waiters.close()
    assert two.sleep(0)[0] and two.closing
    assert waiters.join("t3").closing


def test_a_ring_during_sleep_wakes() -> None:
    waiters: Waiters[str] = Waiters()
    waiter = waiters.join("t")
    threading.Timer(0.05, waiters.tell, ["t", "news"]).start()
    assert waiter.sleep(5) == (True, "news")


def test_news_that_come_in_the_wrong_order_are_looked_up() -> None:
    waiters: Waiters[str] = Waiters()
    waiter = waiters.join("t")
    waiters.tell("t", "cancelled")
    waiters.tell("t", "compiling")
    assert waiter.sleep(1) == (True, None)
    assert waiter.sleep(1) == (True, None)
    assert waiter.sleep(0) == (False, None)
    waiters.tell("t", "done")
    assert waiter.sleep(1) == (True, "done")
