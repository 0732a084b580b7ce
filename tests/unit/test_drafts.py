"""From arguments and files to a task, and the mistakes that are named on the way."""

import hashlib
import io
import sys
import zipfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from oj import model
from oj.cli.arguments import COMPARES, STATUSES, VERDICTS, build_parser
from oj.cli.drafts import LANGUAGES, Draft, find_tests, guess_language
from oj.errors import Oversized, Rejected

DEFINITIONS = Path(__file__).resolve().parents[2] / "etc" / "languages.d"


def write(*words: object) -> tuple[model.Task, Draft]:
    draft = Draft()
    return draft.write(build_parser().parse_args(["submit", *map(str, words)])), draft


@pytest.fixture
def source(tmp_path: Path) -> Path:
    path = tmp_path / "answer.cpp"
    path.write_bytes(b"int main() {}")
    return path


def fill(directory: Path, *names: str) -> Path:
    directory.mkdir(exist_ok=True)
    for name in names:
        (directory / name).write_text(name)
    return directory


def test_the_words_of_the_command_line_are_those_of_the_model():
    assert set(STATUSES) == {status.word for status in model.Status}
    assert {*VERDICTS, "skipped"} == {verdict.word for verdict in model.Verdict}
    assert set(COMPARES) == {compare.name.lower() for compare in model.Compare}


def test_the_language_is_guessed_from_the_extension_and_said(source):
    task, draft = write(source)
    assert task.language == "cpp"
    assert draft.notes == ["language cpp, by the extension of answer.cpp"]
    assert task.source == (model.File("answer.cpp", model.Data(inline=b"int main() {}")),)


@pytest.mark.parametrize(("name", "language"), [("a.CC", "cpp"), ("a.py", "python"), ("a", "")])
def test_extensions_tell_languages(name, language):
    assert guess_language(name) == language


def test_only_languages_that_executors_come_with_are_guessed():
    defined = {path.stem for path in DEFINITIONS.glob("*.conf")}
    assert set(LANGUAGES.values()) <= defined


def test_a_given_language_is_not_guessed(source):
    task, draft = write(source, "--language", "c")
    assert (task.language, draft.notes) == ("c", [])


def test_an_unknown_extension_asks_for_the_language(tmp_path):
    fill(tmp_path, "answer.xyz")
    with pytest.raises(Rejected, match=r"answer\.xyz: give --language"):
        write(tmp_path / "answer.xyz")


def test_a_command_needs_no_source():
    task, _ = write("--command", "/bin/echo 'two words'")
    assert task.execute.command == ("/bin/echo", "two words")
    assert task.language == ""


def test_nothing_at_all_is_a_mistake():
    with pytest.raises(Rejected, match="nothing to judge"):
        write()


def test_limits_have_units(source):
    task, _ = write(
        source, "--time", "1.5s", "--wall", "10s", "--memory", "256M", "--output", "64K",
        "--processes", "4", "--disk", "1M", "--compile-time", "500ms", "--compile-memory", "1G",
    )  # fmt: skip
    assert task.execute.limits == model.Limits(1500, 10_000, 256 << 20, 64 << 10, 4, 1 << 20)
    assert task.compile.limits == model.Limits(cpu_ms=500, memory_bytes=1 << 30)


@pytest.mark.parametrize(
    "words",
    [
        ["--time", "2"],
        ["--memory", "lots"],
        ["--processes", "0"],
        ["--compare", "nearly"],
        ["--priority", "x"],
        ["--command", ""],
        ["--nonsense"],
    ],
)
def test_wrong_options_are_usage_errors(source, words, capsys):
    with pytest.raises(SystemExit) as ended:
        write(source, *words)
    assert ended.value.code == 2
    assert capsys.readouterr().err.startswith("oj: ")


def test_tests_are_pairs_in_natural_order(tmp_path):
    directory = fill(
        tmp_path / "t", "10.in", "10.ans", "2.in", "2.out", "1.in", "1.ans", "1.out", "readme.txt"
    )
    found = [(name, given.name, expected.name) for name, given, expected in find_tests(directory)]
    assert found == [("1", "1.in", "1.ans"), ("2", "2.in", "2.out"), ("10", "10.in", "10.ans")]


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["1.in", "1.ans", "2.in"], r"2\.in has no 2\.ans"),
        (["1.in", "1.ans", "2.out"], r"2\.out has no 2\.in"),
        ([f"{n}.in" for n in range(9)], r"0\.in .*2\.in has no 2\.ans \(and 6 more\)"),
        (["notes"], "holds no tests"),
    ],
)
def test_tests_without_their_pair_are_named(tmp_path, names, message):
    with pytest.raises(Rejected, match=message):
        find_tests(fill(tmp_path / "t", *names))


@pytest.mark.parametrize(("path", "message"), [("nowhere", "No such file"), ("file", "not a dir")])
def test_a_test_directory_has_to_be_one(tmp_path, path, message):
    fill(tmp_path, "file")
    with pytest.raises(Rejected, match=message):
        find_tests(tmp_path / path)


