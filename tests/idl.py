"""Whether a newer IDL is one that older clients, executors and judicators can live with.

The rule of thrift/judicator.thrift: fields and calls are only ever added, optional, with new ids.
tests/server/released/ keeps every IDL that packages were released with; the newest number is the
`protocol` that such a judicator tells.
"""

from __future__ import annotations

import json
import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import servers

CURRENT = servers.IDL
RELEASED = sorted((servers.TREE / "tests" / "server" / "released").glob("judicator-*.thrift"))

Description = dict[str, Any]


def describe(path: Path) -> Description:
    """An IDL as the compiler understands it, without notes for generators of code."""

    def strip(thing: Description) -> Description:
        thing.pop("annotations", None)
        return thing

    with tempfile.TemporaryDirectory() as directory:
        _compile("json", path, Path(directory))
        [file] = Path(directory).glob("*.json")
        return dict(json.loads(file.read_text(), object_hook=strip))


def generate_python(path: Path, directory: Path, package: str) -> None:
    """The Python code of an IDL, as a package beside the one of the tree."""
    text = path.read_text()
    assert "namespace py oj.rpc\n" in text
    other = directory / path.name
    other.write_text(text.replace("namespace py oj.rpc\n", f"namespace py {package}\n"))
    _compile("py", other, directory)


def _compile(kind: str, path: Path, directory: Path) -> None:
    subprocess.run(
        ["thrift", "--gen", kind, "-out", str(directory), str(path)],
        check=True,
        capture_output=True,
        text=True,
    )


def find_breaks(old: Description, new: Description) -> list[str]:
    """What would break somebody who speaks the old one; empty if nothing would."""
    return [
        *_compare_enums(old, new),
        *_compare_constants(old, new),
        *_compare_structs(old, new),
        *_compare_services(old, new),
    ]


def _named(things: list[Description]) -> dict[str, Description]:
    return {thing["name"]: thing for thing in things}


def _pairs(
    what: str, old: list[Description], new: list[Description]
) -> Iterator[tuple[str, Description, Description | None]]:
    there = _named(new)
    for name, thing in _named(old).items():
        yield f"{what} {name}", thing, there.get(name)


def _compare_enums(old: Description, new: Description) -> Iterator[str]:
    for what, before, after in _pairs("enum", old["enums"], new["enums"]):
        values = {m["name"]: m["value"] for m in after["members"]} if after else {}
        for member in before["members"]:
            if values.get(member["name"]) != member["value"]:
                yield f"{what}: {member['name']} is no longer {member['value']}"


def _compare_constants(old: Description, new: Description) -> Iterator[str]:
    for what, before, after in _pairs("constant", old["constants"], new["constants"]):
        if after is None or after["value"] != before["value"]:
            yield f"{what} has changed"


def _compare_structs(old: Description, new: Description) -> Iterator[str]:
    for what, before, after in _pairs("struct", old["structs"], new["structs"]):
        if after is None or after["isException"] != before["isException"]:
            yield f"{what} is gone"
        else:
            yield from _compare_fields(what, before["fields"], after["fields"], "optional")


def _compare_fields(
    what: str, old: list[Description], new: list[Description], added: str
) -> Iterator[str]:
    """`added`: what a field that is new must be."""
    by_id = {field["key"]: field for field in new}
    for field in old:
        after = by_id.pop(field["key"], None)
        where = f"{what}, field {field['key']} ({field['name']})"
        if after is None:
            yield f"{where} is gone"
            continue
        for key in ("name", "required"):
            if after[key] != field[key]:
                yield f"{where}: {key} was {field[key]} and is {after[key]}"
        if _type(after) != _type(field):
            yield f"{where} has another type"
    for field in by_id.values():
        if field["required"] != added:
            yield f"{what}, field {field['key']} ({field['name']}) is new and {field['required']}"


def _type(field: Mapping[str, Any]) -> Any:
    return field["typeId"], field.get("type")


def _compare_services(old: Description, new: Description) -> Iterator[str]:
    for what, before, after in _pairs("service", old["services"], new["services"]):
        functions = after["functions"] if after else []
        for call, one, other in _pairs(f"{what}, call", before["functions"], functions):
            if other is None:
                yield f"{call} is gone"
                continue
            for key in ("returnTypeId", "returnType", "oneway"):
                if one.get(key) != other.get(key):
                    yield f"{call} returns something else"
            # Arguments without a word are sent if they are set, and may be missing.
            yield from _compare_fields(call, one["arguments"], other["arguments"], "req_out")
            if one["exceptions"] != other["exceptions"]:
                # A result without any field that the caller knows is an error to him.
                yield f"{call} throws something else"
