"""The OpenAPI 3.1 document of the API, served at /api/v1/openapi.json.

Written by hand, next to no code: it is a promise to others. The tests hold the two together: every
route is here and every path here is a route, and answers are checked against these schemas.
"""

from __future__ import annotations

from typing import Any

from flask import Blueprint, Flask, Response, jsonify

from oj import __version__
from oj.gateway.access import OPEN, needs
from oj.model import MAX_FILES, MAX_PRIORITY, MAX_TAGS, MAX_TASKS, MAX_TESTS, Status, Verdict

routes = Blueprint("openapi", __name__, url_prefix="/api/v1")

Schema = dict[str, Any]


def install(app: Flask) -> None:
    app.register_blueprint(routes)


@routes.get("/openapi.json")
@needs(OPEN)
def tell_openapi() -> Response:
    return jsonify(make_document())


# ------------------------------------------------------------------ schemas


def _ref(name: str) -> Schema:
    return {"$ref": f"#/components/schemas/{name}"}


def _object(properties: Schema, required: list[str] | None = None, **more: Any) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": sorted(properties) if required is None else required,
        **more,
    }


def _list(items: Schema, **more: Any) -> Schema:
    return {"type": "array", "items": items, **more}


def _or_null(kind: str, **more: Any) -> Schema:
    return {"type": [kind, "null"], **more}


TEXT: Schema = {"type": "string"}
WORD: Schema = {"type": "string", "maxLength": 128}
INTEGER: Schema = {"type": "integer"}
COUNT: Schema = {"type": "integer", "minimum": 0}
BOOLEAN: Schema = {"type": "boolean"}
TIME: Schema = {"type": ["string", "null"], "format": "date-time"}
ID: Schema = {"type": "string", "pattern": "^[0-9a-f]{24}$"}
DIGEST: Schema = {"type": "string", "pattern": "^[0-9a-f]{64}$"}
STATUS: Schema = {"type": "string", "enum": [status.word for status in Status]}
VERDICT: Schema = {"type": "string", "enum": [verdict.word for verdict in Verdict]}
COUNTS: Schema = {"type": "object", "additionalProperties": COUNT}


def _limit(what: str) -> Schema:
    return {"type": "integer", "minimum": 1, "description": what}


def _contents() -> list[Schema]:
    return [
        _object({"text": TEXT}, additionalProperties=False),
        _object({"base64": {**TEXT, "contentEncoding": "base64"}}, additionalProperties=False),
        _object({"digest": DIGEST}, additionalProperties=False),
    ]


def _file() -> Schema:
    name = {"type": "string", "minLength": 1, "maxLength": 1024}
    kinds: Schema = {
        "text": TEXT,
        "base64": {**TEXT, "contentEncoding": "base64"},
        "digest": DIGEST,
    }
    return {
        "oneOf": [
            _object({"name": name, key: kind}, additionalProperties=False)
            for key, kind in kinds.items()
        ]
    }


def _outcome() -> Schema:
    return {
        "cpu_ms": COUNT,
        "wall_ms": COUNT,
        "memory_bytes": COUNT,
        "exit_code": _or_null("integer"),
        "signal": _or_null("integer"),
        "processes": COUNT,
        "cpu_us": COUNT,
        "wall_us": COUNT,
        "stdout": TEXT,
        "stdout_cut": BOOLEAN,
        "stderr": TEXT,
        "stderr_cut": BOOLEAN,
    }


def _summary() -> Schema:
    return {
        "id": ID,
        "status": STATUS,
        "done": BOOLEAN,
        "verdict": {"oneOf": [VERDICT, {"type": "null"}]},
        "score": _or_null("number"),
        "message": _or_null("string"),
        "language": _or_null("string"),
        "user": TEXT,
        "priority": INTEGER,
        "tags": _list(TEXT),
        "key": _or_null("string"),
        "executor": _or_null("string"),
        "attempt": COUNT,
        "add_time": TIME,
        "start_time": TIME,
        "report_time": TIME,
        "tests_done": COUNT,
        "tests_total": COUNT,
    }


