"""Configuration files: ConfigObj text in, checked plain values out.

Each role has a configspec in oj/specs/ROLE.spec. `read` reports every mistake
at once, with file and line, unknown keys included, because an administrator
wants to mend a file in one go. Roles turn the values into frozen dataclasses
of their own.
"""

from __future__ import annotations

import ipaddress
import re
import socket
from collections.abc import Iterable
from dataclasses import dataclass
from importlib import resources
from pathlib import Path
from typing import Any

from configobj import ConfigObj, ConfigObjError, flatten_errors, get_extra_values
from configobj.validate import ValidateError, Validator

from oj.errors import BadSettings

# Fifteen digits are plenty, and never the infinity that a float makes of four hundred.
_DURATION = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*(us|ms|s|m|h|d)\Z")
_DURATION_UNITS = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}
_SIZE = re.compile(r"(\d{1,15}(?:\.\d+)?)\s*([KMGT]?)(?:i?B)?\Z", re.IGNORECASE)
_SIZE_UNITS = {"": 0, "K": 10, "M": 20, "G": 30, "T": 40}


@dataclass(frozen=True)
class Advice:
    """What is no mistake, but worth a word. Each is "what; how to mend it"."""

    warnings: tuple[str, ...] = ()  # also in the journal, once at start, and by oj doctor
    notes: tuple[str, ...] = ()  # of --check alone


def parse_duration(text: str) -> float:
    """'500ms', '2s', '1.5m' as seconds."""
    match = _DURATION.match(str(text).strip())
    if not match:
        raise ValueError(f"'{text}' is not a duration such as 500ms, 2s or 5m")
    return float(match[1]) * _DURATION_UNITS[match[2]]


def parse_size(text: str) -> int:
    """'64M', '1.5GiB', '4096' as bytes."""
    match = _SIZE.match(str(text).strip())
    if not match:
        raise ValueError(f"'{text}' is not a size such as 64K, 256M or 2G")
    return int(float(match[1]) * (1 << _SIZE_UNITS[match[2].upper()]))


def parse_address(text: str) -> tuple[str, int]:
    """'host:port' or '[v6]:port' as a pair."""
    host, colon, port = str(text).strip().rpartition(":")
    host = host.removeprefix("[").removesuffix("]")
    if not colon or not host or not port.isdigit() or not 0 <= int(port) <= 65535:
        raise ValueError(f"'{text}' is not HOST:PORT")
    return host, int(port)


def is_loopback(host: str) -> bool:
    """Whether every machine finds itself at this address."""
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def parse_optional_address(text: str) -> tuple[str, int] | None:
    """As parse_address; nothing is none."""
    return parse_address(text) if str(text).strip() else None


def default_name(name: str) -> str:
    """The node's name: as configured, or the host's."""
    return name or socket.gethostname().partition(".")[0]


def _check(parse: Any) -> Any:
    def check(value: Any) -> Any:
        try:
            return parse(value)
        except ValueError as error:
            raise ValidateError(str(error)) from None

    return check


def _check_addresses(value: Any) -> list[tuple[str, int]]:
    words = [value] if isinstance(value, str) else list(value)
    try:
        return [parse_address(word) for word in words if word]
    except ValueError as error:
        raise ValidateError(str(error)) from None


def _validator() -> Validator:
    return Validator(
        {
            "duration": _check(parse_duration),
            "size": _check(parse_size),
            "address": _check(parse_address),
            "optional_address": _check(parse_optional_address),
            "addresses": _check_addresses,
        }
    )


def read(path: Path | str, spec: str) -> dict[str, Any]:
    """The file's values with defaults filled in; raises BadSettings."""
    path = Path(path)
    spec_lines = (
        resources.files("oj").joinpath("specs").joinpath(f"{spec}.spec").read_text().splitlines()
    )
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise BadSettings([f"{path}: cannot be read: {error}"]) from None
    try:
        config = ConfigObj(
            lines,
            configspec=ConfigObj(spec_lines, interpolation=False, list_values=False, _inspec=True),
            interpolation=False,
        )
    except ConfigObjError as error:
        errors = getattr(error, "errors", None) or [error]
        raise BadSettings([f"{path}:{_line_of(e)}: {_text_of(e)}" for e in errors]) from None
    mistakes: list[tuple[int, str]] = []
    for name in _remove_misplaced(config, config.configspec):
        mistakes.append((_find_line(lines, [], name), f"{name}: is a setting, not a section"))
    outcome = config.validate(_validator(), preserve_errors=True)
    for sections, key, problem in flatten_errors(config, outcome):
        name = ".".join([*sections, key or ""]).rstrip(".")
        line = _find_line(lines, sections, key)
        what = str(problem).rstrip(".") if problem else "is missing"
        mistakes.append((line, f"{name}: {what}"))
    for sections, key in get_extra_values(config):
        name = ".".join([*sections, key])
        mistakes.append((_find_line(lines, sections, key), f"{name}: no such setting"))
    if mistakes:
        raise BadSettings(
            [
                f"{path}:{line}: {text}" if line else f"{path}: {text}"
                for line, text in sorted(mistakes)
            ]
        )
    values: dict[str, Any] = config.dict()
    return values


def place(path: Path | str, mistakes: Iterable[str]) -> list[str]:
    """'section.key: what' mistakes that a role found itself, each with file and line before it."""
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    placed = []
    for text in mistakes:
        *sections, key = text.partition(":")[0].split(".")
        line = _find_line(lines, sections, key)
        placed.append((line, f"{path}:{line}: {text}" if line else f"{path}: {text}"))
    return [text for _, text in sorted(placed)]


def is_set(path: Path | str, name: str) -> bool:
    """Whether the file itself has a value for 'section.key', as opposed to a default."""
    *sections, key = name.split(".")
    return _find_line(Path(path).read_text(encoding="utf-8").splitlines(), sections, key) > 0


def _remove_misplaced(config: Any, spec: Any) -> list[str]:
    """Takes out sections where a value belongs: ConfigObj's validation falls over them."""
    misplaced = [name for name in config.sections if name in spec.scalars]
    for name in misplaced:
        del config[name]
    return misplaced


def _line_of(error: Any) -> str:
    return str(getattr(error, "line_number", "?"))


def _text_of(error: Any) -> str:
    # ConfigObj appends its own 'at line N.', which the prefix says already.
    return re.sub(r" at line [\"']?\d+[\"']?\.?\Z", "", str(error)) or "cannot be parsed"


def _find_line(lines: Iterable[str], sections: Iterable[str], key: str | None) -> int:
    """The line that sets a key, or 0: ConfigObj does not keep line numbers."""
    wanted, current = list(sections), []  # type: list[str], list[str]
    for number, line in enumerate(lines, 1):
        text = line.strip()
        if header := re.match(r"(\[+)\s*(.+?)\s*\]+", text):
            current = [*current[: len(header[1]) - 1], header[2]]
            if current == wanted + ([key] if key else []):
                return number
        elif current == wanted and key and re.match(rf"{re.escape(key)}\s*=", text):
            return number
    return 0
