"""Tokens over HTTP, for administrators; `oj token` does the same from inside the cluster."""

from __future__ import annotations

import time
from typing import Any

from flask import Blueprint, Flask, Response, jsonify

from oj import plain
from oj.errors import Rejected
from oj.gateway.access import needs
from oj.gateway.app import judicators
from oj.gateway.bodies import SMALL_BYTES, read_body
from oj.gateway.reading import Reader, parse_json, read_time
from oj.rpc import ttypes as rpc

DAY_MS = 86_400_000
MOST_DAYS = 3650
MOST_ROLES = 32  # more names than there are roles

routes = Blueprint("tokens", __name__, url_prefix="/api/v1/tokens")


def install(app: Flask) -> None:
    app.register_blueprint(routes)


@routes.get("")
@needs("admin")
def list_tokens() -> Response:
    return jsonify(tokens=[plain.token(token) for token in judicators().tokens()])


@routes.post("")
@needs("admin")
def create_token() -> tuple[Response, int]:
    body = Reader(parse_json(read_body(SMALL_BYTES)))
    token = rpc.Token(
        name=body.text("name"),
        user=body.text("user"),
        roles=set(body.each("roles", _read_role, MOST_ROLES)),
        quota=body.integer("quota"),
        expires=_read_expiry(body),
    )
    body.end()
    made, secret = judicators().issue_token(token)
    value = {**plain.token(made), "secret": secret, "webhook_secret": made.webhook_secret}
    return jsonify(value), 201


def _read_expiry(body: Reader) -> int | None:
    """Given as a time, or for people as days from now."""
    days, moment = body.integer("expires_days"), body.text("expires")
    now_ms = int(time.time() * 1000)
    if days is not None and moment:
        raise Rejected("expires and expires_days do not go together", "expires")
    if days is not None and not 1 <= days <= MOST_DAYS:
        raise Rejected(f"expires_days must be between 1 and {MOST_DAYS}", "expires_days")
    if days is not None:
        return now_ms + days * DAY_MS
    if not moment:
        return None
    expires_ms = read_time(moment, "expires")
    if not now_ms < expires_ms <= now_ms + MOST_DAYS * DAY_MS:
        raise Rejected(f"expires must be in the future, within {MOST_DAYS} days", "expires")
    return expires_ms


def _read_role(value: Any, where: str) -> str:
    if not isinstance(value, str):
        raise Rejected(f"{where} must be text", where)
    return value


@routes.delete("/<token_id>")
@needs("admin")
def remove_token(token_id: str) -> Response:
    judicators().remove_token(token_id)
    return Response(status=204)
