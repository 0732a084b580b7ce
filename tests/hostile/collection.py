"""The attacks as they lie on disk, and the tasks that they become.

Each directory with a file `expect` is one attack. `expect` holds `key = value` lines:

    tries       what it attempts, in a sentence
    language    c, cpp (their commands are read from etc/languages.d) or none
    compile     the compile command, where it is not the language's
    run         the run command, where it is not the language's
    verdict     the verdicts that are right, separated by commas
    output      what a harmless end prints; without it, "held" if "accepted" is right
    data        files that are given as the task's data, which only the run sees
    blobs       files that come from the cache of blobs
    input       the standard input: inline (default), blob or none
    tests       how many times it is run (default 1); state must not pass from one to the next
    together    in how many slots at once (default 1)
    measured    yes: it runs alone, while the kernel's memory is measured (see kernel_memory.py)
    cpu, wall, memory, output_limit, processes, disk            limits of the run
    compile_cpu, compile_wall, ...                              limits of the compile step

Every other file is source of the task, next to hostile.h. In all of them words such as
@SECRET_FILE@ become what an attacker could have learnt about the host; see `fill_in`.

Where compilers are slow, `load` takes programs that ahead.py compiled elsewhere.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from hostile import bare  # noqa: F401 - before anything of oj
from oj.executor.languages import Language
from oj.model import Data, File, Limits, Step, Task, Test, Verdict

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
EXPECT = "expect"
HEADER = "hostile.h"
HELD = b"held\n"
INPUT = b"the input of the test\n"
UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
KEYS = frozenset(
    "tries language compile run verdict output data blobs input tests together measured".split()
)
AGES = "60000ms"
WORD = re.compile(rb"@([A-Z_]+)@")
LIMITS = frozenset("cpu wall memory output_limit processes disk".split())


@dataclass(frozen=True)
class Attack:
    """One directory of the collection."""

    name: str
    tries: str
    verdicts: frozenset[Verdict]
    task: Task
    together: int = 1
    measured: bool = False


def names() -> list[str]:
    """All attacks of the collection."""
    return sorted(path.parent.name for path in HERE.glob(f"*/{EXPECT}"))


def measured_names() -> list[str]:
    """Those beside which the kernel's memory is measured."""
    return [name for name in names() if _is_measured(read_expect(HERE / name / EXPECT))]


def _is_measured(settings: Mapping[str, str]) -> bool:
    return settings.get("measured") == "yes"


def load(
    name: str, words: Mapping[str, str], secret: str, slowness: float, built: Path | None = None
) -> Attack:
    """One attack, with what it may know of the host filled in. The secret is a test's output.

    `built` is a directory with programs of some attacks, which then need no compiler."""
    home = HERE / name
    settings = read_expect(home / EXPECT)
    verdicts = frozenset(Verdict[word.upper()] for word in _list(settings["verdict"]))
    data, blobs = set(_list(settings.get("data", ""))), set(_list(settings.get("blobs", "")))
    sources, given = [], []
    for path in [HERE / HEADER, *sorted(home.iterdir())]:
        if path.name == EXPECT or not path.is_file():
            continue
        content = fill_in(path.read_bytes(), words)
        one = File(path.name, digest_of(content) if path.name in blobs else Data(content))
        (given if path.name in data else sources).append(one)
    # The language's command names the first source; the header is none of its suffix.
    sources.append(sources.pop(0))
    if built is not None and (built / name).exists():
        sources = [File("program", Data((built / name).read_bytes()))]
        settings = {**settings, "language": "none", "run": "./program"}
    test_input = {
        "inline": Data(INPUT),
        "blob": digest_of(INPUT),
        "none": None,
    }[settings.get("input", "inline")]
    if "output" in settings:
        expected: Data | None = Data(settings["output"].encode())
    else:
        expected = Data(HELD) if Verdict.ACCEPTED in verdicts else Data(secret.encode())
    language = settings.get("language", "")
    if slowness > 1:
        # What ends by itself gets all the time there is: on such a machine it says nothing.
        if not verdicts & {Verdict.TIME_LIMIT, Verdict.WALL_LIMIT}:
            settings = {**settings, "cpu": AGES, "wall": AGES}
        if Verdict.COMPILE_ERROR not in verdicts:
            settings = {**settings, "compile_cpu": AGES, "compile_wall": AGES}
    if verdicts == {Verdict.WALL_LIMIT}:
        slowness = min(slowness, 3.0)  # it is going to wait for all of it
    wall = float(settings.get("wall", "20000ms").removesuffix("ms"))
    return Attack(
        name,
        settings["tries"],
        verdicts,
        Task(
            language="" if language == "none" else language,
            source=tuple(sources),
            data=tuple(given),
            compile=Step(_command(settings, "compile"), _limits(settings, "compile_", slowness)),
            execute=Step(
                _command(settings, "run"),
                _limits({**settings, "wall": f"{wall}ms"}, "", slowness),
            ),
            tests=tuple(
                Test(str(number + 1), test_input, expected)
                for number in range(int(settings.get("tests", "1")))
            ),
        ),
        int(settings.get("together", "1")),
        _is_measured(settings),
    )


def read_expect(path: Path) -> dict[str, str]:
    settings: dict[str, str] = {}
    allowed = KEYS | LIMITS | {f"compile_{key}" for key in LIMITS}
    for line in path.read_text().splitlines():
        if not line.strip() or line.startswith("#"):
            continue
        key, separator, value = line.partition("=")
        if not separator or key.strip() not in allowed:
            raise ValueError(f"{path}: '{line}' is not understood")
        settings[key.strip()] = value.strip()
    for key in ("tries", "verdict"):
        if key not in settings:
            raise ValueError(f"{path}: {key} is missing")
    return settings


def read_languages() -> dict[str, Language]:
    """C and C++ as the executor offers them.

    Read by hand: a virtual machine that only has the tree has no ConfigObj."""
    return {name: _read_language(name) for name in ("c", "cpp")}


def _read_language(name: str) -> Language:
    commands, section = {}, ""
    for line in (TREE / "etc" / "languages.d" / f"{name}.conf").read_text().splitlines():
        if line.startswith("["):
            section = line.strip("[] ")
        elif match := re.match(r'command = "(.*)"\Z', line):
            commands[section] = tuple(shlex.split(match[1]))
        elif section == "self_test":
            break
    return Language(name, name, f"main.{name}", run=commands["run"], compile=commands["compile"])


def fill_in(content: bytes, words: Mapping[str, str]) -> bytes:
    return WORD.sub(lambda m: words[m[1].decode()].encode(), content)


BLOBS: dict[str, bytes] = {}
"""What the cache of blobs may fetch."""


def digest_of(content: bytes) -> Data:
    digest = hashlib.sha256(content).hexdigest()
    BLOBS[digest] = content
    return Data(digest=digest)


def _list(text: str) -> list[str]:
    return [word.strip() for word in text.split(",") if word.strip()]


def _command(settings: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(shlex.split(settings.get(key, "")))


def _limits(settings: Mapping[str, str], prefix: str, slowness: float) -> Limits:
    def time_ms(key: str) -> int | None:
        text = settings.get(prefix + key)
        return None if text is None else round(float(text.removesuffix("ms")) * slowness)

    def size(key: str) -> int | None:
        text = settings.get(prefix + key)
        return None if text is None else int(text.rstrip("KMG")) * UNITS[text.lstrip("0123456789")]

    return Limits(
        time_ms("cpu"),
        time_ms("wall"),
        size("memory"),
        size("output_limit"),
        size("processes"),
        size("disk"),
    )
