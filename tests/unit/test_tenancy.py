"""Who has an executor's name when several processes report under it."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from oj import incarnation
from oj.judicator.tenancy import (
    ASKING_MS,
    GIVE_BACK_MS,
    GRACE_MS,
    KEPT_MS,
    PATIENCE_MS,
    RIVALS_KEPT,
    Claim,
    Tenancy,
    decide,
)

HERE, THERE = "10.0.0.5", "10.0.0.6"
FIRST, COPY, OTHER = "aa.1", "aa.2", "bb.1"


class Name:
    """One executor's name as it is stored, and a clock."""

    def __init__(self, holder: str, address: str = HERE, wait_s: float = 20.0) -> None:
        self.now_ms = 1_000_000
        self.numbers: dict[str, int] = {}
        self.stored = Tenancy(holder, address, self.now_ms, wait_s)

    def report(self, process: str, address: str, after_ms: int = 0, *, heard: bool = True) -> bool:
        """A report; whether its process has the name. `heard`: it was told of its last one."""
        self.now_ms += after_ms
        number = self.numbers[process] = self.numbers.get(process, 0) + 1
        claim = Claim(process, address, number, number - 1 if heard else 0)
        self.stored = decide(self.stored, claim, self.now_ms)
        held = self.stored.incarnation == process
        if held:
            self.stored = replace(self.stored, reported_ms=self.now_ms, wait_s=20.0)
        return held

    def ask(self, process: str, address: str, for_ms: int) -> bool:
        """As executors that are refused do, for so long."""
        end_ms = self.now_ms + for_ms
        while self.now_ms < end_ms:
            if self.report(process, address, 1_500):
                return True
        return False


def test_another_installation_is_refused_while_the_first_reports() -> None:
    name = Name(FIRST)
    for _ in range(100):
        assert not name.report(OTHER, THERE, 1_500)
        assert name.report(FIRST, HERE, 500)
    [rival] = name.stored.rivals
    assert (rival.incarnation, rival.address) == (OTHER, THERE)


def test_another_installation_comes_in_once_the_first_is_gone() -> None:
    name = Name(FIRST)
    assert not name.report(OTHER, THERE)
    assert name.report(FIRST, HERE, 1_000)
    last_ms = name.now_ms
    assert name.ask(OTHER, THERE, 60_000)
    # Long before the end of the wait that the first had announced.
    assert PATIENCE_MS <= name.now_ms - last_ms <= PATIENCE_MS + 1_500
    assert not name.stored.rivals
    # And the first is the one that is refused when it comes back.
    assert not name.report(FIRST, HERE, 100)
    assert name.report(OTHER, THERE, 100)


def test_one_that_is_silent_is_replaced_at_once() -> None:
    name = Name(FIRST, wait_s=2.0)
    assert not name.report(OTHER, THERE, 2_000 + GRACE_MS)
    assert name.report(COPY, HERE, 1)
    name = Name(FIRST, wait_s=2.0)
    assert name.report(OTHER, THERE, 2_001 + GRACE_MS)


def test_an_outage_of_the_judicators_does_not_count_against_the_first() -> None:
    name = Name(FIRST)
    assert not name.report(OTHER, THERE)
    assert not name.report(OTHER, THERE, max(ASKING_MS, PATIENCE_MS) + 1)
    assert name.report(FIRST, HERE, 2_000)


@pytest.mark.parametrize("address", [HERE, THERE])
def test_a_restart_takes_over_at_once(address: str) -> None:
    name = Name(FIRST)
    assert name.report(COPY, address)
    # What the old process sent before it ended and comes late does not bring it back.
    assert not name.report(FIRST, HERE, heard=False)
    assert not name.report(FIRST, HERE, heard=False)
    assert name.report(COPY, address, 100)


def test_the_first_of_two_copies_has_its_name_back() -> None:
    name = Name(FIRST)
    assert name.report(COPY, THERE)
    assert not name.report(FIRST, HERE, 300, heard=False)
    assert name.report(FIRST, HERE, 1_500)
    assert not name.ask(COPY, THERE, 3_000), "and the copy does not get it back in turn"
    assert name.report(FIRST, HERE)
    # Nor by a start of the copy anew.
    assert not name.report("aa.3", THERE, 500)
    assert name.report(FIRST, HERE, 500)
    # But a restart of the first comes in as ever.
    assert name.report("aa.4", HERE, 500)
    # And when that is gone, the copy.
    assert name.ask(COPY, THERE, 60_000)


def test_the_first_has_its_name_back_when_the_copy_was_started_anew_meanwhile() -> None:
    name = Name(FIRST)
    assert name.report(COPY, THERE)
    assert not name.report(FIRST, HERE, 300, heard=False)
    assert name.report("aa.3", THERE, 500)
    assert name.report(FIRST, HERE, 1_000)
    assert not name.ask("aa.3", THERE, 3_000)
    assert name.report(FIRST, HERE)
    # Also when it comes before the first has been refused once, and comes again and again.
    name = Name(FIRST)
    for number in range(20):
        assert name.report(f"aa.c{number}", THERE, 200)
    assert not name.report(FIRST, HERE, 200, heard=False)
    assert name.report(FIRST, HERE, 1_500)
    assert not name.report("aa.c19", THERE, 200) and not name.report("aa.c20", THERE, 200)
    assert name.report(FIRST, HERE)


