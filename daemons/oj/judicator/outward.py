"""What only gateways ask for: events, history, tokens, webhooks; read, checked, and written."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from typing import Any

from oj import model
from oj.errors import Rejected
from oj.judicator import wire
from oj.judicator.store.gateways import Gateways
from oj.judicator.store.happenings import Happening, Happenings
from oj.judicator.store.history import History, Minute
from oj.judicator.store.hooks import Hooks
from oj.judicator.store.tokens import ROLES, Token, Tokens
from oj.judicator.store.uploads import Uploads
from oj.rpc import ttypes as rpc
from oj.settings import is_loopback

MOST_HOOKS = 100
MOST_QUOTA = 1_000_000


class Outward:
    def __init__(
        self,
        happenings: Happenings,
        history: History,
        tokens: Tokens,
        uploads: Uploads,
        hooks: Hooks,
        gateways: Gateways,
    ) -> None:
        self._happenings = happenings
        self._history = history
        self._tokens = tokens
        self._uploads = uploads
        self._hooks = hooks
        self._gateways = gateways

    # --------------------------------------------------------------- presence

    def announce(self, gateway: Any, leaving: bool, host: str) -> None:
        """`host`: from where it calls, for one that listens on every address."""
        if gateway is None:
            raise Rejected("gateway is missing", "gateway")
        name = model.check_node(gateway.name, "gateway.name")
        process = model.check_word(gateway.process or "", "gateway.process", empty=True)
        if leaving:
            self._gateways.remove(name, process)
            return
        address = model.check_word(gateway.address or "", "gateway.address", empty=True)
        for everywhere in ("0.0.0.0:", "[::]:"):
            if address.startswith(everywhere):
                shown = f"[{host}]" if ":" in host else host
                address = f"{shown}:{address.removeprefix(everywhere)}"
        version = model.check_word(gateway.version or "", "gateway.version", empty=True)
        # Behind nginx every gateway has the same address.
        local = is_loopback(address.rpartition(":")[0].strip("[]"))
        place = f"{host} ({address})" if local else address
        self._gateways.note(name, address, version, process, place)

    # ---------------------------------------------------------------- events

    def events(self, cursor: str, wait_s: float, limit: int) -> rpc.Events:
        news = self._happenings.read(cursor, wait_s, limit)
        return rpc.Events(
            events=[_write_event(happening) for happening in news.happenings],
            cursor=news.cursor,
            gap=news.gap or None,
        )

    def history(self, since_ms: int) -> list[rpc.Minute]:
        if since_ms < 0:
            raise Rejected("since is negative", "since")
        return [_write_minute(minute) for minute in self._history.read(since_ms)]

    # ---------------------------------------------------------------- tokens

    def add_token(self, token: Any, digest: Any) -> rpc.Token:
        return _write_token(self._tokens.add(_read_token(token), _check_hash(digest)))

    def find_token(self, digest: Any) -> rpc.Token:
        return _write_token(self._tokens.find(_check_hash(digest)), secret=True)

    def list_tokens(self) -> list[rpc.Token]:
        return [_write_token(token) for token in self._tokens.list_all()]

    def remove_token(self, token_id: Any) -> None:
        self._tokens.remove(model.check_word(token_id, "id"))

    def spend(self, token_id: Any, tasks: Any) -> rpc.Quota:
        if not isinstance(tasks, int) or not 0 <= tasks <= model.MAX_TASKS:
            raise Rejected(f"tasks must be between 0 and {model.MAX_TASKS}", "tasks")
        spent = self._tokens.spend(model.check_word(token_id, "id"), tasks)
        return rpc.Quota(allowed=spent.allowed, left=spent.left, reset_ms=spent.reset_ms)

    def store(self, user: Any, amount_bytes: Any, most_bytes: Any) -> rpc.Quota:
        for value, field in ((amount_bytes, "bytes"), (most_bytes, "most_bytes")):
            if not isinstance(value, int) or not 0 <= value <= model.MOST_STORED_BYTES:
                raise Rejected(f"{field} must be between 0 and {model.MOST_STORED_BYTES}", field)
        taken = self._uploads.take(model.check_word(user, "user"), amount_bytes, most_bytes)
        return rpc.Quota(
            allowed=taken.allowed, left_bytes=taken.left_bytes, reset_ms=taken.reset_ms
        )

    # -------------------------------------------------------------- webhooks

    def claim_hooks(
        self, limit: int, busy_users: Sequence[str], busy_receivers: Sequence[str]
    ) -> list[rpc.Hook]:
        hooks = self._hooks.claim(
            max(1, min(limit, MOST_HOOKS)), busy_users[:MOST_HOOKS], busy_receivers[:MOST_HOOKS]
        )
        if not hooks:
            return []
        signed = self._tokens.find_secrets({hook.token for hook in hooks if hook.token})
        return [
            rpc.Hook(
                task=wire.write_info(hook.record),
                url=hook.url,
                attempt=hook.attempt,
                secret=signed.get(hook.token),
            )
            for hook in hooks
        ]

    def finish_hook(self, task_id: Any, attempt: Any, delivered: bool, message: Any) -> None:
        if not isinstance(attempt, int) or attempt < 1:
            raise Rejected("attempt is not the number of a call", "attempt")
        self._hooks.finish(
            model.check_id(task_id), attempt, delivered=delivered, message=message or ""
        )


def _check_hash(digest: Any) -> str:
    return model.check_digest(digest, "hash")


def _read_token(token: Any) -> Token:
    if token is None:
        raise Rejected("token is missing", "token")
    roles = frozenset(token.roles or ())
    if not roles or roles - ROLES:
        raise Rejected(f"token.roles needs some of {', '.join(sorted(ROLES))}", "token.roles")
    if token.quota is not None and not 0 <= token.quota <= MOST_QUOTA:
        raise Rejected(f"token.quota must be between 0 and {MOST_QUOTA}", "token.quota")
    if token.expires is not None and not 0 < token.expires <= 253_402_300_799_000:
        raise Rejected("token.expires is not a time", "token.expires")
    parent = None if token.parent is None else model.check_word(token.parent, "token.parent")
    return Token(
        id="",
        name=model.check_word(token.name or "", "token.name"),
        user=model.check_word(token.user or "", "token.user", empty=True),
        roles=roles,
        quota=token.quota,
        made_ms=0,
        expires_ms=token.expires,
        parent=parent,
        webhook_secret=None if parent else secrets.token_hex(32),
    )


def _write_token(token: Token, *, secret: bool = False) -> rpc.Token:
    return rpc.Token(
        id=token.id,
        name=token.name,
        user=token.user,
        roles=set(token.roles),
        quota=token.quota,
        made=token.made_ms,
        expires=token.expires_ms,
        parent=token.parent,
        webhook_secret=token.webhook_secret if secret else None,
    )


def _write_event(happening: Happening) -> rpc.TaskEvent:
    return rpc.TaskEvent(
        cursor=happening.cursor,
        id=happening.id,
        status=None if happening.status is None else int(happening.status),
        verdict=None if happening.verdict is None else int(happening.verdict),
        tests_done=happening.tests_done,
        tests_total=happening.tests_total,
        user=happening.user,
        language=happening.language or None,
        time=happening.time_ms,
        executor=happening.executor or None,
        attempt=happening.attempt,
        score=happening.score,
    )


def _write_minute(minute: Minute) -> rpc.Minute:
    return rpc.Minute(
        time=minute.time_ms,
        added=minute.added,
        ended={int(status): count for status, count in minute.ended.items()},
        verdicts={int(verdict): count for verdict, count in minute.verdicts.items()},
        waiting=list(minute.waiting),
        judging=list(minute.judging),
    )
