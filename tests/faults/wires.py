"""The network: cables cut, wholly, between two, or in one direction only."""

from __future__ import annotations

import time

from faults.cluster import Cluster, Stuck
from faults.fault import Fault

TRY_S = 4.0


class CutOff(Fault):
    """A node reaches nobody, and nobody reaches it. If it is a judicator, it must refuse."""

    word = "cut of"
    hold_s = 4.0

    def inject(self, cluster: Cluster) -> None:
        for node in self.nodes:
            cluster.bed.network.cut(node)

    def hold(self, cluster: Cluster) -> None:
        cut_off = [node for node in self.nodes if node in cluster.judicators]
        if len(self.nodes) > 1 or not cut_off:
            time.sleep(self.hold_s)
        for node in cut_off:
            self._try_to_write(cluster, node)

    def heal(self, cluster: Cluster) -> None:
        for node in self.nodes:
            cluster.bed.network.heal(node)

    def _try_to_write(self, cluster: Cluster, node: str) -> None:
        tries = cluster.try_minority(node, TRY_S)
        if not tries:
            raise Stuck(f"{node} was cut off and did not even refuse")
        cluster.mark("refused", node=node, after_s=[t["t1"] - t["t0"] for t in tries])


class CutFromPeers(CutOff):
    """A judicator is cut off from the other judicators, but not from clients and executors."""

    word = "cut from its peers of"

    def inject(self, cluster: Cluster) -> None:
        (node,) = self.nodes
        cluster.bed.network.split([node], [name for name in cluster.judicators if name != node])

    def heal(self, cluster: Cluster) -> None:
        (node,) = self.nodes
        for name in cluster.judicators:
            if name != node:
                cluster.bed.network.heal(node, name)


class CutBetween(Fault):
    """Two nodes do not reach each other; everybody else reaches both."""

    word = "cut between"
    calm = True
    hold_s = 5.0

    def inject(self, cluster: Cluster) -> None:
        one, other = self.nodes
        cluster.bed.network.cut(one, other)

    def heal(self, cluster: Cluster) -> None:
        one, other = self.nodes
        cluster.bed.network.heal(one, other)


class OneWay(CutBetween):
    """What one node sends does not reach the other."""

    word = "one-way cut between"

    def inject(self, cluster: Cluster) -> None:
        one, other = self.nodes
        cluster.bed.network.cut(one, other, one_way=True)


class Mute(Fault):
    """A node hears everybody, and nobody hears it."""

    word = "one-way cut from everybody of"
    hold_s = 5.0

    def inject(self, cluster: Cluster) -> None:
        for node in self.nodes:
            for name in cluster.bed.machines:
                if name != node:
                    cluster.bed.network.cut(node, name, one_way=True)

    def heal(self, cluster: Cluster) -> None:
        for node in self.nodes:
            cluster.bed.network.heal(node)


class Deaf(Mute):
    """A node hears nobody, and everybody hears it."""

    word = "one-way cut towards"

    def inject(self, cluster: Cluster) -> None:
        for node in self.nodes:
            for name in cluster.bed.machines:
                if name != node:
                    cluster.bed.network.cut(name, node, one_way=True)
