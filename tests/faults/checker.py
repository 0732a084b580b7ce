"""The checker: decides from a history whether the cluster kept its promises.

The promises, each with the word under which a breach is counted:

lost      an acknowledged task is there, for everyone and always, and ends
double    it was stored once, ended once, and has one id however often its key was added
changed   nothing of it changes after its end, in anybody's eyes or in the database
stale     who asks after its end was seen is not told that it still runs
broken    a task whose cancel was acknowledged ends as cancelled and as nothing else; one whose
          cancel was answered with 'done already' was done; one that nobody cancelled is not
wrong     it ends as its program must, judged in some attempt
invented  nothing is acknowledged by a node that was cut off, nor is there a task nobody added
left      nothing runs, is mounted or has a cgroup on an executor afterwards

Pure: a history in, findings out.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from faults.history import FINAL, Add, History, Seen

WORDS = ("lost", "double", "changed", "stale", "broken", "wrong", "invented", "left")
MOST_SHOWN = 8


@dataclass
class Findings:
    tasks: int = 0
    breaches: dict[str, dict[str, str]] = field(default_factory=lambda: defaultdict(dict))

    def find(self, word: str, what: str, sentence: str) -> None:
        """Counted once for each task (or other thing) and word; the first sentence tells."""
        self.breaches[word].setdefault(what, sentence)

    def count(self, word: str) -> int:
        return len(self.breaches.get(word, {}))

    @property
    def kept(self) -> bool:
        return not any(self.breaches.values())

    def summary(self) -> str:
        """`0 lost, 0 double, 0 changed`, and whatever else there is."""
        always = [f"{self.count(word)} {word}" for word in WORDS[:3]]
        return ", ".join(
            always + [f"{self.count(word)} {word}" for word in WORDS[3:] if self.count(word)]
        )

    def sentences(self) -> list[str]:
        told = []
        for word in WORDS:
            found = list(self.breaches.get(word, {}).items())
            told += [f"{word}: {what}: {sentence}" for what, sentence in found[:MOST_SHOWN]]
            if len(found) > MOST_SHOWN:
                told.append(f"{word}: and {len(found) - MOST_SHOWN} more")
        return told


def check(
    history: History, left: Mapping[str, Sequence[str]] | None = None, *, database: bool = True
) -> Findings:
    """`left`: what was found on each executor at the end. Without `database` the history has no
    lines of the database's own log, and nothing is concluded from their absence."""
    findings = Findings()
    tasks = _check_adds(history, findings)
    first_tries: dict[str, float] = {}
    for add in history.adds:
        first_tries[add.key] = min(add.t0, first_tries.get(add.key, add.t0))
    findings.tasks = len(tasks)
    by_task: dict[str, list[Seen]] = defaultdict(list)
    for one in history.seen:
        by_task[one.id].append(one)
    for task, add in tasks.items():
        _check_seen(add, first_tries[add.key], by_task.get(task, []), findings)
    # What was stored may show although its caller never got an answer.
    stored = {entry.id for entry in history.inserted if entry.key in first_tries}
    for task in by_task.keys() - tasks.keys() - stored:
        findings.find("invented", task, "was shown, and nobody was told that it was added")
    for gone in history.absent:
        # An answer may be older than the acknowledgement that it crossed.
        if gone.id in tasks and gone.t0 > tasks[gone.id].t1:
            findings.find(
                "lost", gone.id, f"{gone.how} at {gone.at or 'somebody'} had no such task"
            )
    _check_cancels(history, tasks.keys(), by_task, findings)
    if database:
        _check_database(history, tasks, by_task, findings)
    for executor, things in (left or {}).items():
        for thing in things:
            findings.find("left", f"{executor}: {thing}", "is still there")
    return findings


def _check_adds(history: History, findings: Findings) -> dict[str, Add]:
    """The acknowledged tasks, each with its earliest acknowledgement."""
    tasks: dict[str, Add] = {}
    ids: dict[str, str] = {}
    keys: dict[str, str] = {}
    for add in history.adds:
        if add.id is None:
            continue
        if add.node:
            findings.find("invented", add.id, f"{add.node} was cut off and acknowledged {add.key}")
        if ids.setdefault(add.key, add.id) != add.id:
            findings.find("double", add.id, f"{add.key} was given this id and {ids[add.key]}")
        if keys.setdefault(add.id, add.key) != add.key:
            findings.find("double", add.id, f"is the id of {add.key} and of {keys[add.id]}")
        if add.id not in tasks or add.t1 < tasks[add.id].t1:
            tasks[add.id] = add
    return tasks


