"""The smallest programs there are, one for each language that comes with the executors."""

from __future__ import annotations

from oj import model
from oj.errors import Rejected

_C = ("main.c", "int main(void) { return 0; }\n")
_CPP = ("main.cpp", "int main() {}\n")
PROGRAMS = {
    "awk": ("main.awk", "BEGIN { exit 0 }\n"),
    "bash": ("main.sh", "exit 0\n"),
    "c": _C,
    "cpp": _CPP,
    "cpp11": _CPP,
    "cpp14": _CPP,
    "cpp17": _CPP,
    "cpp20": _CPP,
    "go": ("main.go", "package main\n\nfunc main() {}\n"),
    "haskell": ("Main.hs", "main :: IO ()\nmain = return ()\n"),
    "java": ("Main.java", "public class Main { public static void main(String[] words) {} }\n"),
    "javascript": ("main.js", "process.exitCode = 0;\n"),
    "lua": ("main.lua", "local nothing = 0\n"),
    "ocaml": ("main.ml", "let () = ()\n"),
    "pascal": ("main.pas", "begin\nend.\n"),
    "perl": ("main.pl", "exit 0;\n"),
    "php": ("main.php", "<?php exit(0);\n"),
    "python": ("main.py", "pass\n"),
    "ruby": ("main.rb", "exit 0\n"),
    "rust": ("main.rs", "fn main() {}\n"),
}


def make_task(language: str | None) -> model.Task:
    """One that does next to nothing: in a language, or just /bin/true."""
    if language is None:
        return model.Task(execute=model.Step(("/bin/true",)))
    if language not in PROGRAMS:
        raise Rejected(f"there is no tiny program in '{language}', only in {', '.join(PROGRAMS)}")
    name, text = PROGRAMS[language]
    return model.Task(
        language=language, source=(model.File(name, model.Data(inline=text.encode())),)
    )
