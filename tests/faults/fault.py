"""What every fault has in common: whom it hits, how it begins, lasts and ends."""

from __future__ import annotations

import time

from faults.cluster import Cluster

# Whom a fault hits may be told by what it does at that moment.
ROLES = {
    "etcd leader": "etcd_leader",
    "mongod primary": "primary",
    "mongod secondary": "secondary",
    "leading judicator": "leader",
}


class Fault:
    """`targets` are names of nodes, or roles. After inject(), `nodes` are those that were hit.

    A fault that is `delicate`, because an operator acts in it or a copy of all data goes, is never
    combined with one that hits another judicator. One that is `calm` does not keep a node from
    serving.
    """

    word = "fault"
    delicate = False
    calm = False
    hold_s = 2.0

    def __init__(self, *targets: str) -> None:
        self.targets = targets
        self.nodes: list[str] = [target for target in targets if target not in ROLES]

    def describe(self) -> str:
        whom = []
        for target in self.targets:
            hit = "" if target not in ROLES else f" {self._hit(target)}"
            whom.append(f"{target}{hit}")
        return f"{self.word} {' and '.join(whom)}".strip()

    def aim(self, cluster: Cluster) -> None:
        """Finds out which nodes the roles mean now."""
        if any(target in ROLES for target in self.targets):
            view = cluster.look()
            found = [getattr(view, ROLES[t]) if t in ROLES else t for t in self.targets]
            self.nodes = list(dict.fromkeys(name for name in found if name))

    def inject(self, cluster: Cluster) -> None:
        raise NotImplementedError

    def hold(self, cluster: Cluster) -> None:
        """What happens while it lasts."""
        time.sleep(self.hold_s)

    def heal(self, cluster: Cluster) -> None:
        raise NotImplementedError

    def _hit(self, target: str) -> str:
        number = self.targets.index(target)
        return f"({self.nodes[number]})" if len(self.nodes) == len(self.targets) else ""
