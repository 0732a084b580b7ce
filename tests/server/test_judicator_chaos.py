"""Everything at once: executors that crash, lose, give back and repeat themselves; judicators that
are killed; clients that cancel. In the end every task has one end, and it is an honest one."""

from __future__ import annotations

import contextlib
import random
import threading
import time
from collections.abc import Callable
from typing import Any

from thrift.Thrift import TException

import servers
from executors import Caller, FakeExecutor, JudicatorUnderTest, make_result, make_task
from oj import model
from oj.rpc import ttypes as rpc
from oj.rpc.ttypes import Status

TASKS = 300
SECONDS = 8.0


class Unreliable:
    """An executor that does wrong whatever an executor may do wrong."""

    def __init__(self, name: str, ports: list[int], seed: int, calm: threading.Event) -> None:
        self.name, self.ports, self.calm = name, ports, calm
        self.dice = random.Random(seed)
        self.in_hand: dict[str, Any] = {}
        self.finished: list[Any] = []
        self.voice: FakeExecutor | None = None

    def live(self, stop: threading.Event) -> None:
        while not stop.is_set():
            try:
                self._turn()
            except (TException, OSError):
                if self.voice:
                    self.voice.close()
                self._speak_elsewhere()
                time.sleep(0.05)
        if self.voice:
            self.voice.close()

    def _speak_elsewhere(self) -> None:
        port = self.dice.choice(self.ports)
        try:
            if self.voice is None:
                self.voice = FakeExecutor(port, self.name, slots=3)
            else:
                self.voice.caller = Caller(port)
        except (TException, OSError):
            pass

    def _turn(self) -> None:
        if self.voice is None:
            self._speak_elsewhere()
            return
        luck = 1.0 if self.calm.is_set() else self.dice.random()
        if luck < 0.02:  # crashes; what it had finished is on its disk
            self.in_hand.clear()
            self.voice.close()
            self.voice = None
            return
        if luck < 0.05 and self.in_hand:  # loses one
            self.in_hand.pop(self.dice.choice(list(self.in_hand)))
        for task_id in list(self.in_hand):
            if self.dice.random() < 0.6:
                self._finish(self.in_hand.pop(task_id), luck)
        listed = [self.voice.executing(a) for a in self.in_hand.values()]
        reply = self.voice.report(
            complete=self.finished,
            executing=listed,
            vacant=3 - len(self.in_hand),
            wait_ms=self.dice.choice((0, 0, 50)),
        )
        acknowledged = {(ref.id, ref.attempt) for ref in reply.acknowledged}
        if luck > 0.1:  # else it forgets that it was told, and says it again
            self.finished = [c for c in self.finished if (c.id, c.attempt) not in acknowledged]
        for ref in reply.cancel:
            if ref.id in self.in_hand and self.in_hand[ref.id].attempt == ref.attempt:
                del self.in_hand[ref.id]
        self.in_hand.update({a.id: a for a in reply.assign})

    def _finish(self, assigned: Any, luck: float) -> None:
        assert self.voice is not None
        if luck < 0.12:
            self.finished.append(self.voice.completed(assigned, give_back="a whim"))
        else:
            mark = f"{self.name} {assigned.attempt}"
            self.finished.append(self.voice.completed(assigned, make_result(message=mark)))


def test_every_task_has_one_honest_end_whatever_happens(
    start_judicator: Callable[..., JudicatorUnderTest], mongo: Any
) -> None:
    settings = "[tasks]\nlease = 2s\nmax_attempts = 20\n"
    one = start_judicator(name="j1", settings=settings)
    two = start_judicator(name="j2", settings=settings, database=one.database, prefix=one.prefix)
    changes = mongo[one.database].tasks.watch(max_await_time_ms=100)
    ports = [one.port, two.port]
    stop, calm = threading.Event(), threading.Event()
    executors = [Unreliable(f"ex-{i}", ports, i, calm) for i in range(4)]
    threads = [threading.Thread(target=e.live, args=(stop,), daemon=True) for e in executors]
    for thread in threads:
        thread.start()
    dice = random.Random(5)
    ids: list[str] = []
    cancelled: set[str] = set()
    doubtful: set[str] = set()  # a cancel that was refused may have been stored
    begun = time.monotonic()
    caller = two.call()
    kills = 0
    while len(ids) < TASKS or time.monotonic() - begun < SECONDS:
        if len(ids) < TASKS:
            ids.append(add(caller, len(ids)))
        if dice.random() < 0.03 and ids:
            victim = dice.choice(ids)
            try:
                if caller.cancel(victim):
                    cancelled.add(victim)
            except rpc.Unavailable:
                doubtful.add(victim)
        if time.monotonic() - begun > SECONDS / 3 * (kills + 1) and kills < 2:
            kills += 1
            one.daemon.kill()
            one.start_again()
        time.sleep(0.01)
    calm.set()
    assert len(set(ids)) == TASKS

    def all_done() -> bool:
        return not caller.search(rpc.Conditions(done=False), "", 1).tasks

    servers.wait_until(all_done, 40, "every task has ended")
    stop.set()
    for thread in threads:
        thread.join(10)
    retried = 0
    for task_id in ids:
        info = caller.get(task_id, 7)
        if info.status == Status.CANCELLED and task_id in doubtful:
            cancelled.add(task_id)
        assert (info.status == Status.CANCELLED) == (task_id in cancelled), info
        if task_id in cancelled:
            continue
        assert info.status == Status.SUCCESS, info
        # The result is of the attempt that owned the task last, and of no other.
        assert info.result.message == f"{info.executor} {info.attempt}"
        assert [a.number for a in info.attempts] == list(range(1, info.attempt + 1))
        assert all(a.ended for a in info.attempts[:-1]) and not info.attempts[-1].ended
        retried += info.attempt > 1
    assert retried > 5
    servers.wait_until(lambda: _nothing_left(caller), 10, "the counts agree")
    assert len(check_moves(changes)) == TASKS


def add(caller: Caller, number: int) -> str:
    """Again when it is refused, as clients do: by its key it is one task."""

    def attempt() -> str | None:
        with contextlib.suppress(rpc.Unavailable):
            return str(caller.add(make_task(user=f"u{number % 4}", key=f"k{number}")))
        return None

    return servers.wait_until(attempt, 60, "an answer")


def check_moves(changes: Any) -> set[str]:
    """Every change of a status was one that the model allows; returns the tasks that ended."""
    statuses: dict[str, model.Status] = {}
    ended: set[str] = set()
    with changes:
        while len(ended) < TASKS and (change := changes.try_next()):
            task = str(change["documentKey"]["_id"])
            if change["operationType"] == "insert":
                statuses[task] = model.Status(change["fullDocument"]["s"])
                assert statuses[task] is model.Status.PENDING
                continue
            fields = change["updateDescription"]["updatedFields"]
            old, new = statuses[task], model.Status(fields.get("s", statuses[task]))
            assert old is new or model.can_move(old, new), f"{task}: {old.word} to {new.word}"
            statuses[task] = new
            if new in model.FINAL:
                ended.add(task)
    return ended


def _nothing_left(caller: Caller) -> bool:
    return not any(n for s, n in caller.stats().by_status.items() if s < Status.SUCCESS)
