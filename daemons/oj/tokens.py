"""The secrets of tokens: how they are made. What is stored of them is a hash (oj.calls)."""

from __future__ import annotations

import secrets

PREFIX = "oj_"  # so that people and scanners recognise one where it should not be


def make_secret() -> str:
    return PREFIX + secrets.token_urlsafe(30)