def _check_seen(add: Add, tried_s: float, seen: list[Seen], findings: Findings) -> None:
    task = str(add.id)
    ends = [one for one in seen if one.done]
    if not ends:
        last = max(seen, key=lambda one: one.t1).status if seen else "not seen at all"
        findings.find("lost", task, f"has no result; it was {last}")
        return
    for difference in _differences(ends):
        findings.find("changed", task, difference)
    first_seen = min(one.t1 for one in ends)
    for one in seen:
        if not one.done and one.t0 > first_seen:
            findings.find(
                "stale",
                task,
                f"was {one.status} for {one.how} at {one.at} "
                f"{one.t0 - first_seen:.2f} s after its end was seen",
            )
    for one in ends:
        if one.status == "cancelled":
            continue
        if (one.status, one.facts.get("verdict", add.ends[1])) != add.ends:
            said = f"{one.status}, {one.facts.get('verdict')}, {one.facts.get('message', '')!r}"
            findings.find("wrong", task, f"ended as {said} and not as {', '.join(add.ends)}")
        if one.attempt < 1:
            findings.find("wrong", task, "has a result, and nobody was given it to judge")
        if one.t1 < tried_s:
            findings.find("invented", task, "had a result before it was added")


def _differences(ends: Iterable[Seen]) -> Iterable[str]:
    """How views of one finished task differ. A summary has fewer facts than a full answer."""
    known: dict[str, tuple[Any, Seen]] = {}
    for one in ends:
        facts = {"status": one.status, "attempt": one.attempt, **one.facts}
        for name, value in facts.items():
            before, by = known.setdefault(name, (value, one))
            if before != value:
                yield (
                    f"{name} was {before!r} ({by.how} at {by.at}, {by.t1:.2f}), "
                    f"then {value!r} ({one.how} at {one.at}, {one.t1:.2f})"
                )


def _check_cancels(
    history: History, tasks: Collection[str], by_task: dict[str, list[Seen]], findings: Findings
) -> None:
    tried = {cancel.id for cancel in history.cancels}
    for task in set(tasks) - tried:
        if any(one.status == "cancelled" for one in by_task.get(task, [])):
            findings.find("broken", task, "ended as cancelled, and nobody cancelled it")
    for cancel in history.cancels:
        seen = by_task.get(cancel.id, [])
        if cancel.answer is True:
            for one in seen:
                if one.done and one.status != "cancelled":
                    findings.find("broken", cancel.id, f"was cancelled, and ended as {one.status}")
        if cancel.answer is None:
            continue
        for one in seen:
            if not one.done and one.t0 > cancel.t1:
                findings.find(
                    "broken" if cancel.answer is False else "stale",
                    cancel.id,
                    f"cancel was answered with {cancel.answer}, and then it was {one.status} "
                    f"for {one.how} at {one.at}",
                )


def _check_database(
    history: History, tasks: Mapping[str, Add], by_task: dict[str, list[Seen]], findings: Findings
) -> None:
    # Several members have the same entry, and it may have been read more than once.
    inserted = {(entry.stamp, entry.id): entry for entry in history.inserted}.values()
    written = {(entry.stamp, entry.id): entry for entry in history.written}.values()
    times_inserted = Counter(entry.id for entry in inserted)
    tried_keys = {add.key for add in history.adds}
    of_key: dict[str, str] = {}
    for entry in inserted:
        if of_key.setdefault(entry.key, entry.id) != entry.id:
            findings.find("double", entry.id, f"was stored beside {of_key[entry.key]}, same key")
        if entry.key not in tried_keys:
            findings.find("invented", entry.id, f"was stored with the key {entry.key!r}")
    ended: dict[str, list[tuple[int, int]]] = defaultdict(list)
    for entry in written:
        if entry.status in FINAL:
            ended[entry.id].append(entry.stamp)
    for entry in written:
        ends = ended.get(entry.id)
        if ends and entry.stamp > min(ends) and entry.status not in FINAL:
            findings.find("changed", entry.id, f"{', '.join(entry.fields)} written after its end")
    for task in tasks:
        if times_inserted[task] > 1:
            findings.find("double", task, f"was stored {times_inserted[task]} times")
        if times_inserted[task] == 0:
            findings.find("lost", task, "was acknowledged, and the database's log has it not")
        if len(ended[task]) > 1:
            findings.find("double", task, f"its end was written {len(ended[task])} times")
        if not ended[task] and any(one.done for one in by_task.get(task, [])):
            findings.find("lost", task, "was shown as done, and the database's log has no end")
