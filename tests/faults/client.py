"""The client host as seen from here: its program (inside/main.py) and the history it writes."""

from __future__ import annotations

import json
import subprocess
import threading
from pathlib import Path
from queue import Empty, Queue
from typing import Any

from bed import BedError, Machine

INSIDE = Path(__file__).resolve().parent / "inside"
PLACE = "/root/faults"
HISTORY = "/root/history"


class Client:
    """One program on the client host that answers one command at a time."""

    def __init__(self, machine: Machine, hosts: list[str], seed: int) -> None:
        self.machine = machine
        self.extra: list[str] = []  # lines of history of others than the program
        self._answers: Queue[str | None] = Queue()
        self._lock = threading.Lock()
        place_program(machine)
        words = f"exec python3 {PLACE}/main.py {HISTORY} {seed} {' '.join(hosts)} 2>{HISTORY}.err"
        self._process = machine.start(words)
        threading.Thread(target=self._listen, daemon=True).start()

    def call(self, name: str, patience_s: float = 60, **fields: Any) -> Any:
        with self._lock:
            assert self._process.stdin
            self._process.stdin.write(json.dumps({"do": name, **fields}).encode() + b"\n")
            self._process.stdin.flush()
            try:
                text = self._answers.get(timeout=patience_s)
            except Empty:
                raise BedError(
                    f"the client program did not answer {name} in {patience_s} s"
                ) from None
        if text is None:
            raise BedError(f"the client program is gone:\n{self.complaints()[-3000:]}")
        answer = json.loads(text)
        if isinstance(answer, dict) and "error" in answer:
            raise BedError(f"the client program failed at {name}: {answer['error']}")
        return answer

    def history(self) -> list[bytes | str]:
        self.call("close")
        return [*self.machine.get(HISTORY).splitlines(), *self.extra]

    def complaints(self) -> str:
        """What it wrote to its standard error, which should be nothing."""
        return self.machine.get(f"{HISTORY}.err").decode(errors="replace")

    def close(self) -> None:
        if self._process.stdin:
            self._process.stdin.close()
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def _listen(self) -> None:
        assert self._process.stdout
        for line in self._process.stdout:
            self._answers.put(line.decode())
        self._answers.put(None)


def place_program(machine: Machine) -> None:
    machine.put_tree(INSIDE, PLACE)
