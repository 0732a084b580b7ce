"""From a task to the JSON that the API takes."""

from __future__ import annotations

import base64
from dataclasses import asdict
from typing import Any

from oj import model


def write_task(task: model.Task) -> dict[str, Any]:
    value: dict[str, Any] = {
        "language": task.language,
        "source": [_file(file) for file in task.source],
        "data": [_file(file) for file in task.data],
        "compile": _step(task.compile),
        "execute": _step(task.execute),
        "tests": [_test(test) for test in task.tests],
        "user": task.user,
        "priority": task.priority,
        "tags": sorted(task.tags),
        "key": task.key,
        "compare": task.compare.name.lower(),
        "tolerance": task.tolerance,
        "stop_on_failure": task.stop_on_failure,
        "webhook": task.webhook,
    }
    return {key: one for key, one in value.items() if one not in (None, "", [], {})}


def _file(file: model.File) -> dict[str, Any]:
    return {"name": file.name, **_data(file.data)}


def _data(data: model.Data) -> dict[str, str]:
    if data.inline is None:
        return {"digest": data.digest or ""}
    try:
        return {"text": data.inline.decode()}
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(data.inline).decode()}


def _step(step: model.Step) -> dict[str, Any]:
    limits = {name: one for name, one in asdict(step.limits).items() if one is not None}
    value = {"command": list(step.command), "limits": limits}
    return {key: one for key, one in value.items() if one}


def _test(test: model.Test) -> dict[str, Any]:
    value: dict[str, Any] = {"name": test.name, "weight": test.weight}
    if test.input is not None:
        value["input"] = _data(test.input)
    if test.expected is not None:
        value["expected"] = _data(test.expected)
    return value