def _schemas() -> Schema:
    limits = _object(
        {
            "cpu_ms": _limit("CPU time of all processes together"),
            "wall_ms": _limit("time on the clock"),
            "memory_bytes": _limit("memory, with files written to memory"),
            "output_bytes": _limit("of standard output and of standard error, each"),
            "processes": _limit("processes and threads at one time"),
            "disk_bytes": _limit("written to files"),
        },
        [],
        additionalProperties=False,
    )
    step = _object(
        {"command": _list(TEXT, maxItems=256), "limits": _ref("Limits")},
        [],
        additionalProperties=False,
    )
    size = {"size": _or_null("integer"), "digest": _or_null("string")}
    summary = _summary()
    return {
        "Problem": _object(
            {
                "type": TEXT,
                "title": TEXT,
                "status": INTEGER,
                "detail": TEXT,
                "instance": TEXT,
                "field": {**TEXT, "description": "what is wrong: tests[2].input.digest"},
            },
            ["type", "title", "status", "detail"],
        ),
        "Limits": limits,
        "Step": step,
        "Data": {
            "description": "Some bytes: text, or one of text, base64 and the digest of a blob.",
            "oneOf": [TEXT, *_contents()],
        },
        "File": _file(),
        "Test": _object(
            {
                "name": WORD,
                "input": _ref("Data"),
                "expected": _ref("Data"),
                "weight": {"type": "number", "minimum": 0},
            },
            [],
            additionalProperties=False,
        ),
        "NewTask": _object(
            {
                "language": {"type": "string", "maxLength": 64},
                "source": _list(_ref("File"), maxItems=MAX_FILES),
                "data": _list(_ref("File"), maxItems=MAX_FILES),
                "compile": _ref("Step"),
                "execute": _ref("Step"),
                "tests": _list(_ref("Test"), maxItems=MAX_TESTS),
                "user": {**WORD, "description": "another than the token's needs the role admin"},
                "priority": {
                    "type": "integer",
                    "minimum": -MAX_PRIORITY,
                    "maximum": MAX_PRIORITY,
                },
                "tags": _list(WORD, maxItems=MAX_TAGS),
                "key": {**WORD, "description": "the same key again gives the first task"},
                "compare": {
                    "type": "string",
                    "enum": ["exact", "tokens", "floats"],
                    "description": "exact: white space alone gives presentation_error",
                },
                "tolerance": {"type": "number", "minimum": 0},
                "stop_on_failure": BOOLEAN,
                "webhook": {"type": "string", "maxLength": 2048},
            },
            [],
            additionalProperties=False,
            description="A task needs a language and a source file, or an execute.command.",
        ),
        "Summary": _object(summary),
        "Task": _object(
            {
                **summary,
                "compile": {"oneOf": [_object(_outcome()), {"type": "null"}]},
                "tests": _list(
                    _object(
                        {
                            "name": TEXT,
                            "verdict": VERDICT,
                            "message": _or_null("string"),
                            **_outcome(),
                        }
                    )
                ),
                "attempts": _list(
                    _object(
                        {
                            "number": COUNT,
                            "executor": TEXT,
                            "start_time": TIME,
                            "ended": _or_null("string"),
                        }
                    )
                ),
                "task": _or_null(
                    "object", description="what was submitted, without its data: see downloads"
                ),
            },
            sorted({*summary, "compile", "tests", "attempts"}),
        ),
        "Submitted": _object(
            {"name": TEXT, **size}, description="a file or part of a test; download it"
        ),
        "Session": _object(
            {
                "anonymous": BOOLEAN,
                "user": TEXT,
                "roles": _list(TEXT),
                "name": _or_null("string"),
                "quota": _or_null("integer"),
                "csrf": _or_null("string"),
            }
        ),
        "Token": _object(
            {
                "id": TEXT,
                "name": TEXT,
                "user": TEXT,
                "roles": _list({"type": "string", "enum": ["admin", "read", "submit"]}),
                "quota": _or_null("integer", description="tasks an hour; null: no limit"),
                "made": TIME,
                "expires": TIME,
            }
        ),
        "NewToken": _object(
            {
                "name": {**WORD, "minLength": 1},
                "user": WORD,
                "roles": _list({"type": "string", "enum": ["admin", "read", "submit"]}, minItems=1),
                "quota": {"type": "integer", "minimum": 0, "maximum": 1_000_000},
                "expires": {
                    "type": "string",
                    "format": "date-time",
                    "description": "in the future, within 3650 days; without it: never",
                },
                "expires_days": {
                    "type": "integer",
                    "minimum": 1,
                    "maximum": 3650,
                    "description": "days from now, in place of expires",
                },
            },
            ["name", "roles"],
            additionalProperties=False,
        ),
        "Minute": _object(
            {
                "time": TIME,
                "added": COUNT,
                "ended": COUNTS,
                "verdicts": COUNTS,
                "waiting": _list(COUNT, description="a histogram: see bounds_ms"),
                "judging": _list(COUNT),
            }
        ),
        "Executor": _object(
            {
                "name": TEXT,
                "state": {"type": "string", "description": "ok, draining, sick or silent"},
                "message": _or_null("string"),
                "slots": _or_null("integer"),
                "executing": COUNT,
                "drained": BOOLEAN,
                "silent": BOOLEAN,
                "languages": {"type": "object", "additionalProperties": TEXT},
                "version": _or_null("string"),
                "address": _or_null("string"),
                "system": {"type": "object", "additionalProperties": TEXT},
                "rivals": _list(
                    _object({"incarnation": TEXT, "address": _or_null("string"), "since": TIME}),
                    description="other processes that report under its name, and are refused",
                ),
                "incarnation": _or_null("string", description="another one after each start"),
                "report_time": TIME,
            }
        ),
    }


