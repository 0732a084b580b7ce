"""What gateways ask of a judicator: events, history, tokens, webhooks."""

from __future__ import annotations

import hashlib
import threading
import time
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from executors import Caller, FakeExecutor, JudicatorUnderTest
from oj.gateway.presence import Presence
from oj.gateway.settings import load
from oj.judicator.store.history import STEPS, step_of
from oj.node import gateways
from oj.rpc import Judicator
from oj.rpc import ttypes as rpc
from servers import wait_until
from thrift_servers import ThriftServer

MakeExecutor = Callable[..., FakeExecutor]
MakeTask = Callable[..., Any]


def digest() -> str:
    return hashlib.sha256(uuid.uuid4().bytes).hexdigest()


def make_token(**fields: Any) -> Any:
    fields.setdefault("name", "test")
    fields.setdefault("user", "ann")
    fields.setdefault("roles", {"submit", "read"})
    return rpc.Token(**fields)


# ------------------------------------------------------------------- events


def read_events(caller: Caller, cursor: str, task: str, until: int) -> tuple[list[Any], str]:
    """The events of one task up to a status."""
    found: list[Any] = []
    deadline = time.monotonic() + 60
    while not any(event.status == until for event in found):
        assert time.monotonic() < deadline, found
        news = caller.events(cursor, 2000, 100)
        assert not news.gap
        found += [event for event in news.events if event.id == task]
        cursor = news.cursor
    return found, cursor


def test_events_tell_a_tasks_life_in_order(
    caller: Caller, executor: MakeExecutor, task: MakeTask, language: str
) -> None:
    begin = caller.events("", 0, 10)
    assert begin.events == [] and begin.cursor
    ex = executor()
    task_id = caller.add(task(user="eve"))
    [assignment] = ex.take()
    ex.report(executing=[ex.executing(assignment)])
    ex.report(complete=[ex.completed(assignment)])
    found, _ = read_events(caller, begin.cursor, task_id, rpc.Status.SUCCESS)
    statuses = [event.status for event in found]
    assert statuses[0] == rpc.Status.PENDING and statuses[-1] == rpc.Status.SUCCESS
    assert {(event.user, event.language, event.tests_total) for event in found} == {
        ("eve", language, 1)
    }
    assert found[-1].verdict == rpc.Verdict.ACCEPTED
    cursors = [event.cursor for event in found]
    assert cursors == sorted(cursors)


def test_events_go_on_after_a_cursor_at_another_judicator(
    judicator: JudicatorUnderTest,
    start_judicator: Callable[..., JudicatorUnderTest],
    caller: Caller,
    executor: MakeExecutor,
    task: MakeTask,
) -> None:
    executor()
    begin = caller.events("", 0, 10).cursor
    first = caller.add(task())
    caller.cancel(first)
    found, middle = read_events(caller, begin, first, rpc.Status.CANCELLED)
    second = caller.add(task())
    caller.cancel(second)
    other = start_judicator(name="j2", database=judicator.database, prefix=judicator.prefix)
    with Caller(other.port) as elsewhere:
        # Its memory begins now: what was before comes from the database's log.
        again, _ = read_events(elsewhere, begin, first, rpc.Status.CANCELLED)
        assert [event.cursor for event in again] == [event.cursor for event in found]
        later, _ = read_events(elsewhere, middle, second, rpc.Status.CANCELLED)
        assert [event.status for event in later] == [rpc.Status.PENDING, rpc.Status.CANCELLED]


def test_events_wait_for_the_first_and_are_woken(
    caller: Caller, executor: MakeExecutor, task: MakeTask
) -> None:
    executor()
    cursor = caller.events("", 0, 10).cursor
    quiet = caller.events(cursor, 200, 10)
    assert quiet.cursor >= cursor
    task_id = caller.add(task())
    found, _ = read_events(caller, quiet.cursor, task_id, rpc.Status.PENDING)
    assert len(found) == 1


@pytest.mark.parametrize("cursor", ["x", "ff", "0" * 40, "{}"])
def test_a_wrong_cursor_is_refused_or_told_as_a_gap(caller: Caller, cursor: str) -> None:
    try:
        assert caller.events(cursor, 0, 10).gap
    except rpc.InvalidRequest as error:
        assert error.field == "cursor"