def test_of_three_copies_that_all_live_the_first_has_the_name_in_the_end() -> None:
    name = Name(FIRST)
    assert name.report(COPY, THERE) and name.report("aa.3", "10.0.0.7", 100)
    assert not name.report(COPY, THERE, 100, heard=False)
    assert not name.report(FIRST, HERE, 100, heard=False)
    assert name.report(COPY, THERE, 1_000), "it was there before the third"
    assert name.report(FIRST, HERE, 100)
    for _ in range(20):
        assert not name.report("aa.3", "10.0.0.7", 500) and not name.report(COPY, THERE, 500)
        assert name.report(FIRST, HERE, 500)


@pytest.mark.parametrize("address", [HERE, THERE])
def test_a_copy_that_is_started_over_and_over_has_the_name_once(address: str) -> None:
    name = Name(FIRST)
    assert name.report("aa.c0", address)
    # It ends before it hears that it is refused.
    assert not name.report(FIRST, HERE, 300, heard=False)
    assert name.report(FIRST, HERE, 1_500)
    for number in range(1, 20):
        # As systemd starts it, later than one that is refused would ask.
        for _ in range(ASKING_MS // 1_000 * 4):
            assert name.report(FIRST, HERE, 1_000)
        assert not name.report(f"aa.c{number}", address)
    # Once it has not come for long, whatever comes is a restart again.
    for _ in range(KEPT_MS // 1_000):
        assert name.report(FIRST, HERE, 1_000)
    assert name.report("aa.5", address, 1_000)


def test_a_restart_where_a_copy_was_comes_in_once_the_first_is_gone() -> None:
    name = Name(FIRST)
    assert name.report(COPY, HERE)
    assert not name.report(FIRST, HERE, 300, heard=False)
    assert name.report(FIRST, HERE, 1_500)
    last_ms = name.now_ms
    assert not name.report("aa.3", HERE, 500)
    assert name.ask("aa.3", HERE, 60_000)
    assert name.now_ms - last_ms <= PATIENCE_MS + 2_000


def test_restarts_that_follow_each_other_all_come_in_at_once() -> None:
    """Where no copy has shown that it lives, what comes late of those that ended is no rival."""
    name = Name(FIRST)
    for number in range(30):
        assert name.report(f"aa.r{number}", HERE, 2_000)
        late = f"aa.r{number - 1}" if number else FIRST
        assert not name.report(late, HERE, 50, heard=False)


def test_one_that_slept_for_long_does_not_take_its_name_back() -> None:
    name = Name(FIRST)
    assert name.report(COPY, THERE)
    for _ in range(GIVE_BACK_MS // 1_000):
        assert name.report(COPY, THERE, 1_000)
    # A restart since then gives it no more time.
    assert name.report("aa.3", THERE, 1)
    for _ in range(20):
        assert not name.report(FIRST, HERE, 1_500)
        assert name.report("aa.3", THERE, 1)


def test_where_the_installation_is_not_known_the_newest_stays() -> None:
    name = Name("1111")
    assert name.report("2222", THERE)
    for _ in range(20):
        assert not name.report("1111", HERE, 1_500)
        assert name.report("2222", THERE, 1)
    assert not name.report("3333", HERE, 100), "a restart of the one that is refused"
    assert name.report("4444", THERE, 100), "a restart of the one that has the name"
    assert name.report(FIRST, THERE, 100), "an upgrade"


def test_who_asks_no_more_is_forgotten_and_no_more_than_a_few_are_kept() -> None:
    name = Name(FIRST)
    for number in range(3 * RIVALS_KEPT):
        assert not name.report(f"b{number}.1", THERE, 10)
    assert len(name.stored.rivals) == RIVALS_KEPT
    for _ in range(KEPT_MS // 1_000 + 1):
        assert name.report(FIRST, HERE, 1_000)
    assert not name.report(OTHER, THERE)
    assert [rival.incarnation for rival in name.stored.rivals] == [OTHER]


@pytest.mark.parametrize("seed", range(200))
def test_while_one_lives_no_copy_and_no_other_keeps_its_name(seed: int) -> None:
    """Whatever comes under its name, the first has it back within seconds, for good."""
    rng = random.Random(seed)
    name = Name(FIRST)
    processes = {"aa.1": HERE, "aa.2": THERE, "bb.1": rng.choice([HERE, THERE]), "aa.3": HERE}
    begun = ["aa.1"]
    out_ms = 0
    for _ in range(400):
        if len(begun) < len(processes) and rng.random() < 0.05:
            begun.append(next(one for one in processes if one not in begun))
        before_ms = name.now_ms
        order = rng.sample(begun, len(begun))
        for one in order:
            name.report(one, processes[one], rng.randrange(400))
        out_ms = 0 if name.stored.incarnation == FIRST else out_ms + name.now_ms - before_ms
        assert out_ms < 5_000
    assert name.stored.incarnation == FIRST


def test_an_incarnation_tells_its_installation() -> None:
    one, two = incarnation.make("ab12"), incarnation.make("ab12")
    assert one != two
    assert incarnation.installation_of(one) == incarnation.installation_of(two) == "ab12"
    assert incarnation.installation_of("0123456789abcdef") == ""
    assert "10.0.0.5 and 10.0.0.6" in incarnation.say_runs_twice("e1", HERE, [THERE, HERE])
    assert "twice at 10.0.0.5" in incarnation.say_runs_twice("e1", HERE, [HERE])
