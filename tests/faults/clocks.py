"""Clocks: from one moment to the next, a node's daemons live ten minutes ahead; then no more."""

from __future__ import annotations

from faults.clock import set_clock
from faults.cluster import Cluster
from faults.fault import Fault

AHEAD_S = 600
NOTICED_S = 60


class WrongClock(Fault):
    word = "clock ten minutes ahead on"
    delicate = True
    calm = True
    hold_s = 6.0

    def inject(self, cluster: Cluster) -> None:
        for node in self.nodes:
            set_clock(cluster.machine(node), AHEAD_S)

    def heal(self, cluster: Cluster) -> None:
        before = {node: self._process(cluster, node) for node in self.nodes}
        for node in self.nodes:
            set_clock(cluster.machine(node), 0)
        # A mongod whose clock was set back calls no election for ten minutes: it is replaced.
        cluster.wait_for(
            "another mongod after the clock was set back",
            lambda: all(self._process(cluster, node) != was for node, was in before.items()),
            NOTICED_S,
        )

    def _process(self, cluster: Cluster, node: str) -> str:
        words = ["systemctl", "show", "--property=InvocationID", "oj-mongodb"]
        return cluster.machine(node).run(words).stdout
