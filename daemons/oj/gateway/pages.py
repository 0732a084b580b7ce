"""The web page: one shell of HTML for every address, and the files that make it work.

The shell says who is logged in, so that the page starts with one request less; everything else it
asks of the API like any other client. Files have an address that changes with their content, so
that a browser asks for each once. The editor is Debian's libjs-codemirror; without it the page has
a plain field instead.
"""

from __future__ import annotations

import hashlib
import json
import mimetypes
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from flask import Blueprint, Flask, Response, current_app, request
from werkzeug.exceptions import NotFound
from werkzeug.security import safe_join

from oj import __version__
from oj.errors import Missing, Unavailable
from oj.gateway import problems
from oj.gateway.access import OPEN, describe, identify, needs
from oj.gateway.problems import Problem

STATIC = Path(__file__).parent / "static"
CODEMIRROR = Path("/usr/share/javascript/codemirror")
SHELL = "shell.html"
ADDRESSES = (
    "/",
    "/submit",
    "/tasks",
    "/tasks/<task_id>",
    "/executors",
    "/judicators",
    "/login",
    "/tokens",
)
FOR_EVER = "public, max-age=31536000, immutable"
# Of what has one address for all versions: asked again after a day, and told "the same".
FOR_A_DAY = "public, max-age=86400"
_TYPES = {".js": "text/javascript", ".html": "text/html"}  # mimetypes depends on the machine

routes = Blueprint("pages", __name__)


@dataclass(frozen=True)
class Page:
    """What is served, read once."""

    files: dict[str, bytes]
    version: str  # of the files together
    editor: bool

    @property
    def shell(self) -> str:
        return self.files[SHELL].decode()


def read_page(directory: Path = STATIC, editor: Path = CODEMIRROR) -> Page:
    files = {
        str(path.relative_to(directory)): path.read_bytes()
        for path in sorted(directory.rglob("*"))
        if path.is_file()
    }
    digest = hashlib.sha256()
    for name, content in files.items():
        digest.update(f"{name} {len(content)} ".encode() + content)
    return Page(files, digest.hexdigest()[:12], (editor / "lib" / "codemirror.js").is_file())


def install(app: Flask) -> None:
    app.extensions["oj.page"] = read_page()
    app.register_blueprint(routes)
    app.register_error_handler(404, _not_found)


def page() -> Page:
    found: Page = current_app.extensions["oj.page"]
    return found


def show_page(**_: str) -> Response:
    return _send_shell(200)


for address in ADDRESSES:
    routes.add_url_rule(address, view_func=needs(OPEN)(show_page), methods=["GET"])


@routes.get("/static/<version>/<path:name>")
@needs(OPEN)
def get_file(version: str, name: str) -> Response:
    content = page().files.get(name)
    if content is None or name == SHELL:
        raise Missing("there is no such file")
    answer = _answer(content, name)
    # A page of before an upgrade gets what there is, and does not keep it.
    answer.headers["Cache-Control"] = FOR_EVER if version == page().version else "no-store"
    return answer


@routes.get("/static/codemirror/<path:name>")
@needs(OPEN)
def get_editor(name: str) -> Response:
    path = safe_join(str(CODEMIRROR), name)
    if path is None or not name.endswith((".js", ".css")) or not Path(path).is_file():
        raise Missing("there is no such file")
    answer = _answer(Path(path).read_bytes(), name)
    answer.headers["Cache-Control"] = FOR_A_DAY
    return answer.make_conditional(request)  # type: ignore[return-value]


def _answer(content: bytes, name: str) -> Response:
    ending = Path(name).suffix
    kind = _TYPES.get(ending) or mimetypes.guess_type(name)[0] or "application/octet-stream"
    answer = Response(content, content_type=kind)
    if kind.startswith("text/"):
        answer.headers["Content-Type"] = f"{kind}; charset=utf-8"
    answer.set_etag(hashlib.sha256(content).hexdigest()[:24])
    return answer


def _send_shell(status: int) -> Response:
    facts: dict[str, Any] = {
        "version": __version__,
        "editor": page().editor,
        # Behind a wrong address there is no guard that would know the visitor.
        "session": _tell_session() if status == 200 else "unknown",
    }
    text = json.dumps(facts)
    for mark in "<>&":  # it stays text inside HTML
        text = text.replace(mark, f"\\u{ord(mark):04x}")
    filled = page().shell.replace("{version}", page().version).replace("{facts}", text)
    answer = Response(filled, status, content_type="text/html; charset=utf-8")
    answer.headers["Cache-Control"] = "no-store"
    return answer


def _tell_session() -> dict[str, Any] | str | None:
    try:
        one = identify()
    except (Unavailable, Problem):
        return "unknown"  # the page asks by itself
    return describe(one) if one.roles else None


def _not_found(error: NotFound) -> Response:
    """For people who come by a wrong address there is a page; for programs, a problem."""
    wants_page = request.accept_mimetypes.best_match(["application/json", "text/html"])
    if request.method != "GET" or wants_page != "text/html" or request.path.startswith("/api/"):
        return problems.respond(Problem(404, error.description or "Not Found"))
    return _send_shell(404)