def test_one_input_and_one_expectation_are_one_test(source, tmp_path):
    fill(tmp_path, "1.in", "1.ans")
    task, _ = write(source, "--input", tmp_path / "1.in", "--expected", tmp_path / "1.ans")
    assert task.tests == (model.Test("", model.Data(inline=b"1.in"), model.Data(inline=b"1.ans")),)


def test_tests_and_input_exclude_each_other(source, tmp_path):
    with pytest.raises(Rejected, match="--tests goes without"):
        write(source, "--tests", tmp_path, "--input", source)


def test_a_tolerance_is_for_floats(source):
    with pytest.raises(Rejected, match="--tolerance is for"):
        write(source, "--tolerance", "0.1")
    assert write(source, "--compare", "floats", "--tolerance", "0.1")[0].tolerance == 0.1


def test_a_large_file_is_a_blob_and_is_not_read_into_memory(source, tmp_path):
    content = b"7" * (model.INLINE_BYTES + 1)
    (tmp_path / "big.in").write_bytes(content)
    task, draft = write(source, "--input", tmp_path / "big.in")
    digest = hashlib.sha256(content).hexdigest()
    assert task.tests[0].input == model.Data(digest=digest)
    assert draft.large == {digest: tmp_path / "big.in"}


def test_a_file_above_the_limit_of_blobs_is_refused(source, tmp_path):
    with (tmp_path / "huge").open("wb") as file:
        file.truncate(model.BLOB_BYTES + 1)
    with pytest.raises(Oversized, match="256 MiB"):
        write(source, "--data", tmp_path / "huge")


@pytest.mark.parametrize(
    ("name", "message"), [("missing.cpp", "No such file"), (".", "is a directory")]
)
def test_a_source_that_cannot_be_read_is_named(tmp_path, name, message):
    with pytest.raises(Rejected, match=message):
        write(tmp_path / name, "--language", "cpp")


def test_standard_input_is_a_source_that_needs_a_name_or_language(monkeypatch):
    with pytest.raises(Rejected, match="needs --name or --language"):
        write("-")
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"print(1)")))
    task, _ = write("-", "--language", "python")
    assert task.source == (model.File("main.py", model.Data(inline=b"print(1)")),)
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(buffer=io.BytesIO(b"print(1)")))
    task, _ = write("-", "--name", "x.py")
    assert (task.language, task.source[0].name) == ("python", "x.py")


def test_everything_else_arrives_in_the_task(source, tmp_path):
    fill(tmp_path, "table.txt")
    task, _ = write(
        source, "--user", "ann", "--priority", "-3", "--tag", "a", "--tag", "b", "--key", "k",
        "--data", tmp_path / "table.txt", "--stop-on-failure", "--compile-command", "cc -o x y",
        "--command", "./x",
    )  # fmt: skip
    assert (task.user, task.priority, task.tags, task.key) == ("ann", -3, {"a", "b"}, "k")
    assert task.data == (model.File("table.txt", model.Data(inline=b"table.txt")),)
    assert task.stop_on_failure
    assert (task.compile.command, task.execute.command) == (("cc", "-o", "x", "y"), ("./x",))


def pack(path: Path, *files: tuple[str, bytes]) -> Path:
    with zipfile.ZipFile(path, "w") as archive:
        for name, content in files:
            archive.writestr(name, content)
    return path


def test_an_archive_gives_the_sources_and_the_main_program_goes_first(tmp_path):
    packed = pack(tmp_path / "prog.zip", ("lib/main.py", b"3"), ("aid.py", b"2"), ("main.py", b"1"))
    task, draft = write("--archive", packed)
    assert [file.name for file in task.source] == ["main.py", "lib/main.py", "aid.py"]
    assert (task.language, task.source[0].data.inline) == ("python", b"1")
    assert draft.notes == ["language python, by the extension of main.py"]


def test_sources_and_data_come_from_files_and_archives_together(tmp_path, source):
    one = pack(tmp_path / "one.zip", ("x.h", b""))
    two = pack(tmp_path / "two.zip", ("in/big", bytes(100_000)), ("in/small", b"s"))
    task, draft = write(source, "--archive", one, "--data", source, "--data-archive", two)
    assert [file.name for file in task.source] == ["answer.cpp", "x.h"]
    assert [file.name for file in task.data] == ["answer.cpp", "in/big", "in/small"]
    assert draft.large == {task.data[1].data.digest: bytes(100_000)}


def test_a_bad_archive_is_named_with_the_entry(tmp_path):
    packed = pack(tmp_path / "evil.zip", ("../../etc/passwd", b""))
    with pytest.raises(Rejected, match=r"evil\.zip: entry '\.\./\.\./etc/passwd' must be relative"):
        write("--archive", packed, "--language", "c")
    with pytest.raises(Rejected, match="No such file"):
        write("--archive", tmp_path / "absent.zip")
    with pytest.raises(Rejected, match="irectory"):
        write("--archive", tmp_path)
