"""Who asks, and what he may: tokens, sessions, roles, and the guard in front of every call.

A request names its token in the Authorization header; a page has a session instead, a token of its
own that lives in a cookie which no script can read, and ends with the token that opened it.
A request with a cookie that changes something must also carry what only our own pages know
(X-CSRF-Token). Secrets are compared as hashes, at the judicators; nothing of them is logged.

Every view says what it needs with `needs(...)`; one that says nothing is refused, not open.
"""

from __future__ import annotations

import contextlib
import hashlib
import hmac
import re
import secrets
import threading
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, TypeVar

from flask import Blueprint, Flask, Response, current_app, g, jsonify, request

from oj.errors import Missing
from oj.gateway.addresses import find_client, is_in, is_loopback, network_of
from oj.gateway.app import judicators, settings
from oj.gateway.bodies import LOGIN_BYTES, read_body
from oj.gateway.limits import Counters, too_many
from oj.gateway.problems import Problem
from oj.gateway.reading import parse_json
from oj.rpc import ttypes as rpc

COOKIE = "oj_session"
# Over HTTPS: a browser takes it only from this host, with Secure, and not from a subdomain.
SECURE_COOKIE = "__Host-" + COOKIE
PREFIX = "oj_"
KNOWN_S = 5.0  # a removed token opens doors for this long at most
MOST_KNOWN = 10_000
LONGEST_SECRET = 200
RIGHT_S = 12 * 3600  # a token that was right is looked up for so long, whoever guesses beside it
UNSAFE = frozenset({"POST", "PUT", "PATCH", "DELETE"})
OPEN, ANYONE = "open", "anyone"
OPEN_TIMES = 4  # a page is a dozen of them, and there may be a whole class behind one address

V = TypeVar("V", bound=Callable[..., Any])
routes = Blueprint("session", __name__, url_prefix="/api/v1/session")


@dataclass(frozen=True)
class Visitor:
    """Who asks."""

    user: str
    roles: frozenset[str]
    token: str = ""  # its id; empty: anonymous
    name: str = ""
    quota: int | None = None
    session: str = ""  # the cookie's secret, if it was that
    parent: str = ""  # of a session: the id of the token it was opened with

    @property
    def is_admin(self) -> bool:
        return "admin" in self.roles

    @property
    def owner(self) -> str:
        """The token that quotas and webhooks belong to."""
        return self.parent or self.token

    def may_read(self, user: str) -> bool:
        return bool(self.roles & {"read", "admin"}) or self.owns(user)

    def owns(self, user: str) -> bool:
        return "submit" in self.roles and self.user == user

    def may_change(self, user: str) -> bool:
        return self.is_admin or self.owns(user)


def needs(role: str) -> Callable[[V], V]:
    """What a view asks of its visitor: a role, ANYONE who is known, or nothing (OPEN)."""

    def mark(view: V) -> V:
        view.needs = role  # type: ignore[attr-defined]
        return view

    return mark


def visitor() -> Visitor:
    found: Visitor = g.visitor
    return found


