"""What a node does next about its membership: pure functions of what was seen.

A node looks, decides one step, takes it, and looks again; nothing is remembered in between but what
lies on the disk and in the cluster's list of members. So a crash between any two steps is nothing
special: the next look finds what is half done, and the decision goes on from there. The rules:

- Nothing is changed in a cluster that a majority has not confirmed.
- A member comes in as a learner, which has no vote, and there is only one learner at a time.
- A listed member without its data is never started: what it acknowledged before is gone, and the
  others count on it. Its entry is removed and the node joins as a new member.
- An entry is removed only if those that stay have a majority that is well.
- A member is one process. Data whose member runs elsewhere is a copy, and is not started.
- A cluster is made only where nothing hints at one that is there already.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from urllib.parse import urlsplit

# A learner that nobody hears blocks all who want to join; it costs the cluster nothing to remove
# it, and a learner that is removed while it lives joins anew by itself.
LEARNER_SILENT_S = 60.0
# Someone else may have our name by mistake and be away for a reboot.
NAMESAKE_SILENT_S = 60.0


@dataclass(frozen=True)
class MemberSeen:
    """A member as listed, and whether it answers."""

    id: int
    name: str
    peer_urls: tuple[str, ...]
    client_urls: tuple[str, ...] = ()
    learner: bool = False
    healthy: bool = False
    leader: bool = False
    silent_s: float = 0.0  # for how long we have heard nothing of it

    @property
    def called(self) -> str:
        """By its name; one that was never started has none."""
        return self.name or (self.peer_urls[0] if self.peer_urls else f"{self.id:x}")


@dataclass(frozen=True)
class ClusterSeen:
    """The members as a majority has confirmed them."""

    id: int
    members: tuple[MemberSeen, ...]


@dataclass(frozen=True)
class Seen:
    """All that a member's start is decided by."""

    name: str
    peer_url: str
    has_data: bool = False
    own_id: int = 0  # which member the data is of; 0: not known
    own_cluster_id: int = 0
    displaced: bool = False  # the address that our files name is no address of this machine
    unusable: str = ""  # etcd's words, when it was removed or cannot read the data
    left: bool = False
    unreachable: str = ""  # why others would not find it where it says that it is
    recover: bool = False
    may_initialise: bool = False
    knew_others: bool = False  # this node was once in a cluster with others
    sources: tuple[str, ...] = ()  # whom it can ask for the cluster
    answering: tuple[str, ...] = ()  # who of them answers
    callers: tuple[str, ...] = ()  # members of a cluster that take this node for one of them
    cluster: ClusterSeen | None = None
    meeting: Meeting | None = None  # with discover, as long as there is no cluster


@dataclass(frozen=True)
class Meeting:
    """Nodes that find each other through a name while there is no cluster; see oj.etcd.discovery.

    `views` has what each other node that waits has said: the addresses that it knows.
    """

    own: str
    known: tuple[str, ...]  # all addresses, in the order that decides who makes the cluster
    views: dict[str, tuple[str, ...]] = field(default_factory=dict)
    unchanged_s: float = 0.0
    expected: int = 1
    settle_s: float = 5.0


# Steps


@dataclass(frozen=True)
class Start:
    """On its data."""


@dataclass(frozen=True)
class Initialise:
    """A new cluster of this member alone."""


@dataclass(frozen=True)
class Recover:
    """A new cluster of this member alone, with its data."""


@dataclass(frozen=True)
class Add:
    """This node as a learner; then it starts empty."""


@dataclass(frozen=True)
class Remove:
    member: MemberSeen
    why: str
    rest: tuple[MemberSeen, ...]  # who stays


@dataclass(frozen=True)
class SetAside:
    """The data, so that the node can join anew."""

    why: str


@dataclass(frozen=True)
class Wait:
    why: str


@dataclass(frozen=True)
class Refuse:
    """To start at all: the operator has to decide."""

    why: str


Step = Start | Initialise | Recover | Add | Remove | SetAside | Wait | Refuse


def decide(seen: Seen) -> Step:
    """The next step of a member that is not running."""
    if seen.recover:
        return decide_recovery(seen)
    if seen.left:
        return Refuse(
            "this node has left the cluster; to come back: oj setup judicator --join HOST"
        )
    if seen.unreachable:
        return Refuse(seen.unreachable)
    if seen.has_data:
        return decide_with_data(seen)
    if seen.cluster is not None:
        return decide_join(seen, seen.cluster)
    if seen.answering:
        return Wait(f"{', '.join(seen.answering)} answers, but its cluster has no majority")
    if seen.callers:
        return Wait(
            f"members of a cluster call this node ({', '.join(seen.callers)}), whose data is gone, "
            "but none of them has a majority"
        )
    if seen.knew_others:
        return Wait(f"the data is gone, and none of {', '.join(seen.sources)} answers")
    if seen.meeting is not None:
        return decide_meeting(seen.meeting)
    if seen.may_initialise:
        return Initialise()
    return Wait(f"none of {', '.join(seen.sources)} answers")


def decide_recovery(seen: Seen) -> Step:
    if not seen.has_data:
        return Refuse("nothing to recover: there is no data")
    if seen.answering:
        return Refuse(
            f"not recovered: {', '.join(seen.answering)} answers; "
            "stop oj-etcd there first, or let this node go on with it"
        )
    return Recover()


