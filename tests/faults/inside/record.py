"""The lines of the history (see ../history.py), written as calls return."""

from __future__ import annotations

import hashlib
import json
import threading
import time
from pathlib import Path
from typing import Any

from oj.model import TaskInfo


class Record:
    """A file of JSON lines that many threads write to."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("a", buffering=1 << 16)
        self._lock = threading.Lock()

    def note(self, call: str, t0: float, **fields: Any) -> None:
        line = json.dumps({"call": call, "t0": t0, "t1": time.monotonic(), **fields})
        self.write(line)

    def write(self, *lines: str) -> None:
        with self._lock:
            self._file.writelines(f"{line}\n" for line in lines)

    def flush(self) -> None:
        with self._lock:
            self._file.flush()

    def note_seen(self, info: TaskInfo, t0: float, how: str, at: str) -> None:
        facts: dict[str, Any] = {}
        if info.done:
            facts = {
                "verdict": info.verdict.word if info.verdict else None,
                "executor": info.executor,
                "report_time_ms": info.report_time_ms,
                "score": info.score,
                "message": info.message,
            }
            if info.result is not None:
                facts["result"] = hashlib.sha256(repr(info.result).encode()).hexdigest()[:16]
        self.note(
            "seen",
            t0,
            id=info.id,
            status=info.status.word,
            attempt=info.attempt,
            facts=facts,
            how=how,
            at=at,
        )
