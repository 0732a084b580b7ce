"""Where a gateway is: what --server says, checked, and the environment's proxy on the way."""

from __future__ import annotations

import base64
import urllib.request
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote, urlsplit

from oj.errors import Rejected

_LOCAL = frozenset({"localhost", "127.0.0.1", "::1"})


@dataclass(frozen=True)
class Place:
    """A server's address."""

    secure: bool
    host: str
    port: int
    path: str  # before /api/v1; empty, or /like/this

    @property
    def name(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return host if self.port == _port(self.secure) else f"{host}:{self.port}"

    @property
    def is_open(self) -> bool:
        """Whether others can read along."""
        return not self.secure and self.host not in _LOCAL

    def find_proxy(self) -> Any:
        """The environment's proxy for this server, taken apart, or None."""
        if urllib.request.proxy_bypass(self.name):
            return None
        url = urllib.request.getproxies().get("https" if self.secure else "http")
        if not url:
            return None
        parts = urlsplit(url if "://" in url else f"http://{url}")
        try:
            if parts.scheme == "http" and parts.hostname and parts.port != 0:
                return parts
        except ValueError:
            pass
        raise Rejected(f"the proxy '{parts.hostname or url}' of the environment is not http://HOST")


def _port(secure: bool) -> int:
    return 443 if secure else 80


def read_url(text: str) -> Place:
    try:
        parts = urlsplit(text.strip())
        port = parts.port
    except ValueError as error:
        raise Rejected(f"the server '{text}' is not a URL: {error}", "server") from None
    if parts.scheme not in ("http", "https") or not parts.hostname:
        raise Rejected(f"the server '{text}' is not a URL such as https://judge.example", "server")
    if parts.username is not None or parts.query or parts.fragment:
        raise Rejected(
            "the server's URL has a user, a query or a fragment; tokens go by --token-file",
            "server",
        )
    secure = parts.scheme == "https"
    return Place(
        secure,
        parts.hostname,
        port or _port(secure),
        parts.path.rstrip("/").removesuffix("/api/v1"),
    )


def proxy_headers(proxy: Any) -> dict[str, str]:
    if proxy.username is None:
        return {}
    words = f"{unquote(proxy.username)}:{unquote(proxy.password or '')}"
    return {"Proxy-Authorization": f"Basic {base64.b64encode(words.encode()).decode()}"}