def decide_with_data(seen: Seen) -> Step:
    """Data is set aside only when a majority lives without it: joining anew brings it back."""
    cluster = seen.cluster
    if cluster is None or seen.own_cluster_id not in (0, cluster.id):
        return Start()
    if original := find_original(seen, cluster):
        return Refuse(
            f"the data here is a copy of {original.called}'s, which runs at "
            f"{show_place(original)}: {say_how_to_join(original)}"
        )
    if seen.own_id and all(member.id != seen.own_id for member in cluster.members):
        return SetAside("this member was removed from its cluster")
    if seen.unusable:
        return SetAside(f"the data is of no use ({seen.unusable})")
    return Start()


def find_original(seen: Seen, cluster: ClusterSeen) -> MemberSeen | None:
    """The member that our data is of, if it runs, which cannot be here: our own etcd does not."""
    for member in cluster.members:
        elsewhere = seen.displaced or seen.peer_url not in member.peer_urls
        if member.id == seen.own_id != 0 and elsewhere and answers(member):
            return member
    return None


def answers(member: MemberSeen) -> bool:
    """Whether it was heard itself; one that was never started is only guessed at."""
    return member.healthy and bool(member.name and member.client_urls)


def show_place(member: MemberSeen) -> str:
    return urlsplit(next(iter(member.client_urls), "")).netloc


def say_how_to_join(member: MemberSeen) -> str:
    host = urlsplit(next(iter(member.client_urls), "")).hostname
    return (
        "make this node one of its own, with what it has set aside: "
        f"oj setup judicator --join {host} --name NAME --set-data-aside"
    )


def decide_join(seen: Seen, cluster: ClusterSeen) -> Step:
    """For a node without data: first the way is cleared, then it is added."""
    for member in cluster.members:
        if seen.peer_url in member.peer_urls and answers(member):
            return Wait(
                f"{member.called} runs at {show_place(member)}, which etcd.conf names as the "
                f"address of this node: {say_how_to_join(member)}"
            )
        if seen.peer_url in member.peer_urls:
            return remove_or_wait(
                cluster, member, "it is this node's, and its data is not here", seen.name
            )
    for member in cluster.members:
        if member.name == seen.name:
            where = ", ".join(member.peer_urls)
            if member.healthy:
                return Wait(
                    f"there is a member {seen.name} at {where} already; "
                    "give this node another name in etcd.conf"
                )
            if member.silent_s < NAMESAKE_SILENT_S:
                return Wait(f"member {seen.name} is listed at {where}; seeing whether it is gone")
            return remove_or_wait(
                cluster, member, f"this node has its name, and {where} is silent", seen.name
            )
    for member in cluster.members:
        if member.learner:
            if not member.healthy and member.silent_s >= LEARNER_SILENT_S:
                return remove_or_wait(
                    cluster, member, "it began to join and is silent", member.called
                )
            return Wait(f"{member.called} is joining; one at a time")
    return Add()


def remove_or_wait(cluster: ClusterSeen, member: MemberSeen, why: str, name: str) -> Remove | Wait:
    hindrance = find_hindrance(cluster.members, member)
    if hindrance:
        return Wait(f"the entry of {name} cannot be removed yet: {hindrance}")
    return Remove(member, why, tuple(one for one in cluster.members if one.id != member.id))


def find_hindrance(members: Sequence[MemberSeen], leaving: MemberSeen) -> str | None:
    """Why a member must not be removed now; None when it may.

    The rule is of those that stay: a majority of them must be well. That it is also enough to
    make the change now follows: one that is not well does not help to make it either.
    """
    voters = [member for member in members if not member.learner]
    staying = [member for member in voters if member.id != leaving.id]
    if not staying:
        return f"{leaving.called} is the last member"
    well = [member for member in staying if member.healthy]
    well_now = len(well) + (leaving.healthy and not leaving.learner)
    if well_now < len(voters) // 2 + 1:
        return f"only {well_now} of {len(voters)} members are well, which is no majority"
    if len(well) < len(staying) // 2 + 1:
        return (
            f"only {len(well)} of the {len(staying)} members that would stay are well, "
            "which is no majority"
        )
    return None


def decide_meeting(meeting: Meeting) -> Initialise | Wait:
    """Who makes the cluster, when all that are known are there and agree on who that is."""
    names = ", ".join(meeting.known)
    if meeting.own not in meeting.known:
        return Wait(
            f"no member answers at {names or 'any address'}, and this node ({meeting.own}) "
            "is not one of them, so that it makes no cluster"
        )
    if len(meeting.known) < meeting.expected:
        return Wait(f"only {len(meeting.known)} of {meeting.expected} nodes are known: {names}")
    for address in meeting.known:
        if address != meeting.own and address not in meeting.views:
            return Wait(
                f"no member answers, and nothing is heard of {address}, which may have a cluster; "
                "start oj-etcd there, or take it out of the name"
            )
    for address, view in meeting.views.items():
        if sorted(view) != sorted(meeting.known):
            return Wait(f"{address} knows other nodes ({', '.join(view)}) than this one ({names})")
    if meeting.own != meeting.known[0]:
        return Wait(f"{meeting.known[0]} is to make the cluster")
    if meeting.unchanged_s < meeting.settle_s:
        return Wait(f"about to make a cluster for {names}")
    return Initialise()
