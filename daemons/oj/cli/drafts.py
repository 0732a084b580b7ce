"""From the arguments of `oj submit` and the files they name to a task."""

from __future__ import annotations

import argparse
import sys
from pathlib import Path

from oj import model
from oj.calls import digest_of
from oj.errors import Oversized, Rejected
from oj.pairs import pair_tests

# Of the definitions that come with the executors.
LANGUAGES = {
    ".c": "c",
    ".cc": "cpp",
    ".cpp": "cpp",
    ".cxx": "cpp",
    ".c++": "cpp",
    ".py": "python",
    ".java": "java",
    ".js": "javascript",
    ".mjs": "javascript",
    ".go": "go",
    ".rs": "rust",
    ".rb": "ruby",
    ".pas": "pascal",
    ".hs": "haskell",
    ".pl": "perl",
    ".lua": "lua",
    ".sh": "bash",
    ".awk": "awk",
    ".ml": "ocaml",
    ".php": "php",
}


def guess_language(name: str) -> str:
    """The language that a file's extension tells, or ''."""
    return LANGUAGES.get(Path(name).suffix.lower(), "")


def find_tests(directory: Path) -> list[tuple[str, Path, Path]]:
    """The (name, input, expected) of each test in a directory, in natural order."""
    try:
        files = {path.name: path for path in directory.iterdir() if path.is_file()}
    except NotADirectoryError:
        raise Rejected(f"{directory} is not a directory") from None
    except OSError as error:
        raise Rejected(f"{directory}: {error.strerror}") from None
    return [
        (name, files[given], files[expected])
        for name, given, expected in pair_tests(files, str(directory))
    ]


def main_first(files: tuple[model.File, ...]) -> tuple[model.File, ...]:
    """The file that is the program goes first: main.* or Main.*, the least deep one."""

    def key(file: model.File) -> tuple[bool, int]:
        is_main = Path(file.name).stem in ("main", "Main") and bool(guess_language(file.name))
        return not is_main, file.name.count("/") if is_main else 0

    return tuple(sorted(files, key=key))


