"""Who may run a program beside others, and who waits until nobody else does."""

from __future__ import annotations

import threading
from collections.abc import Iterator

import pytest

from oj.executor.sandbox import Cancellation, RunCancelled, RunUnclear, _Turns
from servers import wait_until


class Taker:
    """Takes a turn in a thread of its own, and holds it until it is told to let go."""

    def __init__(self, turns: _Turns, alone: bool) -> None:
        self.cancellation = Cancellation()
        self.taken = threading.Event()
        self.let_go = threading.Event()
        self.cancelled = False
        self._take = turns.alone if alone else turns.beside_others
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._thread.start()

    def _work(self) -> None:
        try:
            with self._take(self.cancellation):
                self.taken.set()
                self.let_go.wait(60)
        except RunCancelled:
            self.cancelled = True

    def end(self) -> None:
        self.let_go.set()
        self._thread.join(60)
        assert not self._thread.is_alive()


@pytest.fixture
def turns() -> Iterator[_Turns]:
    made = _Turns()
    yield made
    with made.alone(Cancellation()):  # everything was given back
        pass


def test_runs_that_need_not_be_alone_run_beside_each_other(turns: _Turns) -> None:
    takers = [Taker(turns, alone=False) for _ in range(2)]
    assert all(taker.taken.wait(60) for taker in takers)
    for taker in takers:
        taker.end()


def test_nobody_waits_for_ever_to_be_alone(turns: _Turns, monkeypatch: pytest.MonkeyPatch) -> None:
    """All others wait as well, and the run beside may last for as long as its wall limit."""
    monkeypatch.setattr(turns, "PATIENCE_S", 0.3)
    running = Taker(turns, alone=False)
    assert running.taken.wait(60)
    with pytest.raises(RunUnclear, match="no quiet moment"), turns.alone(Cancellation()):
        pass
    new = Taker(turns, alone=False)
    assert new.taken.wait(60)
    new.end()
    running.end()


def test_who_wants_to_be_alone_waits_for_others_and_comes_before_new_ones(turns: _Turns) -> None:
    running = Taker(turns, alone=False)
    assert running.taken.wait(60)
    alone = Taker(turns, alone=True)
    wait_until(lambda: turns._wanted == 1, what="it to wait")
    new = Taker(turns, alone=False)
    assert not alone.taken.is_set()
    assert not new.taken.wait(0.1)
    running.end()
    assert alone.taken.wait(60)
    assert not new.taken.wait(0.1)
    alone.end()
    assert new.taken.wait(60)
    new.end()


def test_who_is_alone_for_too_long_goes_on_beside_others(turns: _Turns) -> None:
    with turns.alone(Cancellation(), 0.2) as turn:
        new = Taker(turns, alone=False)
        assert new.taken.wait(60)
        assert not turn.lasts
        assert turn.lasted_s >= 0.2
        other = Taker(turns, alone=True)
        wait_until(lambda: turns._wanted == 1, what="it to wait")
        new.end()
        assert not other.taken.wait(0.1)  # the first still runs
    assert not turn.lasts
    assert other.taken.wait(60)
    other.end()


def test_who_ends_in_time_was_alone_all_the_time(turns: _Turns) -> None:
    with turns.alone(Cancellation(), 60) as turn:
        assert turn.lasts
    assert turn.lasts
    assert turn.lasted_s < 60


def test_a_cancel_ends_the_wait(turns: _Turns) -> None:
    alone = Taker(turns, alone=True)
    assert alone.taken.wait(60)
    others = [Taker(turns, alone=False), Taker(turns, alone=True)]
    for other in others:
        other.cancellation.cancel()
        other.end()
        assert other.cancelled
    alone.end()