# ------------------------------------------------------------------ history


def test_history_counts_what_was_added_and_ended(
    start_judicator: Callable[..., JudicatorUnderTest], task: MakeTask, language: str
) -> None:
    judicator = start_judicator()
    caller = judicator.call()
    ex = FakeExecutor(judicator.port, "ex", (language,))
    ex.report()
    begin_ms = int(time.time() * 1000) - 60_000
    for _ in range(3):
        caller.add(task())
    assignments = ex.take(2)
    ex.report(complete=[ex.completed(one) for one in assignments])

    def total() -> bool:
        minutes = caller.history(begin_ms)
        ended = sum(sum(minute.ended.values()) for minute in minutes)
        return sum(minute.added for minute in minutes) == 3 and ended == 2

    wait_until(total, 30, "the history of three added and two ended")
    minutes = caller.history(begin_ms)
    assert sum(sum(minute.waiting) for minute in minutes) == 2
    assert sum(sum(minute.judging) for minute in minutes) == 2
    assert all(len(minute.waiting) == STEPS == rpc_steps() for minute in minutes)
    ex.close()


def rpc_steps() -> int:
    from oj.rpc import constants

    return int(constants.HISTOGRAM_STEPS)


@pytest.mark.parametrize(
    ("duration_ms", "step"), [(-5, 0), (0, 0), (1, 1), (2, 2), (3, 2), (4, 3), (1 << 40, STEPS - 1)]
)
def test_a_duration_falls_into_the_step_that_bounds_it(duration_ms: int, step: int) -> None:
    assert step_of(duration_ms) == step


# ------------------------------------------------------------------- tokens


def test_a_token_is_found_by_its_hash_until_it_is_removed(caller: Caller) -> None:
    secret = digest()
    made = caller.addToken(make_token(quota=5), secret)
    assert made.id and made.webhook_secret is None
    found = caller.findToken(secret)
    assert (found.id, found.user, found.roles, found.quota) == (
        made.id,
        "ann",
        {"submit", "read"},
        5,
    )
    assert found.webhook_secret
    assert made.id in [token.id for token in caller.tokens()]
    assert all(token.webhook_secret is None for token in caller.tokens())
    caller.removeToken(made.id)
    with pytest.raises(rpc.NotFound):
        caller.findToken(secret)
    with pytest.raises(rpc.NotFound):
        caller.removeToken(made.id)


def test_adding_a_token_twice_gives_the_first(caller: Caller) -> None:
    secret = digest()
    assert caller.addToken(make_token(), secret).id == caller.addToken(make_token(), secret).id
    with pytest.raises(rpc.InvalidRequest):
        caller.addToken(make_token(user="somebody else"), secret)


def test_sessions_end_with_the_token_that_opened_them(caller: Caller) -> None:
    secret, session = digest(), digest()
    parent = caller.addToken(make_token(), secret)
    caller.addToken(make_token(parent=parent.id), session)
    assert caller.findToken(session).parent == parent.id
    assert all(token.parent is None for token in caller.tokens())
    caller.removeToken(parent.id)
    with pytest.raises(rpc.NotFound):
        caller.findToken(session)


def test_an_expired_token_is_no_token(caller: Caller) -> None:
    secret = digest()
    caller.addToken(make_token(expires=int(time.time() * 1000) - 1000), secret)
    with pytest.raises(rpc.NotFound):
        caller.findToken(secret)


def test_a_quota_is_spent_and_not_overdrawn(caller: Caller) -> None:
    limited = caller.addToken(make_token(quota=5), digest())
    first = caller.spend(limited.id, 3)
    assert (first.allowed, first.left) == (True, 2) and 0 < first.reset_ms <= 3_600_000
    assert not caller.spend(limited.id, 3).allowed
    assert caller.spend(limited.id, 2).left == 0
    unlimited = caller.addToken(make_token(), digest())
    assert caller.spend(unlimited.id, 1000).allowed
    with pytest.raises(rpc.NotFound):
        caller.spend("nobody", 1)