class Access:
    """The guard, with what it remembers."""

    def __init__(self) -> None:
        self.counters = Counters()
        self._lock = threading.Lock()
        self._known: OrderedDict[str, tuple[float, rpc.Token | None]] = OrderedDict()

    def find(self, secret: str) -> rpc.Token | None:
        """The token of a secret, looked up at the judicators every few seconds."""
        if not secret or len(secret) > LONGEST_SECRET or not secret.isascii():
            return None
        key = hashlib.sha256(secret.encode()).hexdigest()
        with self._lock:
            until_s, token = self._known.get(key, (0.0, None))
            if time.monotonic() < until_s and not self.counters.flagged(key):
                return token
        try:
            token = judicators().find_token(secret)
            self.know(secret)
        except Missing:
            token = None
        with self._lock:
            self._known[key] = (time.monotonic() + KNOWN_S, token)
            self._known.move_to_end(key)
            if len(self._known) > MOST_KNOWN:
                self._known.popitem(last=False)
        return token

    def forget(self, secret: str) -> None:
        """What this and the other processes remember of it."""
        key = hashlib.sha256(secret.encode()).hexdigest()
        self.counters.flag(key, 2 * int(KNOWN_S))
        with self._lock:
            self._known.pop(key, None)

    def admit(self, secret: str, client: str) -> rpc.Token | None:
        """The token of a secret that somebody at this address shows; None if there is none.

        Wrong ones are counted, but a right one is not refused for them: behind one address there
        may be a whole school. So each is looked up, at the cost of a call to a judicator, until
        the address has shown as many wrong ones as it may ask for anything; from then on only
        those are looked up that were right before. Guessing gains nothing by that: a token has
        240 random bits.
        """
        limits = settings().limits
        self._check_flood("login", secret, client, "tokens")
        token = self.find(secret)
        # A session's secret opens nothing but through its cookie, which scripts cannot read.
        if token is not None and not token.parent:
            return token
        if self.counters.add("login", client) > limits.logins:
            raise too_many("too many wrong tokens; wait a minute")
        return None

    def find_session(self, secret: str, client: str) -> rpc.Token | None:
        """The session of a cookie; None if there is none.

        Wrong ones, which an old page may well have, are nobody's mistake until they are a flood;
        then they are bounded as wrong tokens are.
        """
        self._check_flood("session", secret, client, "sessions")
        token = self.find(secret)
        if token is not None and token.parent:
            return token
        self.counters.add("session", client)
        return None

    def know(self, secret: str) -> None:
        """A secret is right: it is looked up also beside a flood of wrong ones."""
        self.counters.flag(_right(secret), RIGHT_S)

    def _check_flood(self, kind: str, secret: str, client: str, what: str) -> None:
        most = settings().limits.requests
        if self.counters.get(kind, client) >= most and not self.counters.flagged(_right(secret)):
            raise too_many(f"far too many wrong {what}; wait a minute")


def _right(secret: str) -> str:
    return "right:" + hashlib.sha256(secret.encode("utf-8", "replace")).hexdigest()


def access() -> Access:
    found: Access = current_app.extensions["oj.access"]
    return found


def install(app: Flask) -> None:
    app.extensions["oj.access"] = Access()
    app.before_request(guard)
    app.register_blueprint(routes)


def guard() -> None:
    """Runs before every view: knows the visitor, counts him, and asks what the view needs."""
    view = current_app.view_functions.get(request.endpoint or "")
    if view is None:
        return  # there is nothing to guard: it will be a 404 or 405
    needed = getattr(view, "needs", None)
    g.address = find_client(
        request.remote_addr or "",
        request.headers.get("X-Forwarded-For", ""),
        settings().access.proxies,
    )
    g.payer = g.client = network_of(g.address)
    if needed == OPEN:
        _count_open()
        return
    if needed is None:
        raise Problem(403, "this call is not open to anyone")
    g.visitor = identify()
    g.payer = g.visitor.owner or g.client
    _count_request(g.payer)
    if needed != ANYONE and not _has(g.visitor, needed):
        if not g.visitor.token:
            raise unauthorized("a token is needed for this")
        raise Problem(403, f"the token needs the role '{needed}' for this")
    if g.visitor.session and request.method in UNSAFE:
        _check_csrf(g.visitor.session)


def _has(one: Visitor, role: str) -> bool:
    if role == "view":  # some right to see tasks; which of them is asked of each
        return bool(one.roles)
    return role in one.roles or one.is_admin


def identify() -> Visitor:
    header = request.headers.get("Authorization", "")
    if header:
        kind, _, secret = header.partition(" ")
        if kind.lower() != "bearer":
            raise unauthorized("Authorization must be 'Bearer TOKEN'")
        return _admit(secret.strip())
    cookie = _find_cookie(request.headers.get("Cookie", ""), _cookie())
    if cookie:
        token = access().find_session(cookie, g.client)
        if token is not None:
            return _to_visitor(token, cookie)
    if settings().access.anonymous_reads:
        return Visitor("", frozenset({"read"}))
    return Visitor("", frozenset())


def _admit(secret: str) -> Visitor:
    token = access().admit(secret, g.client)
    if token is None:
        raise unauthorized("the token is not known, or has expired")
    return _to_visitor(token)


def _to_visitor(token: rpc.Token, session: str = "") -> Visitor:
    return Visitor(
        user=token.user or "",
        roles=frozenset(token.roles or ()),
        token=token.id,
        name=token.name or "",
        quota=token.quota,
        session=session,
        parent=token.parent or "",
    )


