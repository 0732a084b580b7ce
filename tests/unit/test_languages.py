"""Languages: the files that are shipped, files with mistakes, and placeholders."""

from __future__ import annotations

import logging
import re
from pathlib import Path

import pytest

from oj.errors import BadSettings
from oj.executor import languages
from oj.executor.languages import expand

SHIPPED = Path(__file__).resolve().parents[2] / "etc" / "languages.d"
GOOD = """
description = Plain C
source = main.c
version = "gcc --version"
[compile]
command = "gcc -o {binary} {sources} '-DX=a b'"
cpu = 10s
memory = 1G
[run]
command = "{binary}"
cpu_factor = 2
[environment]
A = 1
[self_test]
program = '''
int main(void) { return 0; }
'''
expected = ""
"""


def write(directory: Path, name: str, text: str) -> Path:
    path = directory / name
    path.write_text(text)
    return path


@pytest.mark.parametrize("path", sorted(SHIPPED.glob("*.conf")), ids=lambda path: path.stem)
def test_a_shipped_language_is_described_well(path: Path) -> None:
    language = languages.read(path)
    assert language.name == path.stem
    assert language.program and language.expected and language.version and language.tools()
    assert len(language.self_test().tests) == 1


def test_the_languages_that_were_promised_are_shipped() -> None:
    names = set(languages.load(SHIPPED))
    assert names >= set(
        "c cpp cpp11 cpp14 cpp20 python java javascript go rust pascal haskell ocaml ruby perl php "
        "lua bash awk".split()
    )


def test_a_file_gives_commands_limits_and_a_self_test(tmp_path: Path) -> None:
    language = languages.read(write(tmp_path, "plain-c.conf", GOOD))
    assert language.name == "plain-c"
    assert language.compile == ("gcc", "-o", "{binary}", "{sources}", "-DX=a b")
    assert language.compile_limits.cpu_ms == 10_000
    assert language.compile_limits.memory_bytes == 1 << 30
    assert language.run_limits.cpu_ms is None
    assert language.cpu_factor == 2
    assert language.environment == {"A": "1"}
    assert language.program.startswith("int main")
    assert language.tools() == ["gcc"]
    assert language.suffix == ".c"


def test_every_mistake_in_a_file_is_named(tmp_path: Path) -> None:
    text = GOOD.replace("{sources}", "x{sources} {nothing}").replace("main.c", "../main.c")
    with pytest.raises(BadSettings) as caught:
        languages.read(write(tmp_path, "bad.conf", text.replace('{binary}"\ncpu_f', "'\"\ncpu_f")))
    mistakes = "\n".join(caught.value.mistakes)
    for part in ("{sources}", "{nothing}", "source", "run.command"):
        assert part in mistakes
    assert len(caught.value.mistakes) >= 4
    assert all(re.search(r"/bad\.conf:\d+: ", mistake) for mistake in caught.value.mistakes)


def test_misspelt_and_missing_settings_are_named_with_file_and_line(tmp_path: Path) -> None:
    text = GOOD.replace("cpu_factor = 2", "cpu_faktor = 2").replace("description = Plain C\n", "")
    with pytest.raises(BadSettings) as caught:
        languages.read(write(tmp_path, "bad.conf", text))
    mistakes = "\n".join(caught.value.mistakes)
    assert "run.cpu_faktor: no such setting" in mistakes
    assert "description" in mistakes


def test_a_broken_file_is_left_out_with_a_warning_and_others_are_offered(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    write(tmp_path, "a-broken.conf", "[compile\n")
    write(tmp_path, "good.conf", GOOD)
    write(tmp_path, "same.conf", "name = good\n" + GOOD)
    write(tmp_path, "notes.txt", "not a language")
    with caplog.at_level(logging.WARNING):
        assert list(languages.load(tmp_path)) == ["good"]
    assert "a-broken.conf" in caplog.text
    assert "same.conf" in caplog.text


@pytest.mark.parametrize(
    ("command", "files", "words"),
    [
        (["cc", "{source}"], ["a.c"], ["cc", "./a.c"]),
        (["cc", "-o", "{binary}"], ["a.c"], ["cc", "-o", "./program"]),
        (["cc", "-o{binary}"], ["program", "program_/x"], ["cc", "-o./program__"]),
        (["cc", "{sources}"], ["a.c", "a.h", "d/b.c"], ["cc", "./a.c", "./d/b.c"]),
        (["cc", "{sources}"], ["readme"], ["cc", "./readme"]),
        (["java", "-Xmx{memory_mb}m", "{stem}"], ["Main.java"], ["java", "-Xmx64m", "Main"]),
        # Names that look like options stay names.
        (["cc", "{sources}"], ["-wrapper.c", "@x.c"], ["cc", "./-wrapper.c", "./@x.c"]),
        (["cc", "{"], ["a.c"], ["cc", "{"]),
    ],
)
def test_placeholders_are_filled_in(command: list[str], files: list[str], words: list[str]) -> None:
    assert expand(command, files, ".c", 64 << 20) == tuple(words)


def test_a_language_whose_program_is_not_installed_says_which(tmp_path: Path) -> None:
    text = GOOD.replace("gcc -o", "no-such-compiler -o")
    language = languages.read(write(tmp_path, "x.conf", text))
    assert language.find_missing() == "no-such-compiler"
