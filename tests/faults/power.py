"""Power: the plug is pulled, or a node is rebooted in good order."""

from __future__ import annotations

import time

from faults.cluster import Cluster
from faults.fault import Fault

LEASE_S = 10.0  # a little more than that of a task in an executor's hand


class PowerOff(Fault):
    """Everything in the node is gone at once; its disk stays."""

    word = "power-off of"

    def inject(self, cluster: Cluster) -> None:
        view = cluster.look()
        roles = {
            "etcd leader": view.etcd_leader,
            "mongod primary": view.primary,
            "leading judicator": view.leader,
        }

        def pull(node: str) -> None:
            # From here on nobody hears of it: that is the moment to count from.
            cluster.bed.network.unplug(node)
            was = [role for role, name in roles.items() if name == node]
            cluster.mark("power-off", node=node, was=was)
            cluster.machine(node).power_off_hard()

        cluster.in_parallel(pull, self.nodes)

    def hold(self, cluster: Cluster) -> None:
        # What one executor had is given to the other before it comes back and asks for it.
        alone = len(self.nodes) == 1 and self.nodes[0] in cluster.executors
        time.sleep(LEASE_S if alone else self.hold_s)

    def heal(self, cluster: Cluster) -> None:
        # Not until all its units are up: some may have to wait for another node.
        cluster.in_parallel(lambda node: cluster.machine(node).power_on(), self.nodes)


class Reboot(Fault):
    """A node is shut down in good order, is away, and comes back."""

    word = "reboot of"

    def inject(self, cluster: Cluster) -> None:
        cluster.in_parallel(lambda node: cluster.machine(node).shut_down(120), self.nodes)

    def heal(self, cluster: Cluster) -> None:
        cluster.in_parallel(lambda node: cluster.machine(node).power_on(), self.nodes)