class Draft:
    """A task in the making; `large` are the contents to be stored first, by digest."""

    def __init__(self) -> None:
        self.large: dict[str, bytes | Path] = {}
        self.notes: list[str] = []

    def load(self, path: Path) -> model.Data:
        """A file's content: itself, or the digest of a blob where it is large."""
        try:
            if path.is_dir():
                raise Rejected(f"{path} is a directory")
            if path.is_file() and path.stat().st_size > model.INLINE_BYTES:
                if path.stat().st_size > model.BLOB_BYTES:
                    raise Oversized(f"{path} is larger than 256 MiB", model.BLOB_BYTES)
                digest = digest_of(path)
                self.large[digest] = path
                return model.Data(digest=digest)
            with path.open("rb") as file:
                return self.hold(file.read(model.BLOB_BYTES + 1), str(path))
        except OSError as error:
            raise Rejected(f"{path}: {error.strerror}") from None

    def hold(self, content: bytes, name: str) -> model.Data:
        if len(content) > model.BLOB_BYTES:
            raise Oversized(f"{name} is larger than 256 MiB", model.BLOB_BYTES)
        if len(content) <= model.INLINE_BYTES:
            return model.Data(inline=content)
        digest = digest_of(content)
        self.large[digest] = content
        return model.Data(digest=digest)

    def unpack(self, path: Path) -> tuple[model.File, ...]:
        """The files of an archive."""
        from oj import archive

        try:
            with path.open("rb") as file:
                if not file.seekable():
                    raise Rejected(f"{path} is not a plain file")
                files = archive.unpack(file, str(path))
        except OSError as error:
            raise Rejected(f"{path}: {error.strerror or error}") from None
        return tuple(
            model.File(name, self.hold(content, f"{path}: {name}")) for name, content in files
        )

    def _load_data(self, arguments: argparse.Namespace) -> tuple[model.File, ...]:
        files = [model.File(Path(word).name, self.load(Path(word))) for word in arguments.data]
        for word in arguments.data_archive:
            files += self.unpack(Path(word))
        return tuple(files)

    def _load_source(self, word: str, arguments: argparse.Namespace) -> model.File:
        if word != "-":
            return model.File(Path(word).name, self.load(Path(word)))
        name = arguments.name
        if not name and arguments.language:
            endings = [ending for ending, name in LANGUAGES.items() if name == arguments.language]
            stem = "Main" if arguments.language in ("java", "haskell") else "main"
            name = stem + (endings[0] if endings else "")
        if not name:
            raise Rejected("a source from standard input needs --name or --language")
        content = sys.stdin.buffer.read(model.BLOB_BYTES + 1)
        return model.File(name, self.hold(content, "standard input"))

    def write(self, arguments: argparse.Namespace) -> model.Task:
        """The task that the arguments describe."""
        if not (arguments.file or arguments.archive or arguments.command):
            raise Rejected("nothing to judge: give a source FILE, an --archive, or --command")
        if arguments.file.count("-") > 1:
            raise Rejected("'-' can be given once")
        if arguments.tests and (arguments.input or arguments.expected):
            raise Rejected("--tests goes without --input and --expected")
        if arguments.tolerance is not None and arguments.compare != "floats":
            raise Rejected("--tolerance is for --compare floats")
        source = tuple(self._load_source(word, arguments) for word in arguments.file)
        if arguments.archive:
            source += main_first(self.unpack(Path(arguments.archive)))
        compare = model.Compare[(arguments.compare or "tokens").upper()]
        return model.Task(
            language=self._choose_language(arguments, source),
            source=source,
            data=self._load_data(arguments),
            compile=model.Step(
                arguments.compile_command or (),
                model.Limits(
                    cpu_ms=_ms(arguments.compile_time),
                    wall_ms=_ms(arguments.compile_wall),
                    memory_bytes=arguments.compile_memory,
                ),
            ),
            execute=model.Step(
                arguments.command or (),
                model.Limits(
                    cpu_ms=_ms(arguments.time),
                    wall_ms=_ms(arguments.wall),
                    memory_bytes=arguments.memory,
                    output_bytes=arguments.output,
                    processes=arguments.processes,
                    disk_bytes=arguments.disk,
                ),
            ),
            tests=self._load_tests(arguments),
            user=arguments.user or "",
            priority=arguments.priority,
            tags=frozenset(arguments.tag),
            key=arguments.key,
            compare=compare,
            tolerance=1e-6 if arguments.tolerance is None else arguments.tolerance,
            stop_on_failure=arguments.stop_on_failure,
            webhook=arguments.webhook,
        )

    def _choose_language(
        self, arguments: argparse.Namespace, source: tuple[model.File, ...]
    ) -> str:
        if arguments.language:
            return str(arguments.language)
        if arguments.command:
            return ""
        language = guess_language(source[0].name)
        if not language:
            raise Rejected(f"cannot tell the language of {source[0].name}: give --language")
        self.notes.append(f"language {language}, by the extension of {source[0].name}")
        return language

    def _load_tests(self, arguments: argparse.Namespace) -> tuple[model.Test, ...]:
        if arguments.tests:
            return tuple(
                model.Test(name, self.load(given), self.load(expected))
                for name, given, expected in find_tests(Path(arguments.tests))
            )
        if not arguments.input and not arguments.expected:
            return ()
        return (
            model.Test(
                "",
                self.load(Path(arguments.input)) if arguments.input else None,
                self.load(Path(arguments.expected)) if arguments.expected else None,
            ),
        )


def _ms(seconds: float | None) -> int | None:
    """Of less than a millisecond, one; nothing stays nothing, and is refused as such."""
    return None if seconds is None else max(round(seconds * 1000), int(seconds > 0))
