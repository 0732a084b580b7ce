"""The replica-set plan: tables for the rules, generated histories for the invariants."""

from __future__ import annotations

from collections.abc import Collection

from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from oj.mongodb.plan import (
    MOST_VOTERS,
    Change,
    Member,
    free_id,
    keeps_majority,
)
from oj.mongodb.plan import next_change as plan_change


def voters(*hosts: str) -> tuple[Member, ...]:
    return tuple(Member(number, host, True) for number, host in enumerate(hosts))


def next_change(
    members: Collection[Member], wanted: Collection[str], up: Collection[str], me: str
) -> Change | None:
    """Where everyone who is up has caught up."""
    return plan_change(members, wanted, up, up, me)


def hosts(change: Change | None, votes: bool | None = None) -> set[str]:
    assert change is not None
    return {m.host for m in change.members if votes is None or m.votes == votes}


def test_a_set_that_is_as_registered_stays() -> None:
    assert next_change(voters("a", "b"), {"a", "b"}, {"a", "b"}, "a") is None


def test_a_newcomer_comes_without_a_vote_and_votes_when_it_has_caught_up() -> None:
    added = next_change(voters("a"), {"a", "b"}, {"a"}, "a")
    assert hosts(added, votes=False) == {"b"}
    assert added is not None
    assert next_change(added.members, {"a", "b"}, {"a"}, "a") is None
    promoted = next_change(added.members, {"a", "b"}, {"a", "b"}, "a")
    assert hosts(promoted, votes=True) == {"a", "b"}


def test_who_is_up_but_lags_gets_no_vote_yet() -> None:
    members = (*voters("a"), Member(1, "b", False))
    assert plan_change(members, {"a", "b"}, {"a", "b"}, {"a"}, "a") is None
    assert plan_change(members, {"a", "b"}, {"a", "b"}, {"a", "b"}, "a") is not None


def test_the_eighth_member_has_no_vote_until_a_voter_leaves() -> None:
    names = "abcdefg"
    members = (*voters(*names), Member(7, "h", False))
    up = set(names) | {"h"}
    assert next_change(members, {*names, "h"}, up, "a") is None
    removed = next_change(members, {*names[:-1], "h"}, up, "a")
    assert hosts(removed) == set("abcdefh")
    assert removed is not None
    promoted = next_change(removed.members, {*names[:-1], "h"}, up, "a")
    assert hosts(promoted, votes=True) == set("abcdefh")


def test_an_unregistered_member_goes_the_dead_ones_first() -> None:
    change = next_change(voters("a", "b", "c"), {"a"}, {"a", "b"}, "a")
    assert hosts(change) == {"a", "b"}


def test_a_removal_that_would_cost_the_majority_is_not_made() -> None:
    # b is up but unregistered, c is registered but down: without b, a alone of two is no majority.
    assert next_change(voters("a", "b", "c"), {"a", "c"}, {"a", "b"}, "a") is None


def test_nobody_is_removed_when_the_registry_has_forgotten_the_primary_too() -> None:
    assert next_change(voters("a", "b", "c"), set(), {"a", "b", "c"}, "a") is None
    assert next_change(voters("a", "b", "c"), {"b"}, {"a", "b", "c"}, "a") is None


def test_a_node_with_a_new_address_is_added_before_anything_else_happens_to_the_rest() -> None:
    members = voters("a", "b", "c")
    registered = {"a", "b", "c2"}
    change = next_change(members, registered, {"a", "b"}, "a")
    assert hosts(change) == {"a", "b"}  # the old address is down and goes
    assert change is not None
    change = next_change(change.members, registered, {"a", "b"}, "a")
    assert hosts(change, votes=False) == {"c2"}


def test_ids_are_not_used_again_while_there_are_others() -> None:
    assert free_id(voters("a", "b")) == 2
    assert free_id([Member(255, "a", True), Member(0, "b", True)]) == 1
    assert free_id([]) == 0


HOSTS = [f"h{number}" for number in range(10)]
SOME = st.sets(st.sampled_from(HOSTS))


