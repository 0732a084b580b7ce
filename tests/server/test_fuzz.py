"""A short run of the fuzzer over oj-box's messages, so that it cannot rot; see tests/fuzz/run."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

TREE = Path(__file__).resolve().parents[2]


def test_nothing_that_the_fuzzer_finds_in_ten_seconds_breaks_the_parser() -> None:
    done = subprocess.run(
        [TREE / "tests" / "fuzz" / "run", "10"], capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stdout + done.stderr
    result = json.loads(done.stdout.splitlines()[-1])
    assert result["executions"] > 1000
    assert result["edges"] > 50