def test_what_a_user_has_stored_is_counted_by_the_day(caller: Caller) -> None:
    user = digest()
    first = caller.store(user, 60, 100)
    assert (first.allowed, first.left_bytes) == (True, 40) and 0 < first.reset_ms <= 86_400_000
    refused = caller.store(user, 41, 100)
    assert (refused.allowed, refused.left_bytes) == (False, 40)
    assert caller.store(user, 40, 100).left_bytes == 0
    assert caller.store(digest(), 100, 100).allowed
    with pytest.raises(rpc.InvalidRequest):
        caller.store(user, -1, 100)


@pytest.mark.parametrize(
    ("token", "field"),
    [
        (make_token(roles=set()), "token.roles"),
        (make_token(roles={"root"}), "token.roles"),
        (make_token(name=""), "token.name"),
        (make_token(user="a\nb"), "token.user"),
        (make_token(quota=-1), "token.quota"),
        (make_token(parent="nobody"), "parent"),
        (make_token(expires=1 << 62), "token.expires"),
    ],
)
def test_a_wrong_token_is_refused_by_field(caller: Caller, token: Any, field: str) -> None:
    with pytest.raises(rpc.InvalidRequest) as refused:
        caller.addToken(token, digest())
    assert refused.value.field == field


# ----------------------------------------------------------------- webhooks


def test_a_webhook_is_due_once_its_task_is_done(
    start_judicator: Callable[..., JudicatorUnderTest], task: MakeTask
) -> None:
    judicator = start_judicator()
    caller = judicator.call()
    token = caller.addToken(make_token(), secret := digest())
    task_id = caller.add(task(webhook="https://example.org/done", webhook_token=token.id))
    caller.add(task())
    assert caller.claimHooks(10, [], []) == []
    caller.cancel(task_id)
    [hook] = caller.claimHooks(10, [], [])
    assert (hook.task.id, hook.url, hook.attempt) == (task_id, "https://example.org/done", 1)
    assert hook.secret == caller.findToken(secret).webhook_secret
    assert caller.claimHooks(10, [], []) == [], "it is the first caller's for a minute"
    caller.finishHook(task_id, 1, False, "connection refused")
    assert caller.claimHooks(10, [], []) == [], "it pauses"
    caller.finishHook(task_id, 7, True, "")  # not the attempt under way
    second = wait_until(lambda: caller.claimHooks(10, [], []), 60, "the second attempt")
    assert second[0].attempt == 2
    caller.finishHook(task_id, 2, True, "")
    assert caller.claimHooks(10, [], []) == []


def test_webhooks_of_busy_users_and_receivers_are_passed_over(
    start_judicator: Callable[..., JudicatorUnderTest], task: MakeTask
) -> None:
    caller = start_judicator().call()
    urls = {
        "ann": "https://slow.example:8443/a",
        "bob": "https://slow.example:8443",
        "cid": "https://slow.example:84430/a",
        "dan": "https://Slow.Example:8443/x",
        "eve": "https://other.example/https://slow.example:8443/",
    }
    for user, url in urls.items():
        caller.cancel(caller.add(task(webhook=url, user=user)))
    claimed = caller.claimHooks(10, ["cid"], ["https://slow.example:8443"])
    assert [hook.task.user for hook in claimed] == ["eve"]
    assert sorted(hook.task.user for hook in caller.claimHooks(10, [], [])) == [
        "ann",
        "bob",
        "cid",
        "dan",
    ]


@pytest.mark.parametrize("url", ["ftp://x/", "http://", "javascript:alert(1)", "http://a b/", ""])
def test_a_webhook_that_is_no_address_is_refused(caller: Caller, task: MakeTask, url: str) -> None:
    with pytest.raises(rpc.InvalidRequest) as refused:
        caller.add(task(webhook=url))
    assert refused.value.field == "webhook"


# ----------------------------------------------------------------- gateways


