"""Edits of a conf file, key by key: what the administrator wrote stays, comments and all.

Pure: text in, text out. A key is set where it stands; one that is only shown as a comment gets its
line right after that comment; any other goes to the end of its section.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass

_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]")
_ENTRY = re.compile(r"\s*(#?)\s*([A-Za-z_]+)\s*=")
_SETTING = re.compile(r"(?P<head>\s*(?P<key>\w+)\s*=\s*)(?P<value>[^#]*?)(?P<note>\s*#.*)?\Z")


@dataclass(frozen=True)
class Edit:
    """One key of one file as it shall be."""

    role: str  # the file is ROLE.conf
    key: str
    value: str
    section: str = ""

    @property
    def path(self) -> str:
        return f"{self.section}.{self.key}" if self.section else self.key


@dataclass(frozen=True)
class Change:
    """An edit that is needed, with the value before; None where the default held."""

    edit: Edit
    old: str | None


def read_value(text: str, key: str, section: str = "") -> str | None:
    """What the file sets the key to; None when it does not."""
    at = _find(text.splitlines(), key, section)[0]
    return None if at is None else _split(text.splitlines()[at])[1]


def apply(text: str, edits: Iterable[Edit]) -> tuple[str, list[Change]]:
    """The text with the edits, and those that made a difference."""
    changes = []
    for edit in edits:
        old = read_value(text, edit.key, edit.section)
        if old == edit.value:
            continue
        text = _set(text, edit)
        changes.append(Change(edit, old))
    return text, changes


def _set(text: str, edit: Edit) -> str:
    lines = text.splitlines()
    at, shown, end = _find(lines, edit.key, edit.section)
    line = f"{edit.key} = {edit.value}".rstrip()
    if at is not None:
        head, _, note = _split(lines[at])
        lines[at] = f"{head.rstrip()} {edit.value}{note}"
    elif shown is not None:
        lines.insert(shown + 1, line)
    elif end is not None:
        lines.insert(end, line)
    else:
        lines += [*([""] if lines and lines[-1].strip() else []), f"[{edit.section}]", line]
    return "\n".join(lines) + "\n"


def _split(line: str) -> tuple[str, str, str]:
    """Everything up to the value, the value, and a remark behind it."""
    match = _SETTING.match(line)
    assert match, line
    return match["head"], match["value"].strip(), match["note"] or ""


def _find(lines: list[str], key: str, section: str) -> tuple[int | None, int | None, int | None]:
    """The line that sets a key, the comment that shows it, and where a new one would go."""
    here, at, shown = "", None, None
    end: int | None = None if section else 0
    for number, line in enumerate(lines):
        if header := _HEADER.match(line):
            here = header[1]
            if here == section:
                end = number + 1
        elif here == section and (entry := _ENTRY.match(line)):
            end = number + 1
            if entry[2] == key:
                if entry[1]:
                    shown = number
                else:
                    at = number
    return at, shown, end
