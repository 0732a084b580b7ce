"""What the live screen of `oj watch` shows: the cluster in so many columns and rows."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from oj import model, plain
from oj.cli.terminal import clean, cut, mood, paint, span, width, words

LATEST = 200  # tasks that are remembered
SECONDS = 120  # of which the throughput is remembered
MEAN_S = 10
LOAD_COLUMNS = 20
LEAST_BAR = 6
LEAST_TASKS = 4  # rows that executors leave to the tasks
_BLOCKS = " ▁▂▃▄▅▆▇█"
_SIMPLE = " .:-=+*#@"


@dataclass
class Moved:
    """A task, as its latest event tells."""

    id: str
    status: model.Status
    at: float  # seconds since 1970
    verdict: model.Verdict | None = None
    executor: str = ""
    language: str = ""
    user: str = ""
    tests_done: int = 0
    tests_total: int = 0
    attempt: int = 0


@dataclass
class Picture:
    """What is known of the cluster, as it is learnt."""

    where: str
    unicode: bool = True
    stats: Any = None
    executors: Sequence[Any] = ()
    troubles: Sequence[str] = ()
    trouble: str = ""  # why the cluster is not heard of
    heard: float = 0.0  # when it was, in seconds since 1970
    tasks: dict[str, Moved] = field(default_factory=dict)  # the latest to move is the last
    ended: deque[float] = field(default_factory=lambda: deque(maxlen=100_000))

    def note(self, event: Any) -> None:
        """An event of a task: what it does not tell stays as it was."""
        if event.status is None:
            return
        now = (event.time or 0) / 1000 or time.time()
        old = self.tasks.pop(event.id, None) or Moved(event.id, model.Status.PENDING, now)
        status = model.Status(event.status)
        if status in model.FINAL and old.status not in model.FINAL:
            self.ended.append(time.time())
        self.tasks[event.id] = Moved(
            id=event.id,
            status=status,
            at=now,
            verdict=model.Verdict(event.verdict) if event.verdict is not None else None,
            executor=event.executor or old.executor,
            language=event.language or old.language,
            user=event.user or old.user,
            tests_done=event.tests_done or 0,
            tests_total=event.tests_total or old.tests_total,
            attempt=event.attempt or old.attempt,
        )
        while len(self.tasks) > LATEST:
            del self.tasks[next(iter(self.tasks))]

    def forget_unfinished(self) -> None:
        self.tasks = {key: one for key, one in self.tasks.items() if one.status in model.FINAL}


def to_moved(info: model.TaskInfo) -> Moved:
    return Moved(
        id=info.id,
        status=info.status,
        at=(info.report_time_ms or info.add_time_ms) / 1000,
        verdict=info.verdict,
        executor=info.executor,
        language=info.language,
        user=info.user,
        tests_done=info.tests_done,
        tests_total=info.tests_total,
        attempt=info.attempt,
    )


def draw(picture: Picture, columns: int, rows: int, now: float) -> list[str]:
    """At most `rows` lines of at most `columns` columns."""
    columns = max(20, columns)
    lines = [_headline(picture, columns, now)]
    lines += [_trouble(text, columns) for text in _troubles(picture, now)[:3]]
    if picture.stats is not None:
        lines += [_queue(picture.stats, columns), _throughput(picture, columns, now)]
        lines.append(_counts(picture.stats, columns))
    lines.append("")
    room = rows - len(lines) - 1 - LEAST_TASKS - 1
    lines += _executors(picture.executors, columns, max(1, room), now)
    lines.append("")
    lines += _tasks(list(picture.tasks.values())[::-1], columns, rows - len(lines), now)
    return lines[:rows]


def _headline(picture: Picture, columns: int, now: float) -> str:
    left = cut(clean(f"oj watch  {picture.where}"), columns - 20)
    right = f"{time.strftime('%H:%M:%S', time.localtime(now))}  q: quit"
    gap = " " * max(1, columns - width(left) - width(right))
    return paint(left, "bold") + gap + paint(right, "dim")


def _troubles(picture: Picture, now: float) -> list[str]:
    if picture.trouble:
        since = f"; shown as {_seconds(now - picture.heard)} ago" if picture.heard else ""
        return [f"the cluster does not answer: {picture.trouble}{since}"]
    return list(picture.troubles)


def _trouble(text: str, columns: int) -> str:
    return paint(cut(f"! {clean(text)}", columns), "red")


def _queue(stats: Any, columns: int) -> str:
    executing, slots = stats.executing or 0, stats.slots or 0
    text = f"tasks       {stats.queue or 0} waiting"
    if stats.oldest_pending_ms:
        text += f", the oldest for {_seconds(stats.oldest_pending_ms / 1000)}"
    text += f"; {executing} running on {slots} slots "
    room = min(LOAD_COLUMNS, columns - width(text) - 2)
    return cut(text + (_bar(executing, slots, room) if room >= LEAST_BAR else ""), columns)


def _seconds(seconds: float) -> str:
    """Whole ones, so that the screen does not change more than it tells."""
    return f"{seconds:.0f} s" if seconds < 120 else span(seconds * 1000)


def _bar(part: int, whole: int, columns: int = LOAD_COLUMNS) -> str:
    filled = min(columns, -(-columns * part // whole)) if whole else 0
    return f"[{'#' * filled}{'.' * (columns - filled)}]"


def _throughput(picture: Picture, columns: int, now: float) -> str:
    recent = sum(1 for at in picture.ended if now - at < MEAN_S)
    text = f"throughput  {recent / MEAN_S:.1f} tasks/s "
    room = min(SECONDS // 2, columns - len(text) - 1)
    return text + paint(_curve(picture, room, now), "blue")


def _curve(picture: Picture, room: int, now: float) -> str:
    """Ended tasks, two seconds a column, the present at the right."""
    counts = [0] * max(1, room)
    for at in picture.ended:
        back = int((now - at) // 2)
        if 0 <= back < len(counts):
            counts[-1 - back] += 1
    marks = _BLOCKS if picture.unicode else _SIMPLE
    most = max(counts) or 1
    return "".join(marks[-(-count * (len(marks) - 1) // most)] for count in counts)


def _counts(stats: Any, columns: int) -> str:
    found = plain.counts(stats.by_verdict, model.Verdict)
    shown: list[str] = []
    used = len("verdicts    ")
    for word, count in sorted(found.items(), key=lambda pair: -pair[1]):
        text = f"{count} {words(word)}"
        if used + len(text) + 2 > columns:
            break
        used += len(text) + 2
        shown.append(f"{count} {paint(words(word), mood(word))}")
    return f"verdicts    {', '.join(shown) or 'none yet'}"


def _executors(executors: Sequence[Any], columns: int, room: int, now: float) -> list[str]:
    if not executors:
        return [paint("no executors", "yellow")]
    names = min(max(len("executor"), *(width(info.name) for info in executors)), columns // 3)
    lines = [paint(f"{'EXECUTOR':<{names}}  {'STATE':<8}  LOAD", "dim")]
    few = executors if len(executors) <= room else executors[: max(0, room - 1)]
    for info in few:
        state = plain.executor_state(info)
        facts = info.facts
        executing, slots = info.executing or 0, (facts.slots if facts else 0) or 0
        load = f"{_bar(executing, slots)} {executing}/{slots}"
        more = f"{len((facts.languages or {}) if facts else {})} languages"
        if state == "sick" and facts.message:
            more = clean(facts.message)
        elif info.report_time and now - info.report_time / 1000 > 30:
            more = f"silent for {_seconds(now - info.report_time / 1000)}"
        name = cut(clean(info.name), names)
        rest = cut(f"{load}  {more}", max(1, columns - names - 12))
        gap = " " * (names - width(name))
        lines.append(f"{name}{gap}  {paint(f'{state:<8}', mood(state))}  {rest}")
    if len(few) < len(executors):
        lines.append(paint(f"... and {len(executors) - len(few)} more", "dim"))
    return lines


def _tasks(tasks: Sequence[Moved], columns: int, room: int, now: float) -> list[str]:
    if room < 2:
        return []
    lines = [paint(cut(f"{'TASK':<24}  {'STATE':<18}  {'AGO':>7}  WHAT", columns), "dim")]
    if not tasks:
        return [*lines, paint("nothing has happened yet", "dim")]
    for task in tasks[: room - 1]:
        word = task.verdict.word if task.verdict else task.status.word
        what = ", ".join(
            text
            for text in (
                f"{task.tests_done}/{task.tests_total}" if task.tests_total > 1 else "",
                task.language,
                task.user and f"of {task.user}",
                task.executor and f"on {task.executor}",
                f"attempt {task.attempt}" if task.attempt > 1 else "",
            )
            if text
        )
        ago = _seconds(now - task.at) if now - task.at >= 1 else "now"
        head = f"{task.id:<24}  "
        rest = cut(clean(what), max(1, columns - 24 - 2 - 18 - 2 - 7 - 2))
        state = paint(f"{words(word):<18}", mood(word))
        lines.append(f"{head}{state}  {ago:>7}  {rest}")
    return lines