# -------------------------------------------------------------------- paths

_TASK_ID: Schema = {"name": "task_id", "in": "path", "required": True, "schema": ID}


def _query(name: str, schema: Schema, description: str = "") -> Schema:
    found: Schema = {"name": name, "in": "query", "schema": schema}
    if description:
        found["description"] = description
    return found


def _json(schema: Schema) -> Schema:
    return {"content": {"application/json": {"schema": schema}}}


def _operation(
    summary: str,
    answers: dict[str, Schema],
    *,
    role: str = "view",
    parameters: list[Schema] | None = None,
    body: Schema | None = None,
    problems: tuple[int, ...] = (),
) -> Schema:
    numbers = {400, 429, 431, 503, *problems}
    if role != "open":
        numbers |= {401, 403}
    if parameters:
        numbers |= {404, 422}
    if body is not None:
        numbers |= {400, 408, 411, 413, 415, 422}
    responses: Schema = {
        status: {"description": answer.pop("description", "done"), **answer}
        for status, answer in answers.items()
    }
    responses |= {
        str(number): {"$ref": "#/components/responses/Problem"} for number in sorted(numbers)
    }
    found: Schema = {"summary": summary, "responses": responses}
    if role == "open":
        found["security"] = []
    else:
        found["description"] = {
            "view": "With any role; which tasks are seen depends on it.",
            "anyone": "For whoever has a token or a session.",
        }.get(role, f"With the role '{role}'.")
    if parameters:
        found["parameters"] = parameters
    if body is not None:
        found["requestBody"] = {"required": True, **body}
    return found