def test_a_gateway_is_listed_from_when_it_says_so_until_it_leaves(caller: Caller) -> None:
    def listed() -> dict[str, Any]:
        return {one.name: one for one in caller.cluster().gateways}

    caller.announce(rpc.GatewayInfo("here", "127.0.0.1:7580", "9.9"), False)
    caller.announce(rpc.GatewayInfo("everywhere", "0.0.0.0:7580"), False)
    found = listed()
    assert (found["here"].address, found["here"].version) == ("127.0.0.1:7580", "9.9")
    assert found["everywhere"].address == "127.0.0.1:7580"  # from where it called
    assert not found["here"].silent and found["here"].report_time
    caller.announce(rpc.GatewayInfo("here"), True)
    assert "here" not in listed() and "everywhere" in listed()
    for wrong in (rpc.GatewayInfo("no name"), rpc.GatewayInfo("g", "x" * 10_000), None):
        with pytest.raises(rpc.InvalidRequest):
            caller.announce(wrong, False)


def test_a_gateways_daemon_says_that_it_serves_and_that_it_leaves(
    caller: Caller,
    judicator: JudicatorUnderTest,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("oj.gateway.presence.FAREWELL_S", 30.0)  # on a machine that stalls
    name = f"g-{uuid.uuid4().hex[:8]}"
    conf = tmp_path / "gateway.conf"
    conf.write_text(f"name = {name}\njudicators = 127.0.0.1:{judicator.port}\netcd = ,\n")

    def listed() -> bool:
        return name in {one.name for one in caller.cluster().gateways}

    with Presence(load(conf)):
        wait_until(listed, 30, "the gateway")
    assert not listed()
    # One that fails is missed, until somebody says, as `oj remove` does, that it is gone for good.
    with Presence(load(conf), in_order=lambda: False):
        wait_until(listed, 30, "the gateway")
    assert listed()
    gateways.forget(name, [("127.0.0.1", judicator.port)])
    assert not listed()


def test_a_gateways_good_bye_is_its_last_word(
    judicator: JudicatorUnderTest, tmp_path: Path
) -> None:
    """Or the word before, that it serves, would put it on the list again, for an hour."""
    told: list[bool] = []
    begun = threading.Event()

    class SlowJudicator:
        def announce(self, gateway: Any, leaving: bool) -> None:
            if not leaving:
                begun.set()
                time.sleep(2.0)
            told.append(leaving)

        def __getattr__(self, name: str) -> Any:
            return getattr(Caller(judicator.port), name)

    server = ThriftServer(Judicator.Processor(SlowJudicator()))
    conf = tmp_path / "gateway.conf"
    conf.write_text(f"name = slow\njudicators = 127.0.0.1:{server.port}\netcd = ,\n")
    with Presence(load(conf)):
        assert begun.wait(60)  # it is saying that it serves
    server.close()
    assert told == [False, True]


def test_two_gateways_of_one_name_are_told_from_one_that_was_started_again(caller: Caller) -> None:
    name = f"g-{uuid.uuid4().hex[:8]}"

    def announce(process: str, address: str, leaving: bool = False) -> None:
        caller.announce(rpc.GatewayInfo(name, address, process=process), leaving)

    def listed() -> Any:
        (found,) = [one for one in caller.cluster().gateways if one.name == name]
        return found

    def troubles() -> list[str]:
        return [one for one in caller.cluster().troubles if name in one]

    announce("1", "10.0.0.1:7580")
    announce("2", "10.0.0.1:7580")  # after a crash
    announce("2", "10.0.0.1:7580")
    assert listed().places is None and troubles() == []
    announce("3", "127.0.0.1:7580")  # behind nginx, on another machine
    announce("2", "10.0.0.1:7580")
    elsewhere, there = sorted(listed().places, key=lambda place: place.startswith("10."))
    assert there == "10.0.0.1:7580" and elsewhere.endswith(" (127.0.0.1:7580)")
    assert "runs twice" in troubles()[0]
    # One goes, and the other stays.
    announce("2", "10.0.0.1:7580", leaving=True)
    assert (listed().places, listed().address) == (None, "127.0.0.1:7580")
    announce("3", "127.0.0.1:7580", leaving=True)
    with pytest.raises(ValueError, match="not enough values"):
        listed()
