"""Tests by the names of their files: NAME.in with NAME.ans (or NAME.out)."""

from __future__ import annotations

import re
from collections.abc import Iterable

from oj.errors import Rejected


def natural_key(name: str) -> list[tuple[int, int, str]]:
    """Sorts test 2 before test 10."""
    parts = re.split(r"(\d+)", name)
    return [(0, int(p), p) if p.isdecimal() else (1, 0, p) for p in parts if p]


def pair_tests(names: Iterable[str], where: str) -> list[tuple[str, str, str]]:
    """The (name, input, expected) of each test, in natural order; others' names do not matter."""
    known = set(names)
    inputs = {name.removesuffix(".in") for name in known if name.endswith(".in")} - {""}
    answers: dict[str, str] = {}
    for suffix in (".out", ".ans"):  # .ans goes before .out where there are both
        answers |= {n.removesuffix(suffix): n for n in known if n.endswith(suffix) and n != suffix}
    problems = [f"{name}.in has no {name}.ans" for name in inputs - set(answers)]
    problems += [f"{answers[name]} has no {name}.in" for name in set(answers) - inputs]
    if problems:
        more = f" (and {len(problems) - 3} more)" if len(problems) > 3 else ""
        listed = "; ".join(sorted(problems, key=natural_key)[:3])
        raise Rejected(f"{where}: {listed}{more}")
    if not inputs:
        raise Rejected(f"{where} holds no tests: no NAME.in with a NAME.ans")
    return [(name, f"{name}.in", answers[name]) for name in sorted(inputs, key=natural_key)]
