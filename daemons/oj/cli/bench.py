"""`oj bench`: adds tasks to a running cluster and measures how they fare.

Each of some threads adds a task and waits for its end, then takes the next one that is due. With a
rate, a task is due at its time whether a thread is free or not, and its time counts from then: a
cluster that falls behind is not spared by asking it less.
"""

from __future__ import annotations

import argparse
import math
import os
import sys
import threading
import time
from dataclasses import replace

from oj import model, plain
from oj.calls import Calls
from oj.cli.measures import Run, Timing, show_run, to_plain
from oj.cli.terminal import Progress
from oj.cli.tiny import make_task
from oj.cli.verbs import EXIT_INTERRUPTED, EXIT_OTHER, Connect
from oj.errors import Rejected, Throttled, Unavailable

TAG = "bench"
MOST_THREADS = 256
LOOK_S = 0.1
TELL_S = 5.0  # between two lines of progress where there is no terminal
CANCEL_S = 30.0  # for what is cancelled to end


def bench(arguments: argparse.Namespace, connect: Connect) -> int:
    tag = f"{TAG}:{os.urandom(4).hex()}"
    task = replace(
        make_task(arguments.language),
        tags=frozenset({TAG, tag}),
        user=arguments.user or "",
        priority=arguments.priority,
    )
    model.check_task(task)
    with connect(arguments, long=True) as cluster:
        if arguments.language is not None and arguments.language not in cluster.languages():
            raise Rejected(f"no executor offers '{arguments.language}' now: 'oj languages'")
        slots = cluster.stats().slots or 0
        run = Run(arguments.count, tag, _choose_parallel(arguments, slots), arguments.rate)
        _say_what_comes(run, slots)
        interrupted = _Bench(cluster, task, run).measure()
    if arguments.json:
        plain.print_json(to_plain(run))
    else:
        show_run(run)
    if interrupted:
        return EXIT_INTERRUPTED
    return 0 if run.all_accepted else EXIT_OTHER


def _choose_parallel(arguments: argparse.Namespace, slots: int) -> int:
    wanted = arguments.parallel or max(2, 2 * slots, math.ceil(2 * (arguments.rate or 0)))
    return min(wanted, MOST_THREADS, arguments.count)


def _say_what_comes(run: Run, slots: int) -> None:
    pace = f"{run.rate:g} a second" if run.rate else f"{run.parallel} at a time"
    print(
        f"oj: puts load on the cluster: {run.asked} tasks, {pace}, on {slots} slots; "
        f"they have the tag {run.tag}",
        file=sys.stderr,
    )


class _Bench:
    """The threads of one measurement, and what they share."""

    def __init__(self, cluster: Calls, task: model.Task, run: Run) -> None:
        self._cluster = cluster
        self._task = task
        self._run = run
        self._lock = threading.Lock()
        self._next = 0
        self._open: set[str] = set()
        self._stop = threading.Event()
        self._error: Exception | None = None
        self._begin = 0.0

    def measure(self) -> bool:
        """Fills the run; whether it was interrupted. Raises what a thread failed with."""
        threads = [
            threading.Thread(target=self._work, name=f"bench-{i}", daemon=True)
            for i in range(self._run.parallel)
        ]
        interrupted = False
        self._begin = time.monotonic()
        for thread in threads:
            thread.start()
        with Progress() as progress:
            try:
                tell_at = 0.0
                while any(thread.is_alive() for thread in threads) and not self._stop.is_set():
                    if progress.live or time.monotonic() >= tell_at:
                        self._show(progress)
                        tell_at = time.monotonic() + TELL_S
                    time.sleep(LOOK_S)
            except KeyboardInterrupt:
                interrupted = True
            self._stop.set()
            self._run.seconds = time.monotonic() - self._begin
            with self._lock:
                left = sorted(self._open)
            if left:
                progress.show(f"cancelling {len(left)} tasks", 0, 0, "")
                self._cancel(left)
        end = time.monotonic() + CANCEL_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))
        if self._error is not None:
            raise self._error
        return interrupted

    def _show(self, progress: Progress) -> None:
        done, asked = len(self._run.timings), self._run.asked
        speed = done / max(0.001, time.monotonic() - self._begin)
        progress.show("running", done, asked, f"{speed:.1f} tasks/s", what="tasks")

    def _cancel(self, ids: list[str]) -> None:
        for task_id in ids:
            try:
                if self._cluster.cancel(task_id):
                    self._run.cancelled += 1
            except (Rejected, Unavailable) as error:
                print(f"\noj: {task_id} is not cancelled: {error}", file=sys.stderr)
                print(f"    oj search --tag {self._run.tag}   shows what is left", file=sys.stderr)
                return

    def _take(self) -> float | None:
        """When the next task is due, on the monotonic clock; None: there is none left."""
        with self._lock:
            number = self._next
            if number >= self._run.asked:
                return None
            self._next += 1
        if not self._run.rate:
            return time.monotonic()
        due = self._begin + number / self._run.rate
        self._stop.wait(max(0.0, due - time.monotonic()))
        return due

    def _work(self) -> None:
        try:
            while not self._stop.is_set():
                due = self._take()
                if due is None or self._stop.is_set():
                    break
                timing = self._judge_one(due)
                if timing is not None and not self._stop.is_set():
                    self._run.timings.append(timing)
        except Throttled as error:
            self._fail(
                Throttled(
                    f"the gateway does not take so much: {error.message} "
                    "(a lower --rate, or --judicator from inside)"
                )
            )
        except (Rejected, Unavailable) as error:
            self._fail(error)
        finally:
            self._cluster.close()

    def _fail(self, error: Exception) -> None:
        with self._lock:
            self._error = self._error or error
        self._stop.set()

    def _judge_one(self, due: float) -> Timing | None:
        begun = time.monotonic()
        task_id = self._cluster.add(self._task)
        added = time.monotonic()
        with self._lock:
            self._open.add(task_id)
        info = self._cluster.get(task_id) if self._stop.is_set() else None
        while info is None or not info.done:
            if self._stop.is_set() and info is not None:
                # Added while the others were cancelled already.
                self._cluster.cancel(task_id)
            info = self._cluster.wait(task_id)
        ended = time.monotonic()
        with self._lock:
            self._open.discard(task_id)
        return Timing(
            verdict=info.verdict.word if info.verdict else info.status.word,
            total_ms=(ended - due) * 1000,
            adding_ms=(added - begun) * 1000,
            waiting_ms=_between(info.add_time_ms, info.start_time_ms),
            judging_ms=_between(info.start_time_ms, info.report_time_ms),
        )


def _between(begin_ms: int | None, end_ms: int | None) -> float | None:
    if not begin_ms or not end_ms:
        return None
    return float(max(0, end_ms - begin_ms))
