"""What a node decides about its membership: single cases, and histories of a whole cluster.

The cluster of the histories is a model of etcd's rules and no more careful than it has to be: a
change takes effect whenever a majority is up, however unwise it is. So what keeps it alive is what
the nodes decide.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from oj.etcd import decisions
from oj.etcd.decisions import (
    Add,
    ClusterSeen,
    Initialise,
    Meeting,
    MemberSeen,
    Recover,
    Refuse,
    Remove,
    Seen,
    SetAside,
    Start,
    Wait,
    decide,
    decide_meeting,
    find_hindrance,
)


def member(number: int, **fields: object) -> MemberSeen:
    made = MemberSeen(
        id=number,
        name=f"n{number}",
        peer_urls=(f"http://n{number}:7502",),
        client_urls=(f"http://n{number}:7501",),
        healthy=True,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


def cluster(*members: MemberSeen) -> ClusterSeen:
    return ClusterSeen(7, members)


NEW = Seen("n3", "http://n3:7502", sources=("n1:7501",))
OLD = replace(NEW, has_data=True, own_id=3, own_cluster_id=7)
WELL = cluster(member(1), member(2))


@pytest.mark.parametrize(
    ("seen", "step"),
    [
        (Seen("n1", "http://n1:7502", may_initialise=True), Initialise),
        (replace(NEW, cluster=WELL), Add),
        # Who has no data must not make a cluster when there is a hint of one.
        (NEW, Wait),
        (replace(NEW, may_initialise=True, callers=("http://n1:7502",)), Wait),
        (replace(NEW, may_initialise=True, knew_others=True), Wait),
        (replace(NEW, may_initialise=True, answering=("n1:7501",)), Wait),
        # Its data lost, whether it was a voter or still learning.
        (replace(NEW, cluster=cluster(member(1), member(2), member(3, healthy=False))), Remove),
        (replace(NEW, cluster=cluster(member(1), member(3, name="", learner=True))), Remove),
        (replace(NEW, cluster=cluster(member(1), member(3, healthy=False))), Wait),
        # Others who are joining.
        (replace(NEW, cluster=cluster(member(1), member(2, learner=True))), Wait),
        (
            replace(
                NEW,
                cluster=cluster(member(1), member(2, learner=True, healthy=False, silent_s=100)),
            ),
            Remove,
        ),
        # It runs elsewhere: this is a copy of it, by another address or with all that it has.
        (replace(OLD, peer_url="http://c3:7502", cluster=cluster(member(1), member(3))), Refuse),
        (replace(OLD, displaced=True, cluster=cluster(member(1), member(3))), Refuse),
        (replace(OLD, displaced=True, cluster=cluster(member(1), member(3, healthy=False))), Start),
        (replace(OLD, cluster=cluster(member(1), member(3))), Start),
        (replace(OLD, peer_url="http://c3:7502", cluster=cluster(member(1))), SetAside),
        # A copy without the data does not take the entry of the one that runs.
        (replace(NEW, cluster=cluster(member(1), member(2), member(3))), Wait),
        # Someone else has its name.
        (replace(NEW, name="n1", cluster=WELL), Wait),
        (
            replace(NEW, name="n2", cluster=cluster(member(1), member(2, healthy=False))),
            Wait,
        ),
        (
            replace(
                NEW,
                name="n2",
                cluster=cluster(member(1), member(4), member(2, healthy=False, silent_s=100)),
            ),
            Remove,
        ),
        # With data.
        (replace(OLD, cluster=None), Start),
        (replace(OLD, cluster=cluster(member(1), member(2), member(3, healthy=False))), Start),
        (replace(OLD, cluster=WELL), SetAside),
        (replace(OLD, cluster=replace(WELL, id=8)), Start),
        (replace(OLD, unusable="crc mismatch"), Start),
        (
            replace(
                OLD,
                unusable="crc mismatch",
                cluster=cluster(member(1), member(2), member(3, healthy=False)),
            ),
            SetAside,
        ),
        # The operator's word.
        (replace(OLD, left=True), Refuse),
        (replace(NEW, left=True, cluster=WELL), Refuse),
        (replace(OLD, recover=True), Recover),
        (replace(OLD, recover=True, answering=("n1:7501",)), Refuse),
        (replace(NEW, recover=True), Refuse),
    ],
)
def test_the_next_step_follows_from_what_is_seen(seen: Seen, step: type) -> None:
    assert isinstance(decide(seen), step), decide(seen)


@pytest.mark.parametrize(
    ("members", "leaving", "hindered"),
    [
        ([member(1)], 1, True),
        ([member(1), member(2)], 2, False),
        ([member(1), member(2, healthy=False)], 2, True),
        ([member(1), member(2), member(3)], 3, False),
        ([member(1), member(2), member(3, healthy=False)], 3, False),
        ([member(1), member(2), member(3, healthy=False)], 2, True),
        ([member(1), member(2, learner=True, healthy=False)], 2, False),
        ([member(1), member(2, learner=True)], 1, True),
    ],
)
def test_nobody_leaves_when_the_rest_would_have_no_majority(
    members: list[MemberSeen], leaving: int, hindered: bool
) -> None:
    assert bool(find_hindrance(members, members[leaving - 1])) is hindered


ALL = ("a:1", "b:1", "c:1")
READY = Meeting(own="a:1", known=ALL, views={"b:1": ALL, "c:1": ALL}, unchanged_s=10)


@pytest.mark.parametrize(
    ("meeting", "step", "words"),
    [
        (READY, Initialise, ""),
        (replace(READY, unchanged_s=1), Wait, "about to"),
        (replace(READY, own="b:1", views={"a:1": ALL, "c:1": ALL}), Wait, "a:1 is to make"),
        (replace(READY, views={"b:1": ALL}), Wait, "nothing is heard of c:1"),
        (replace(READY, views={"b:1": ALL, "c:1": ("b:1", "c:1")}), Wait, "c:1 knows other"),
        (replace(READY, expected=4), Wait, "only 3 of 4"),
        (replace(READY, own="d:1"), Wait, "is not one of them"),
        (Meeting(own="a:1", known=(), unchanged_s=10), Wait, "is not one of them"),
        (Meeting(own="a:1", known=("a:1",), unchanged_s=10), Initialise, ""),
    ],
)
def test_a_cluster_is_made_by_one_when_all_agree(meeting: Meeting, step: type, words: str) -> None:
    decided = decide_meeting(meeting)
    assert isinstance(decided, step), decided
    assert words in getattr(decided, "why", "")


# Histories


@dataclass
class Disk:
    """What one node keeps: which member its data is of."""

    member_id: int = 0
    cluster_id: int = 0
    has_data: bool = False
    knew_others: bool = False
    set_aside: int = 0


@dataclass
class Model:
    """One cluster by etcd's rules: a list that a majority of its voters may change."""

    id: int
    members: dict[int, MemberSeen] = field(default_factory=dict)
    running: set[int] = field(default_factory=set)  # members whose etcd runs with their data
    dead: set[int] = field(default_factory=set)  # members whose data is lost for ever

    @property
    def voters(self) -> set[int]:
        return {one.id for one in self.members.values() if not one.learner}

    def has_majority(self) -> bool:
        return 2 * len(self.voters & self.running) > len(self.voters)

    def can_have_majority(self) -> bool:
        return 2 * len(self.voters - self.dead) > len(self.voters)

    def see(self) -> ClusterSeen:
        return ClusterSeen(
            self.id,
            tuple(
                replace(one, healthy=one.id in self.running, silent_s=100.0)
                for one in self.members.values()
            ),
        )


