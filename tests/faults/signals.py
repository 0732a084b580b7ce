"""Signals: a daemon is killed, or stands still for a while and then goes on as if nothing was."""

from __future__ import annotations

import time

from faults.cluster import Cluster
from faults.fault import Fault


class Kill(Fault):
    """Every process of one unit is killed; systemd starts it again."""

    word = "kill of"

    def __init__(self, unit: str, node: str) -> None:
        super().__init__(node)
        self.unit = unit

    def describe(self) -> str:
        return f"{self.word} {self.unit} on {super().describe().removeprefix(self.word).strip()}"

    def inject(self, cluster: Cluster) -> None:
        for node in self.nodes:
            cluster.mark("kill", node=node, unit=self.unit)
            cluster.machine(node).run(["systemctl", "kill", "-s", "KILL", self.unit])

    def heal(self, cluster: Cluster) -> None:
        pass


class Freeze(Kill):
    """All processes of a unit are stopped, and continued later. Its watchdog may be faster."""

    word = "freeze of"

    def __init__(self, unit: str, node: str, hold_s: float = 30.0) -> None:
        super().__init__(unit, node)
        self.hold_s = hold_s

    def describe(self) -> str:
        return f"{super().describe()} for {self.hold_s:g} s"

    def inject(self, cluster: Cluster) -> None:
        self._end_s = time.monotonic() + self.hold_s
        for node in self.nodes:
            cluster.mark("freeze", node=node, unit=self.unit)
            cluster.machine(node).run(["systemctl", "kill", "-s", "STOP", self.unit])

    def hold(self, cluster: Cluster) -> None:
        time.sleep(max(0.0, self._end_s - time.monotonic()))

    def heal(self, cluster: Cluster) -> None:
        for node in self.nodes:
            # The watchdog may have ended it, and no process may be there at this moment.
            cluster.machine(node).run(["systemctl", "kill", "-s", "CONT", self.unit], check=False)
