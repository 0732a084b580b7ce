"""Which languages work here: each is proven by its self-test, in the sandbox.

What passed is remembered over restarts, under a key that covers everything a
self-test depends on: the language's file, the programs it calls, the packages
of the machine, the kernel, the sandbox and our own version. If any of them
changed, the self-test runs again.
"""

from __future__ import annotations

import hashlib
import json
import logging
import os
import queue
import shutil
import threading
from collections.abc import Mapping
from pathlib import Path

from oj import __version__
from oj.executor.languages import SEARCH_PATH, Language
from oj.executor.pipeline import CannotJudge, Pipeline
from oj.executor.sandbox import SandboxFailure
from oj.model import Result, Verdict

PACKAGES = "/var/lib/dpkg/status"

log = logging.getLogger("oj.executor.selftest")


def prove(
    pipeline: Pipeline,
    languages: Mapping[str, Language],
    slots: int,
    box: str,
    memory: Path,
    stop: threading.Event,
) -> dict[str, str]:
    """The languages that work, with their versions. Warns of those that should and do not.

    Once `stop` is set no more are tried, and a failure says nothing of the language."""
    known = _recall(memory)
    proven: dict[str, str] = {}
    keys: dict[str, str] = {}
    open_ones: queue.SimpleQueue[Language] = queue.SimpleQueue()
    for language in languages.values():
        if missing := language.find_missing():
            log.info("language %s is not offered: %s is not installed", language.name, missing)
            continue
        keys[language.name] = key = make_key(language, box)
        if key in known:
            proven[language.name] = known[key]
        else:
            open_ones.put(language)

    def work(slot: int) -> None:
        while not stop.is_set():
            try:
                language = open_ones.get_nowait()
            except queue.Empty:
                return
            try:
                proven[language.name] = test(pipeline, slot, language)
            except (CannotJudge, SandboxFailure) as error:
                if not stop.is_set():
                    log.warning("language %s is not offered: %s", language.name, error)
            except Exception:
                log.exception("language %s is not offered", language.name)

    threads = [threading.Thread(target=work, args=(slot,)) for slot in range(slots)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    _remember(memory, {keys[name]: version for name, version in proven.items()})
    return dict(sorted(proven.items()))


def test(pipeline: Pipeline, slot: int, language: Language) -> str:
    """Runs the self-test; returns the version. Raises CannotJudge."""
    try:
        return _test_once(pipeline, slot, language)
    except CannotJudge:
        # A machine that stood still for longer than a time limit must not cost a language.
        return _test_once(pipeline, slot, language)


def _test_once(pipeline: Pipeline, slot: int, language: Language) -> str:
    version = pipeline.print_version(slot, language)
    result = pipeline.try_out(slot, f"self-test-{language.name}", language.self_test())
    if result.verdict is not Verdict.ACCEPTED:
        raise CannotJudge(f"its self-test ended with {_explain(result)}")
    return version


def _explain(result: Result) -> str:
    outcome = result.tests[0].outcome if result.tests else result.compile
    said = (outcome.stderr or outcome.stdout) if outcome else b""
    text = said.decode("utf-8", "replace").strip().replace("\n", " | ")[:300]
    return f"{result.verdict.word} ({result.message})" + (f": {text}" if text else "")


def make_key(language: Language, box: str) -> str:
    digest = hashlib.sha256(language.text)
    files = [shutil.which(tool, path=SEARCH_PATH) or tool for tool in language.tools()]
    for path in [*files, PACKAGES, box]:
        digest.update(_stamp(path).encode())
    digest.update(f"{os.uname().release} {__version__}".encode())
    return digest.hexdigest()


def _stamp(path: str) -> str:
    real = os.path.realpath(path)
    try:
        info = os.stat(real)  # noqa: PTH116
    except OSError:
        return f"{real} is missing\n"
    return f"{real} {info.st_size} {info.st_mtime_ns}\n"


def _recall(memory: Path) -> dict[str, str]:
    try:
        known = json.loads(memory.read_text())
    except (OSError, ValueError):
        return {}
    return known if isinstance(known, dict) else {}


def _remember(memory: Path, known: dict[str, str]) -> None:
    part = memory.with_suffix(".part")
    try:
        part.write_text(json.dumps(known))
        part.rename(memory)
    except OSError as error:
        # A full disk: they are tested again at the next start, and can be judged in now.
        log.warning("cannot note which languages work: %s", error)