def unauthorized(detail: str) -> Problem:
    return Problem(401, detail, headers={"WWW-Authenticate": 'Bearer realm="oj"'})


def _count_request(client: str) -> None:
    most = settings().limits.requests
    if access().counters.add("request", client) > most:
        raise too_many(f"more than {most} requests a minute")


def _count_open() -> None:
    """What needs no token is counted as well: the page's files, the API's description, /healthz.

    Not for who is on this machine, as the daemon that asks whether we serve; and not a log-in,
    which counts when its token is wrong: nobody shall keep others of the same address from it.
    """
    if is_loopback(g.address) or request.endpoint == "session.log_in":
        return
    most = OPEN_TIMES * settings().limits.requests
    if access().counters.add("open", g.client) > most:
        raise too_many(f"more than {most} requests a minute")


# ----------------------------------------------------------------- sessions


def csrf_of(session: str) -> str:
    return hmac.new(session.encode(), b"oj csrf", hashlib.sha256).hexdigest()


def _check_csrf(session: str) -> None:
    given = request.headers.get("X-CSRF-Token", "")
    if not hmac.compare_digest(given.encode(), csrf_of(session).encode()):
        raise Problem(403, "X-CSRF-Token is missing or wrong", "X-CSRF-Token")


def describe(one: Visitor) -> dict[str, Any]:
    return {
        "anonymous": not one.token,
        "user": one.user,
        "roles": sorted(one.roles),
        "name": one.name or None,
        "quota": one.quota,
        "csrf": csrf_of(one.session) if one.session else None,
    }


@routes.get("")
@needs(ANYONE)
def tell_session() -> Response:
    """Who the caller is; 401 if he has to log in first."""
    if not visitor().roles:
        raise unauthorized("log in with a token")
    return jsonify(describe(visitor()))


@routes.post("")
@needs(OPEN)
def log_in() -> Response:
    # Of this type only: a form on another site cannot send it without asking first.
    body = parse_json(read_body(LOGIN_BYTES)) if request.is_json else None
    secret = body.get("token") if isinstance(body, dict) else None
    if not isinstance(secret, str) or not secret:
        raise Problem(422, "token is missing", "token")
    found = _admit(secret.strip())
    _count_request(found.owner)
    opened = PREFIX + "s_" + secrets.token_urlsafe(32)
    lasts_s = settings().access.session_s
    token = judicators().add_token(
        rpc.Token(
            name=found.name,
            user=found.user,
            roles=set(found.roles),
            quota=found.quota,
            parent=found.token,
            expires=int((time.time() + lasts_s) * 1000),
        ),
        opened,
    )
    access().know(opened)
    answer = jsonify(describe(_to_visitor(token, opened)))
    answer.set_cookie(
        _cookie(),
        opened,
        max_age=int(lasts_s),
        httponly=True,
        samesite="Strict",
        secure=_is_secure(),
        path="/",
    )
    return answer


@routes.delete("")
@needs(ANYONE)
def log_out() -> Response:
    one = visitor()
    if one.session:
        with contextlib.suppress(Missing):
            judicators().remove_token(one.token)
        access().forget(one.session)  # after it: nobody may learn of it anew in between
    answer = Response(status=204)
    answer.delete_cookie(_cookie(), path="/", samesite="Strict", httponly=True, secure=_is_secure())
    return answer


def _find_cookie(header: str, name: str) -> str:
    """The value of a cookie, without quotes, which ours does not need.

    Not by Werkzeug, whose 2.2 takes 90 ms for 8 KB of backslashes. Nor is there a bound on the
    header: other applications of the same host may have set much.
    """
    found = re.search(rf"(?:^|;)[ \t]*{re.escape(name)}[ \t]*=([^;]*)", header)
    return found[1].strip() if found else ""


def _cookie() -> str:
    return SECURE_COOKIE if _is_secure() else COOKIE


def _is_secure() -> bool:
    chosen = settings().access.secure_cookie
    if chosen != "auto":
        return chosen == "yes"
    if request.headers.get("X-Forwarded-Proto", "") == "https":
        return is_in(request.remote_addr or "", settings().access.proxies)
    return request.scheme == "https"