def _paths() -> Schema:
    created = {
        "Location": {"description": "the task", "schema": TEXT},
    }
    binary: Schema = {
        "description": "the bytes, exactly",
        "content": {
            "application/octet-stream": {"schema": {}},
            "text/plain": {"schema": {}},
        },
    }
    part: Schema = {"description": "a part of them", "content": binary["content"]}
    stream: Schema = {
        "description": "server-sent events: task, gap, end",
        "content": {"text/event-stream": {"schema": TEXT}},
    }
    last_id: Schema = {
        "name": "Last-Event-ID",
        "in": "header",
        "schema": TEXT,
        "description": "goes on after this event",
    }

    def download(summary: str, *parameters: Schema) -> Schema:
        return {
            "parameters": [_TASK_ID, *parameters],
            "get": _operation(
                summary,
                {"200": dict(binary), "206": dict(part), "304": {"description": "as you have it"}},
                problems=(404, 416, 422),
            ),
        }

    name: Schema = {"name": "name", "in": "path", "required": True, "schema": TEXT}

    def one_of(*words: str) -> Schema:
        return {
            "name": "part",
            "in": "path",
            "required": True,
            "schema": {"type": "string", "enum": list(words)},
        }

    number: Schema = {"name": "number", "in": "path", "required": True, "schema": COUNT}
    form: Schema = {
        "content": {
            "application/json": {"schema": _ref("NewTask")},
            "multipart/form-data": {
                "schema": _object(
                    {
                        "task": {**TEXT, "description": "JSON, as NewTask"},
                        "language": TEXT,
                        "source": _list(TEXT, description="files"),
                        "data": _list(TEXT, description="files"),
                        "archive": {**TEXT, "description": "source files, zip or tar"},
                        "tests": {**TEXT, "description": "NAME.in and NAME.ans, zip or tar"},
                        "input": TEXT,
                        "expected": TEXT,
                    },
                    [],
                )
            },
        }
    }
    key: Schema = {"name": "Idempotency-Key", "in": "header", "schema": WORD}
    return {
        "/tasks": {
            "get": _operation(
                "List tasks",
                {
                    "200": _json(
                        _object({"tasks": _list(_ref("Summary")), "cursor": _or_null("string")})
                    )
                },
                parameters=[
                    _query("user", TEXT),
                    _query("status", _list(STATUS), "one of these"),
                    _query("verdict", _list(VERDICT), "one of these"),
                    _query("tag", _list(TEXT), "all of these"),
                    _query("language", TEXT),
                    _query("executor", TEXT),
                    _query("since", TEXT, "ISO 8601, or milliseconds since 1970"),
                    _query("until", TEXT),
                    _query("done", BOOLEAN),
                    _query("order", {"type": "string", "enum": ["newest", "oldest"]}),
                    _query("limit", {"type": "integer", "minimum": 1, "maximum": 200}),
                    _query("cursor", TEXT, "of the page before"),
                ],
            ),
            "post": _operation(
                "Add a task",
                {"201": {**_json(_ref("Summary")), "headers": created}},
                role="submit",
                parameters=[key],
                body=form,
            ),
        },
        "/tasks/batch": {
            "post": _operation(
                "Add many tasks, all or none",
                {"201": _json(_object({"ids": _list(ID)}))},
                role="submit",
                body=_json(
                    _object(
                        {"tasks": _list(_ref("NewTask"), minItems=1, maxItems=MAX_TASKS)},
                        additionalProperties=False,
                    )
                ),
            )
        },
        "/tasks/rejudge": {
            "post": _operation(
                "Judge tasks again, each as a new task",
                {"201": _json(_object({"ids": {"type": "object", "additionalProperties": ID}}))},
                role="submit",
                problems=(404,),
                body=_json(
                    _object(
                        {"ids": _list(ID, minItems=1, maxItems=100)}, additionalProperties=False
                    )
                ),
            )
        },
        "/tasks/{task_id}": {
            "parameters": [_TASK_ID],
            "get": _operation(
                "One task with its results",
                {"200": _json(_ref("Task")), "304": {"description": "as you have it"}},
                problems=(404, 422),
            ),
        },
        "/tasks/{task_id}/wait": {
            "parameters": [_TASK_ID],
            "get": _operation(
                "The task, once it is not as you know it",
                {"200": _json(_ref("Task"))},
                parameters=[
                    _query("status", STATUS, "as you know it; without it only the end counts"),
                    _query("tests_done", {"type": "integer", "minimum": -1}),
                    _query("timeout", {"type": "number", "minimum": 0, "maximum": 30}),
                ],
            ),
        },
        "/tasks/{task_id}/cancel": {
            "parameters": [_TASK_ID],
            "post": _operation(
                "End a task that is not done",
                {"200": _json(_object({"id": ID, "cancelled": BOOLEAN}))},
                role="submit",
                problems=(404, 422),
            ),
        },
        "/tasks/{task_id}/rejudge": {
            "parameters": [_TASK_ID],
            "post": _operation(
                "Judge it again, as a new task",
                {"201": {**_json(_object({"id": ID})), "headers": created}},
                role="submit",
                problems=(404, 422),
            ),
        },
        "/tasks/{task_id}/source/{name}": download("A source file", name),
        "/tasks/{task_id}/data/{name}": download("A data file", name),
        "/tasks/{task_id}/tests/{number}/{part}": download(
            "A test's data, or what the program printed",
            number,
            one_of("input", "expected", "stdout", "stderr"),
        ),
        "/tasks/{task_id}/compile/{part}": download(
            "What the compiler printed", one_of("stdout", "stderr")
        ),
        "/tasks/{task_id}/events": {
            "parameters": [_TASK_ID],
            "get": _operation(
                "What happens to a task, from now to its end",
                {"200": dict(stream)},
                parameters=[last_id],
            ),
        },
        "/events": {
            "get": _operation(
                "What happens to all tasks that you may see",
                {"200": dict(stream)},
                parameters=[last_id],
            )
        },
        "/blobs/{digest}": {
            "parameters": [
                {"name": "digest", "in": "path", "required": True, "schema": DIGEST},
            ],
            "get": _operation(
                "Whether a blob is stored",
                {"204": {"description": "it is"}},
                role="submit",
                problems=(404, 422),
            ),
            "put": _operation(
                "Store a blob, for tasks to name by its SHA-256",
                {"200": {"description": "was there"}, "201": {"description": "stored"}},
                role="submit",
                body={"content": {"application/octet-stream": {"schema": {}}}},
            ),
        },
        "/languages": {
            "get": _operation(
                "Languages that executors offer now",
                {
                    "200": _json(
                        _object(
                            {"languages": _list(_object({"name": TEXT, "versions": _list(TEXT)}))}
                        )
                    )
                },
            )
        },
        "/executors": {
            "get": _operation(
                "Executors", {"200": _json(_object({"executors": _list(_ref("Executor"))}))}
            )
        },
        "/executors/{name}/drain": {
            "parameters": [name],
            "post": _operation(
                "Take an executor out of service, or back in",
                {"200": _json(_object({"executor": TEXT, "drained": BOOLEAN}))},
                role="admin",
                problems=(404,),
                body=_json(_object({"on": BOOLEAN}, additionalProperties=False)),
            ),
        },
        "/judicators": {
            "get": _operation(
                "Judicators",
                {
                    "200": _json(
                        _object(
                            {
                                "judicators": _list(
                                    _object(
                                        {"name": TEXT, "address": TEXT, "leader": BOOLEAN},
                                    )
                                )
                            }
                        )
                    )
                },
            )
        },
        "/cluster": {
            "get": _operation(
                "Members of etcd and the database, and what is degraded",
                {
                    "200": _json(
                        _object(
                            {
                                "etcd": _list({"type": "object"}),
                                "database": _list({"type": "object"}),
                                "judicators": _list({"type": "object"}),
                                "gateways": _list({"type": "object"}),
                                "troubles": _list(TEXT),
                            }
                        )
                    )
                },
            )
        },
        "/stats": {
            "get": _operation(
                "Numbers of tasks and executors",
                {
                    "200": _json(
                        _object(
                            {
                                "queue": COUNT,
                                "oldest_pending_ms": _or_null("integer"),
                                "by_status": COUNTS,
                                "by_verdict": COUNTS,
                                "executors": COUNT,
                                "slots": COUNT,
                                "executing": COUNT,
                            }
                        )
                    )
                },
            )
        },
        "/history": {
            "get": _operation(
                "What happened minute by minute",
                {
                    "200": _json(
                        _object({"minutes": _list(_ref("Minute")), "bounds_ms": _list(COUNT)})
                    )
                },
                parameters=[_query("minutes", {"type": "integer", "minimum": 1, "maximum": 1440})],
            )
        },
        "/session": {
            "get": _operation("Who you are", {"200": _json(_ref("Session"))}, role="anyone"),
            "post": _operation(
                "Log in: sets a cookie",
                {"200": _json(_ref("Session"))},
                role="open",
                problems=(401,),
                body=_json(_object({"token": TEXT})),
            ),
            "delete": _operation("Log out", {"204": {"description": "done"}}, role="anyone"),
        },
        "/tokens": {
            "get": _operation(
                "Tokens", {"200": _json(_object({"tokens": _list(_ref("Token"))}))}, role="admin"
            ),
            "post": _operation(
                "Make a token; its secret is told once",
                {
                    "201": _json(
                        {
                            "allOf": [
                                _ref("Token"),
                                _object({"secret": TEXT, "webhook_secret": _or_null("string")}),
                            ]
                        }
                    )
                },
                role="admin",
                body=_json(_ref("NewToken")),
            ),
        },
        "/tokens/{token_id}": {
            "parameters": [
                {"name": "token_id", "in": "path", "required": True, "schema": TEXT},
            ],
            "delete": _operation(
                "Remove a token and its sessions",
                {"204": {"description": "done"}},
                role="admin",
                problems=(404, 422),
            ),
        },
        "/openapi.json": {
            "get": _operation("This document", {"200": _json({"type": "object"})}, role="open")
        },
    }


def make_document() -> Schema:
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "oj",
            "version": __version__,
            "description": "Judges programs on a cluster: add tasks, follow them, read results.",
            "license": {"name": "MIT", "identifier": "MIT"},
        },
        "servers": [{"url": "/api/v1"}],
        "security": [{"token": []}, {"session": []}],
        "paths": _paths(),
        "components": {
            "schemas": _schemas(),
            "responses": {
                "Problem": {
                    "description": "what went wrong (RFC 9457)",
                    "content": {"application/problem+json": {"schema": _ref("Problem")}},
                }
            },
            "securitySchemes": {
                "token": {"type": "http", "scheme": "bearer"},
                "session": {"type": "apiKey", "in": "cookie", "name": "oj_session"},
            },
        },
    }