NODES = ["n1", "n2", "n3", "n4", "n5"]
node = st.sampled_from(NODES)


class Histories(RuleBasedStateMachine):
    """Nodes start, crash between steps, lose their data, are removed and leave, in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.next_id = 1
        self.disks = {name: Disk() for name in NODES}
        self.clusters: list[Model] = []
        self.unwise: list[str] = []
        self.alone: set[str] = set()  # nodes that nothing tells of the cluster

    # What a node sees, and one step of it

    def url(self, name: str) -> str:
        return f"http://{name}:7502"

    def living(self) -> Model | None:
        return next((one for one in self.clusters if one.has_majority()), None)

    def look(self, name: str) -> Seen:
        disk, living = self.disks[name], self.living()
        answering = tuple(str(one) for model in self.clusters for one in model.running)
        callers = tuple(
            "a member"
            for model in self.clusters
            if model.running and any(self.url(name) in one.peer_urls for one in model.see().members)
        )
        return Seen(
            name,
            self.url(name),
            has_data=disk.has_data,
            own_id=disk.member_id,
            own_cluster_id=disk.cluster_id,
            may_initialise=name == "n1",
            knew_others=disk.knew_others,
            sources=("n1:7501",),
            answering=() if name == "n1" else answering,
            callers=callers,
            cluster=living.see()
            if living and (callers or name != "n1" or disk.knew_others)
            else None,
        )

    def step(self, name: str, crash: bool = False) -> None:
        """With crash: listed as a member, but never started."""
        disk = self.disks[name]
        if any(disk.member_id in model.running for model in self.clusters if disk.has_data):
            return
        decided = decide(self.look(name))
        living = self.living()
        match decided:
            case Initialise():
                # Known to be open: the first node has lost its data, and nobody who runs lists it
                # (all are down, or it was removed). Only its file could tell it of the others:
                # join instead of init.
                alive = [model for model in self.clusters if model.can_have_majority()]
                called = any(
                    one.name == name
                    for model in alive
                    if model.running
                    for one in model.see().members
                )
                if alive and not called:
                    self.alone.add(name)
                    return
                self.clusters.append(Model(self.next_id))
                self.enter(name, self.clusters[-1], learner=False)
                self.start(name)
            case Start():
                self.start(name)
            case Add():
                assert living is not None
                self.enter(name, living, learner=True)
                if crash:
                    living.running.discard(disk.member_id)
                    disk.has_data = False
            case Remove():
                assert living is not None
                disk.knew_others = True  # written down before
                self.remove(living, decided.member.id)
            case SetAside():
                disk.set_aside += 1
                self.forget(disk)
            case Wait() | Refuse():
                pass

    def enter(self, name: str, model: Model, learner: bool) -> None:
        """Listed, and started empty."""
        member_id, self.next_id = self.next_id, self.next_id + 1
        model.members[member_id] = MemberSeen(
            member_id, name, (self.url(name),), (f"{name}:7501",), learner=learner
        )
        disk = self.disks[name]
        disk.member_id, disk.cluster_id = member_id, model.id
        disk.has_data = True
        disk.knew_others = len(model.members) > 1
        if learner:
            model.running.add(member_id)
            for other in self.disks.values():
                other.knew_others |= other.member_id in model.running

    def start(self, name: str) -> None:
        disk = self.disks[name]
        for model in self.clusters:
            if model.id == disk.cluster_id and disk.member_id in model.members:
                model.running.add(disk.member_id)

    def remove(self, model: Model, member_id: int) -> None:
        before = model.has_majority()
        del model.members[member_id]
        model.running.discard(member_id)
        if before and not model.has_majority():
            self.unwise.append(f"removal of {member_id}")

    def forget(self, disk: Disk) -> None:
        disk.member_id = disk.cluster_id = 0
        disk.has_data = False

    # What happens

    @initialize(size=st.integers(0, len(NODES)))
    def some_nodes_are_members_already(self, size: int) -> None:
        for name in NODES[:size]:
            self.step(name)
            self.a_learner_is_promoted(name)

    @rule(name=node)
    def a_node_takes_a_step(self, name: str) -> None:
        self.step(name)

    @rule(name=node)
    def a_node_crashes_within_a_step(self, name: str) -> None:
        self.step(name, crash=True)

    @rule(name=node)
    def a_node_crashes(self, name: str) -> None:
        for model in self.clusters:
            model.running.discard(self.disks[name].member_id)

    @rule(name=node)
    def a_node_loses_its_data(self, name: str) -> None:
        disk = self.disks[name]
        self.a_node_crashes(name)
        for model in self.clusters:
            if disk.member_id in model.members:
                model.dead.add(disk.member_id)
        self.forget(disk)
        disk.knew_others = False

    @rule(name=node)
    def a_learner_is_promoted(self, name: str) -> None:
        living = self.living()
        member_id = self.disks[name].member_id
        if living and member_id in living.running and living.members[member_id].learner:
            living.members[member_id] = replace(living.members[member_id], learner=False)

    @rule(name=node, by=st.sampled_from(["the operator", "the node"]))
    def a_member_is_to_be_removed(self, name: str, by: str) -> None:
        living = self.living()
        if living is None:
            return
        for one in living.see().members:
            if one.name == name and find_hindrance(living.see().members, one) is None:
                self.remove(living, one.id)
                return

    # What must always hold

    @invariant()
    def no_change_took_the_majority_away(self) -> None:
        assert not self.unwise

    @invariant()
    def there_is_at_most_one_learner(self) -> None:
        for model in self.clusters:
            assert sum(one.learner for one in model.members.values()) <= 1

    @invariant()
    def there_is_only_one_cluster_that_can_live(self) -> None:
        assert sum(model.can_have_majority() for model in self.clusters) <= 1

    @invariant()
    def nobody_is_listed_twice_and_serves_twice(self) -> None:
        for model in self.clusters:
            names = [one.name for one in model.members.values() if one.id in model.running]
            assert len(names) == len(set(names))

    @invariant()
    def data_is_set_aside_only_where_a_cluster_lived_without_it(self) -> None:
        for name, disk in self.disks.items():
            if disk.has_data:
                model = next(one for one in self.clusters if one.id == disk.cluster_id)
                assert disk.member_id not in model.dead, name

    def teardown(self) -> None:
        """Once nothing fails any more, all nodes become voters of the one cluster.

        Except those with data of another cluster, which has lost its majority for ever: whether
        that data is still wanted is for the operator to say.
        """
        if self.living() is None:
            return
        self.alone.clear()
        for _ in range(4 * len(NODES)):
            for name in NODES:
                self.step(name)
                self.a_learner_is_promoted(name)
        living = self.living()
        assert living is not None
        wanted = {name for name, disk in self.disks.items() if disk.cluster_id in (0, living.id)}
        assert {one.name for one in living.members.values()} == wanted - self.alone
        assert living.voters == living.running


TestHistories = Histories.TestCase
TestHistories.settings = settings(max_examples=200, stateful_step_count=40, deadline=None)


def test_the_module_is_pure() -> None:
    assert not {"socket", "time", "os", "threading"} & set(vars(decisions))


# --- addresses that would lead others to themselves ----------------------------------------------


@pytest.mark.parametrize("has_data", [True, False])
def test_a_member_that_others_could_not_find_is_not_started(has_data):
    seen = Seen("n3", "http://127.0.0.1:7502", has_data=has_data, unreachable="why")
    assert decide(seen) == Refuse("why")


def test_a_survivor_may_recover_although_others_would_not_find_it():
    seen = Seen("n3", "http://127.0.0.1:7502", has_data=True, unreachable="why", recover=True)
    assert decide(seen) == Recover()
