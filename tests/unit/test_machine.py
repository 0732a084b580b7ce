"""What `oj doctor` makes of a unit's status line."""

from __future__ import annotations

import pytest

from oj.cli.machine import tell_trouble


@pytest.mark.parametrize(
    ("status", "trouble"),
    [
        ("degraded: etcd is away", "is degraded: etcd is away"),
        ("check failed: no answer", "its check failed: no answer"),
        ("2 slots, 1 running", ""),
        ("", ""),
    ],
)
def test_trouble_ends_the_sentence_that_a_unit_runs(status: str, trouble: str) -> None:
    assert tell_trouble(status) == trouble
