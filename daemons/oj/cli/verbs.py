"""The verbs of `oj`: each asks the cluster, prints, and returns an exit code."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from pathlib import Path
from typing import Protocol, TypeVar

from oj import model, plain
from oj.calls import GET_ATTEMPTS, GET_RESULT, Calls
from oj.cli import pages
from oj.cli.arguments import duration
from oj.cli.terminal import Progress, clean
from oj.clock import Deadline
from oj.errors import Missing, Rejected, Unavailable

EXIT_ACCEPTED = 0
EXIT_OTHER = 1
EXIT_INPUT = 2
EXIT_INTERRUPTED = 130
LOOK_AGAIN_S = 1.0
WHOLE = GET_RESULT | GET_ATTEMPTS

Answer = TypeVar("Answer")


class Connect(Protocol):
    """Makes the client of the cluster that the arguments name."""

    def __call__(self, arguments: argparse.Namespace, *, long: bool = False) -> Calls: ...


def submit(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.drafts import Draft

    draft = Draft()
    task = draft.write(arguments)
    # All rules but those about the sizes, which blobs take care of, before anything is sent.
    model.check_task(_without_large(task))
    for note in draft.notes:
        print(f"oj: {note}", file=sys.stderr)
    with connect(arguments, long=arguments.wait) as judicators:
        judicators.put_blobs(draft.large)
        task_id = judicators.add(task)
        if not arguments.wait:
            if arguments.json:
                plain.print_json({"id": task_id})
            else:
                print(task_id)
            return 0
        return _follow(judicators, task_id, arguments)


def _without_large(task: model.Task) -> model.Task:
    """The task with its inline data left out: together they may be more than the wire takes."""
    empty = model.Data(inline=b"")

    def strip(files: tuple[model.File, ...]) -> tuple[model.File, ...]:
        return tuple(replace(file, data=empty) for file in files)

    return replace(
        task,
        source=strip(task.source),
        data=strip(task.data),
        tests=tuple(replace(test, input=None, expected=None) for test in task.tests),
    )


def watch(arguments: argparse.Namespace, connect: Connect) -> int:
    if arguments.id is None:
        from oj.cli.live import watch_cluster

        return watch_cluster(arguments, connect)
    with connect(arguments, long=True) as judicators:
        return _follow(judicators, model.check_id(arguments.id), arguments)


def _follow(judicators: Calls, task_id: str, arguments: argparse.Namespace) -> int:
    """Shows progress until the task is done, then its result."""
    try:
        if arguments.json:
            info = judicators.wait_done(task_id, WHOLE)
        else:
            with Progress() as progress:
                for info in judicators.follow(task_id):
                    if info.done:
                        break
                    note = f"on {info.executor}" if info.executor else ""
                    if info.attempt > 1:
                        note += f", attempt {info.attempt}"
                    progress.show(info.status.word, info.tests_done, info.tests_total, note)
        if info.result is None:
            info = judicators.get(task_id, WHOLE)
    except KeyboardInterrupt:
        print(
            f"\noj: task {task_id} goes on\n"
            f"    oj watch {task_id}    follows it\n"
            f"    oj cancel {task_id}   ends it",
            file=sys.stderr,
        )
        return EXIT_INTERRUPTED
    except Unavailable as error:
        # The task is stored; without its id, who submitted it would not find it again.
        error.message += f"; task {task_id} goes on, 'oj watch {task_id}' follows it"
        raise
    if arguments.json:
        plain.print_json(plain.task(info))
    else:
        pages.show_task(info)
    return EXIT_ACCEPTED if info.verdict == model.Verdict.ACCEPTED else EXIT_OTHER


def get(arguments: argparse.Namespace, connect: Connect) -> int:
    saved: list[Path] = []
    with connect(arguments) as judicators:
        info = judicators.get(model.check_id(arguments.id), WHOLE)
        if arguments.save:
            from oj.cli.saving import save

            saved = save(judicators, info.id, Path(arguments.save))
    if arguments.json:
        files = {"saved": [str(path) for path in saved]} if arguments.save else {}
        plain.print_json({**plain.task(info), **files})
    elif arguments.save:
        print("\n".join(str(path) for path in saved))
    else:
        pages.show_task(info, details=True, outputs=arguments.outputs)
    return 0


def search(arguments: argparse.Namespace, connect: Connect) -> int:
    conditions = {
        "user": arguments.user,
        "statuses": {model.Status[s.upper()] for s in arguments.status or ()} or None,
        "verdicts": {model.Verdict[v.upper()] for v in arguments.verdict or ()} or None,
        "tags": set(arguments.tag or ()) or None,
        "language": arguments.language,
        "executor": arguments.executor,
        "added_from": _since(arguments.since) if arguments.since else None,
        "oldest_first": arguments.oldest_first or None,
    }
    found: list[model.TaskInfo] = []
    cursor = ""
    with connect(arguments) as judicators:
        while len(found) < arguments.limit:
            page, cursor = judicators.search(
                cursor=cursor, limit=min(model.MAX_PAGE, arguments.limit - len(found)), **conditions
            )
            found += page
            if not cursor:
                break
    if arguments.json:
        plain.print_json({"tasks": [plain.summary(info) for info in found], "more": bool(cursor)})
    else:
        pages.show_tasks(found, more=bool(cursor))
    return 0


def _since(text: str) -> int:
    """'2h' ago or a date in local time, as milliseconds since 1970."""
    try:
        return int((time.time() - duration(text)) * 1000)
    except argparse.ArgumentTypeError:
        pass
    try:
        return int(datetime.fromisoformat(text).astimezone().timestamp() * 1000)
    except (ValueError, OverflowError):
        raise Rejected(f"--since: '{text}' is neither a time such as 2h nor a date") from None


def cancel(arguments: argparse.Namespace, connect: Connect) -> int:
    for task_id in arguments.id:
        model.check_id(task_id, task_id)

    def tell(answers: Mapping[str, bool]) -> None:
        if arguments.json:
            plain.print_json([{"id": task_id, "cancelled": on} for task_id, on in answers.items()])
        else:
            for task_id, cancelled in answers.items():
                print(f"{task_id}  {'cancelled' if cancelled else 'was done already'}")

    with connect(arguments) as judicators:
        return each(arguments.id, judicators.cancel, tell)


def each(
    ids: Iterable[str], act: Callable[[str], Answer], tell: Callable[[Mapping[str, Answer]], None]
) -> int:
    """Does it to each once, past those that do not exist, and tells what was done.

    That is told whatever happens: a mistake in one id must not hide what became of the others.
    """
    answers: dict[str, Answer] = {}
    code = 0
    try:
        for one in dict.fromkeys(ids):
            try:
                answers[one] = act(one)
            except Missing as error:
                print(f"oj: {clean(error.message)}", file=sys.stderr)
                code = EXIT_INPUT
    except BaseException:
        if answers:
            tell(answers)
        raise
    tell(answers)
    return code


def executors(arguments: argparse.Namespace, connect: Connect) -> int:
    with connect(arguments) as judicators:
        found = sorted(judicators.executors(), key=lambda info: str(info.name))
    if arguments.json:
        plain.print_json([plain.executor(info) for info in found])
    else:
        pages.show_executors(found)
    return 0


def judicators(arguments: argparse.Namespace, connect: Connect) -> int:
    with connect(arguments) as client:
        found = sorted(client.judicators(), key=lambda info: str(info.name))
    if arguments.json:
        plain.print_json([plain.judicator(info) for info in found])
    else:
        pages.show_judicators(found)
    return 0


def languages(arguments: argparse.Namespace, connect: Connect) -> int:
    with connect(arguments) as client:
        found = client.languages()
    if arguments.json:
        plain.print_json([{"name": name, "versions": found[name]} for name in found])
    else:
        pages.show_languages(found)
    return 0


def bench(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.bench import bench

    return bench(arguments, connect)


def status(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli import health, overview

    deadline = Deadline(arguments.wait or 0.0)
    while True:
        try:
            with connect(arguments) as client:
                view = health.look(client)
            well = not view.degraded()
            if well or deadline.expired:
                break
        except Unavailable as error:
            if deadline.expired:
                more = "'oj doctor' on a judicator's node tells more"
                raise Unavailable(f"{error.message}; {more}") from None
        time.sleep(LOOK_AGAIN_S)
    if arguments.json:
        plain.print_json(view.plain())
    else:
        overview.show_status(view)
    return EXIT_OTHER if arguments.wait and not well else 0


def drain(arguments: argparse.Namespace, connect: Connect) -> int:
    name = model.check_node(arguments.executor, "executor")
    with connect(arguments) as client:
        client.drain(name, not arguments.off)
    if arguments.json:
        plain.print_json({"executor": name, "drained": not arguments.off})
    elif arguments.off:
        print(f"{name} is in service")
    else:
        print(f"{name} finishes what it runs and takes no more; 'oj executors' shows it")
    return 0


def token(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.tokens import ACTIONS

    with connect(arguments) as client:
        return ACTIONS[arguments.action](arguments, client)


def rejudge(arguments: argparse.Namespace, connect: Connect) -> int:
    ids = [model.check_id(task) for task in arguments.id]

    def tell(again: Mapping[str, str]) -> None:
        if arguments.json:
            plain.print_json(again)
        else:
            for task in again.values():
                print(task)

    with connect(arguments) as client:
        return each(ids, client.rejudge, tell)


def doctor(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.doctor import doctor

    return doctor(arguments, connect)


def setup(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.setup import setup

    return setup(arguments, connect)


def backup(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.backups import backup

    return backup(arguments)


def restore(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.backups import restore

    return restore(arguments)


def leave(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.leaving import leave

    return leave(arguments, connect)


def remove(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.leaving import remove

    return remove(arguments, connect)


def recover(arguments: argparse.Namespace, connect: Connect) -> int:
    from oj.cli.leaving import recover

    return recover(arguments, connect)


VERBS: dict[str, Callable[[argparse.Namespace, Connect], int]] = {
    "submit": submit,
    "get": get,
    "watch": watch,
    "search": search,
    "cancel": cancel,
    "executors": executors,
    "judicators": judicators,
    "languages": languages,
    "status": status,
    "bench": bench,
    "drain": drain,
    "token": token,
    "rejudge": rejudge,
    "doctor": doctor,
    "setup": setup,
    "leave": leave,
    "remove": remove,
    "recover": recover,
    "backup": backup,
    "restore": restore,
}
