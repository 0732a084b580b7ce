"""Languages as files: commands, limits, a version command and a self-test each.

oj-languages(5) describes the files. A file that is wrong is reported and left
out; the others are still offered.
"""

from __future__ import annotations

import logging
import re
import shlex
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path, PurePosixPath
from typing import Any

from oj import settings
from oj.errors import BadSettings, Rejected
from oj.model import Data, File, Limits, Task, Test, check_file_name

SEARCH_PATH = "/usr/local/bin:/usr/bin:/bin"
ENVIRONMENT = {"PATH": SEARCH_PATH, "HOME": "/tmp", "LANG": "C.UTF-8", "TMPDIR": "/tmp"}
PLACEHOLDERS = frozenset({"source", "sources", "binary", "stem", "memory_mb"})
BINARY = "program"
NO_LIMITS = Limits()

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9+#._-]{0,63}\Z")
_PLACEHOLDER = re.compile(r"\{([a-z_]+)\}")

log = logging.getLogger("oj.executor.languages")


@dataclass(frozen=True)
class Language:
    """One way to turn source files into a program that runs."""

    name: str
    description: str
    source: str
    """The name that a lone source file gets where nobody says otherwise."""
    run: tuple[str, ...]
    compile: tuple[str, ...] = ()
    version: tuple[str, ...] = ()
    compile_limits: Limits = NO_LIMITS
    run_limits: Limits = NO_LIMITS
    cpu_factor: float = 1.0
    memory_extra_bytes: int = 0
    memory_signal: int = 0
    """By which its runtime ends a program that has no memory left; 0: by none."""
    environment: Mapping[str, str] = field(default_factory=dict)
    program: str = ""
    input: str = ""
    expected: str = ""
    text: bytes = b""
    """The file it was read from."""

    @property
    def suffix(self) -> str:
        return PurePosixPath(self.source).suffix

    def self_test(self) -> Task:
        """A task that is accepted if the language works here."""
        return Task(
            language=self.name,
            source=(File(self.source, Data(self.program.encode())),),
            tests=(Test("self-test", Data(self.input.encode()), Data(self.expected.encode())),),
        )

    def tools(self) -> list[str]:
        """The programs of the host that it needs."""
        words = [command[0] for command in (self.compile, self.run, self.version) if command]
        return list(dict.fromkeys(word for word in words if not _PLACEHOLDER.search(word)))

    def find_missing(self) -> str | None:
        """A program that is not installed here, or None."""
        return next((t for t in self.tools() if shutil.which(t, path=SEARCH_PATH) is None), None)


def expand(
    command: Sequence[str], files: Sequence[str], suffix: str, memory_bytes: int
) -> tuple[str, ...]:
    """The command with its placeholders filled in for these source files."""
    first = files[0] if files else ""
    sources = [name for name in files if PurePosixPath(name).suffix == suffix] or [first]
    values = {
        "source": _word(first),
        "binary": _word(binary_name(files)),
        "stem": PurePosixPath(first).stem,
        "memory_mb": str(max(1, memory_bytes >> 20)),
    }
    words: list[str] = []
    for word in command:
        if word == "{sources}":
            words += map(_word, sources)
        else:
            words.append(_PLACEHOLDER.sub(lambda match: values[match[1]], word))
    return tuple(words)


def binary_name(files: Iterable[str]) -> str:
    """A name for the program that is no source file's."""
    taken = {name.partition("/")[0] for name in files}
    name = BINARY
    while name in taken:
        name += "_"
    return name


def _word(name: str) -> str:
    # A name such as -o or @file must not be taken for an option.
    return f"./{name}"


def load(directory: Path) -> dict[str, Language]:
    """Every language that is described well; warns of the others."""
    languages: dict[str, Language] = {}
    try:
        paths = sorted(path for path in directory.iterdir() if path.suffix == ".conf")
    except OSError as error:
        log.warning("no languages: %s", error)
        paths = []
    for path in paths:
        try:
            language = read(path)
            if language.name in languages:
                raise BadSettings([f"{path}: '{language.name}' is described by another file, too"])
        except BadSettings as error:
            for mistake in error.mistakes:
                log.warning("language left out: %s", mistake)
        else:
            languages[language.name] = language
    return languages


def read(path: Path) -> Language:
    """One language; raises BadSettings with every mistake."""
    values = settings.read(path, "language")
    mistakes: list[str] = []
    name = values["name"] or path.stem
    if not _NAME.match(name):
        mistakes.append(f"name: '{name}' is not a language's name")
    try:
        check_file_name(values["source"], f"source: '{values['source']}'")
    except Rejected as error:
        mistakes.append(error.message)
    commands = {
        key: _split(text, key, mistakes)
        for key, text in (
            ("compile.command", values["compile"]["command"]),
            ("run.command", values["run"]["command"]),
            ("version", values["version"]),
        )
    }
    if not commands["run.command"]:
        mistakes.append("run.command: is empty")
    if mistakes:
        raise BadSettings(settings.place(path, mistakes))
    return Language(
        name=name,
        description=values["description"],
        source=values["source"],
        compile=commands["compile.command"],
        run=commands["run.command"],
        version=commands["version"],
        compile_limits=limits_from(values["compile"]),
        run_limits=limits_from(values["run"]),
        cpu_factor=values["run"]["cpu_factor"],
        memory_extra_bytes=values["run"]["memory_extra"],
        memory_signal=values["run"]["memory_signal"],
        environment=dict(values["environment"]),
        program=_text(values["self_test"]["program"]),
        input=_text(values["self_test"]["input"]),
        expected=_text(values["self_test"]["expected"]),
        text=path.read_bytes(),
    )


def limits_from(section: Mapping[str, Any]) -> Limits:
    """The limits of a section of a file; what is not set stays open."""

    def milliseconds(key: str) -> int | None:
        value = section.get(key)
        return None if value is None else max(1, round(value * 1000))

    return Limits(
        cpu_ms=milliseconds("cpu"),
        wall_ms=milliseconds("wall"),
        memory_bytes=section.get("memory"),
        output_bytes=section.get("output"),
        processes=section.get("processes"),
        disk_bytes=section.get("disk"),
    )


def _split(text: str, where: str, mistakes: list[str]) -> tuple[str, ...]:
    try:
        words = tuple(shlex.split(text))
    except ValueError as error:
        mistakes.append(f"{where}: {error}")
        return ()
    for word in words:
        for name in _PLACEHOLDER.findall(word):
            if name not in PLACEHOLDERS:
                mistakes.append(f"{where}: there is no placeholder {{{name}}}")
            elif name == "sources" and word != "{sources}":
                mistakes.append(f"{where}: {{sources}} must be a word of its own")
    return words


def _text(value: str) -> str:
    # A text in triple quotes starts on the line after them.
    return value.removeprefix("\n")
