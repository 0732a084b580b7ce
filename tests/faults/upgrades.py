"""Upgrades: a node gets newer packages while the others go on with the old ones."""

from __future__ import annotations

import time

from faults.cluster import Cluster
from faults.fault import Fault


class Upgrade(Fault):
    """The next version on each of the nodes, one after the other."""

    word = "upgrade of"
    delicate = True
    calm = True
    hold_s = 0.0

    def inject(self, cluster: Cluster) -> None:
        for node in self.nodes:
            began = time.monotonic()
            cluster.upgrade(node)
            cluster.mark("upgrade", node=node, took_s=time.monotonic() - began)

    def heal(self, cluster: Cluster) -> None:
        pass