def demand_rules(
    members: Collection[Member],
    change: Change,
    wanted: Collection[str],
    up: Collection[str],
    me: str,
) -> None:
    """What holds for any change, whatever the set was like."""
    before = {member.id: member for member in members}
    after = {member.id: member for member in change.members}
    assert change.members != tuple(members)
    assert len(after) == len({member.host for member in change.members}) == len(change.members)
    assert me in hosts(change), "the primary removed itself"
    assert keeps_majority(change.members, up), "it took its own majority away"
    voted = {member.id for member in members if member.votes}
    vote = {member.id for member in change.members if member.votes}
    assert len(voted ^ vote) <= 1, "more than one vote at a time"
    assert len(vote) <= max(MOST_VOTERS, len(voted))
    for number in before.keys() - after.keys():
        assert me in wanted
        assert before[number].host not in wanted
    for number in after.keys() - before.keys():
        assert after[number].host in wanted
        assert not after[number].votes, "a newcomer voted"
    for number in before.keys() & after.keys():
        assert after[number].host == before[number].host


@given(
    now=st.lists(
        st.tuples(st.sampled_from(HOSTS), st.booleans()), min_size=1, unique_by=lambda pair: pair[0]
    ),
    wanted=SOME,
    up=SOME,
    current=SOME,
)
@settings(max_examples=500)
def test_any_single_change_keeps_the_rules(
    now: list[tuple[str, bool]], wanted: set[str], up: set[str], current: set[str]
) -> None:
    me = now[0][0]
    members = tuple(
        Member(number, host, votes or number == 0) for number, (host, votes) in enumerate(now)
    )
    up = up | {me}
    change = plan_change(members, wanted, up, current & up, me)
    if change is not None:
        demand_rules(members, change, wanted, up, me)
        for member in change.members:
            if member.votes and member not in members:
                assert member.host in current


class Life(RuleBasedStateMachine):
    """A cluster of ten hosts that come, go, die, return and lag, whoever is primary.

    A change may also fail to reach the others before the primary is lost; that is a history in
    which the change was not made, so it needs no rule of its own.
    """

    def __init__(self) -> None:
        super().__init__()
        self.members = voters("h0")
        self.registered = {"h0"}
        self.alive = {"h0"}
        self.behind: set[str] = set()  # who has yet to catch up
        self.me: str | None = "h0"

    @property
    def up(self) -> set[str]:
        return {m.host for m in self.members if m.host in self.alive}

    def elect(self) -> None:
        """Some live voter that has caught up is primary, if a majority is up."""
        able = [m.host for m in self.members if m.votes and m.host in self.up - self.behind]
        if not keeps_majority(self.members, self.up):
            self.me = None
        elif self.me not in able:
            self.me = able[0] if able else None

    def take_step(self) -> bool:
        assert self.me is not None
        change = plan_change(self.members, self.registered, self.up, self.up - self.behind, self.me)
        if change is None:
            return False
        demand_rules(self.members, change, self.registered, self.up, self.me)
        self.behind |= hosts(change) - {member.host for member in self.members}
        self.members = change.members
        assert keeps_majority(self.members, self.up)
        return True

    @rule(host=st.sampled_from(HOSTS))
    def comes(self, host: str) -> None:
        self.alive.add(host)
        self.registered.add(host)
        self.elect()

    @rule(host=st.sampled_from(HOSTS))
    def dies(self, host: str) -> None:
        self.alive.discard(host)
        self.elect()

    @rule(host=st.sampled_from(HOSTS))
    def is_forgotten(self, host: str) -> None:
        """Its lease has run out, or it has left, or was removed by hand."""
        self.registered.discard(host)

    @rule()
    def catch_up(self) -> None:
        self.behind -= self.alive
        self.elect()

    @rule(host=st.sampled_from(HOSTS))
    def hands_over(self, host: str) -> None:
        if any(m.host == host and m.votes for m in self.members) and host in self.up - self.behind:
            self.me = host if self.me else None

    @precondition(lambda self: self.me is not None)
    @rule(steps=st.integers(1, 5))
    def primary_acts(self, steps: int) -> None:
        for _ in range(steps):
            if not self.take_step():
                break

    @invariant()
    def the_rules_of_mongodb_hold(self) -> None:
        assert 1 <= sum(member.votes for member in self.members) <= MOST_VOTERS

    def teardown(self) -> None:
        """When it is quiet and all are up, the set becomes what is registered, and stays so."""
        self.alive |= {member.host for member in self.members} | self.registered
        self.behind.clear()
        self.elect()
        assert self.me is not None
        self.registered.add(self.me)
        for _ in range(100):
            if not self.take_step():
                break
            self.behind.clear()
        assert {member.host for member in self.members} == self.registered
        votes = sum(member.votes for member in self.members)
        assert votes == min(MOST_VOTERS, len(self.registered))


TestLife = Life.TestCase
TestLife.settings = settings(max_examples=100, stateful_step_count=40)
