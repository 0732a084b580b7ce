"""Membership: nodes are removed for good, return under their name, come new and leave."""

from __future__ import annotations

from faults.cluster import HEALTHY_S, Cluster
from faults.fault import Fault


class RemoveAndReturn(Fault):
    """A judicator dies, is removed by the operator, and comes back with its old disk: then it finds
    by itself that it was removed, and joins anew."""

    word = "removal and return of"
    delicate = True

    def inject(self, cluster: Cluster) -> None:
        (node,) = self.nodes
        other = next(name for name in cluster.judicators if name != node)
        cluster.machine(node).power_off_hard()
        # An operator is not that fast: the others have elected whom they need.
        cluster.wait_for_progress()
        cluster.judicators.remove(node)
        try:
            cluster.machine(other).run(["oj", "remove", node, "--yes"], timeout_s=120)
            cluster.wait_for(
                f"{node} is no member any more",
                lambda: not cluster.look().troubles(cluster.judicators, []),
                HEALTHY_S,
            )
        finally:
            cluster.judicators.append(node)
            cluster.judicators.sort()

    def heal(self, cluster: Cluster) -> None:
        (node,) = self.nodes
        cluster.machine(node).power_on()


class Replace(RemoveAndReturn):
    """The same, but the machine is a new one with the old name: an operator sets it up."""

    word = "removal and replacement of"

    def heal(self, cluster: Cluster) -> None:
        (node,) = self.nodes
        other = next(name for name in cluster.judicators if name != node)
        cluster.machine(node).reset_disk()
        cluster.machine(node).boot()
        cluster.prepare(node)
        cluster.setup(node, "judicator", "--join", other)


class ComeAndGo(Fault):
    """New judicators join, some leave soon and the others later, all under load."""

    word = "new judicators"
    delicate = True
    calm = True

    def __init__(self, *names: str, leave: int) -> None:
        super().__init__(*names)
        self.leave = leave

    def describe(self) -> str:
        return f"{len(self.targets)} judicators in, {self.leave} out ({', '.join(self.targets)})"

    def inject(self, cluster: Cluster) -> None:
        first = cluster.judicators[0]
        for name in self.nodes:
            if name in cluster.bed.machines:
                cluster.machine(name).reset_disk()
            else:
                cluster.make_machine(name, "judicator")
            cluster.machine(name).boot()
            cluster.setup(name, "judicator", "--join", first)
            cluster.judicators.append(name)
        cluster.wait_until_healthy()
        for name in self.nodes[: self.leave]:
            self._let_go(cluster, name)

    def heal(self, cluster: Cluster) -> None:
        for name in self.nodes[self.leave :]:
            self._let_go(cluster, name)

    def _let_go(self, cluster: Cluster, name: str) -> None:
        cluster.machine(name).run(["oj", "leave", "--yes"], timeout_s=180)
        cluster.judicators.remove(name)
        cluster.wait_for(
            f"{name} is no member any more",
            lambda: not cluster.look().troubles(cluster.judicators, []),
            HEALTHY_S,
        )
        cluster.machine(name).power_off_hard()
