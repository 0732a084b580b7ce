"""Disks: one is full under a daemon, or all that it kept is gone."""

from __future__ import annotations

import time

from faults.cluster import VOLUMES, Cluster
from faults.fault import Fault


class FullDisk(Fault):
    """No byte more can be written below a daemon's state directory."""

    word = "full disk under"
    hold_s = 4.0

    def __init__(self, unit: str, node: str) -> None:
        super().__init__(node)
        self.unit = unit

    def describe(self) -> str:
        return f"{self.word} {self.unit} on {super().describe().removeprefix(self.word).strip()}"

    def inject(self, cluster: Cluster) -> None:
        self._fill(cluster)
        for node in self.nodes:
            # Both have room set aside in files; this makes them ask for more.
            if self.unit == "oj-mongodb":
                cluster.client.call("checkpoint", host=node)
            elif self.unit == "oj-etcd":
                cluster.machine(node).run(["systemctl", "kill", "-s", "KILL", self.unit])

    def hold(self, cluster: Cluster) -> None:
        end = time.monotonic() + self.hold_s
        while time.monotonic() < end:
            # A daemon that ends and clears up must not find room by that.
            time.sleep(0.2)
            self._fill(cluster)

    def _fill(self, cluster: Cluster) -> None:
        for node in self.nodes:
            cluster.machine(node).fill_volume(VOLUMES[self.unit][0])

    def heal(self, cluster: Cluster) -> None:
        for node in self.nodes:
            cluster.machine(node).free_volume(VOLUMES[self.unit][0])


class LostData(Fault):
    """Everything in a daemon's state directory is deleted while it is stopped."""

    word = "lost data of"
    delicate = True
    calm = True

    def __init__(self, unit: str, node: str) -> None:
        super().__init__(node)
        self.unit = unit

    def describe(self) -> str:
        return f"{self.word} {self.unit} on {super().describe().removeprefix(self.word).strip()}"

    def inject(self, cluster: Cluster) -> None:
        for node in self.nodes:
            machine = cluster.machine(node)
            # No time to say goodbye, and none for systemd to start it again in between.
            machine.run(["systemctl", "mask", "--runtime", self.unit])
            machine.run(["systemctl", "kill", "-s", "KILL", self.unit])
            machine.run(["systemctl", "stop", self.unit])
            machine.run(["find", VOLUMES[self.unit][0], "-mindepth", "1", "-delete"])

    def heal(self, cluster: Cluster) -> None:
        for node in self.nodes:
            machine = cluster.machine(node)
            machine.run(["systemctl", "unmask", "--runtime", self.unit])
            machine.run(["systemctl", "start", "--no-block", self.unit])
