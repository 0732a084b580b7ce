"""Kept results: what is written is found again, what is damaged is not."""

from __future__ import annotations

from pathlib import Path

from oj.executor.spool import Spool
from oj.rpc import ttypes as rpc


def completed(number: int, text: bytes = b"42\n") -> rpc.Completed:
    outcome = rpc.Outcome(cpu_ms=1, exit_code=0, stdout_data=text)
    result = rpc.Result(10, 1, tests=[rpc.TestResult("1", 1, outcome)], score=1.0)
    return rpc.Completed(f"{number:024x}", 1, "incarnation-1", result)


def test_results_survive_a_new_process_with_their_own_incarnation(tmp_path: Path) -> None:
    first = Spool(tmp_path)
    for number in range(3):
        first.keep(completed(number, b"\xff\0" * number))
    first.sync()
    found = Spool(tmp_path).load()
    assert [c for c, _ in found] == [completed(n, b"\xff\0" * n) for n in range(3)]
    assert {c.incarnation for c, _ in found} == {"incarnation-1"}


def test_an_acknowledged_result_is_gone(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    for number in range(2):
        spool.keep(completed(number))
    spool.forget(completed(0).id, 1)
    spool.forget(completed(0).id, 1)
    spool.sync()
    assert [c for c, _ in Spool(tmp_path).load()] == [completed(1)]


def test_a_file_cut_at_any_byte_is_dropped_and_the_others_are_loaded(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    size_bytes = spool.keep(completed(1))
    spool.keep(completed(2))
    path = tmp_path / f"{completed(1).id}-1.result"
    whole = path.read_bytes()
    assert len(whole) == size_bytes + 4
    for length in range(len(whole)):
        path.write_bytes(whole[:length])
        assert [c for c, _ in Spool(tmp_path).load()] == [completed(2)]
        assert not path.exists()
    path.write_bytes(whole[:-1] + b"\xff")
    assert [c for c, _ in Spool(tmp_path).load()] == [completed(2)]


def test_sync_passes_over_what_was_acknowledged_meanwhile(tmp_path: Path) -> None:
    spool = Spool(tmp_path)
    spool.keep(completed(1))
    (tmp_path / f"{completed(1).id}-1.result").unlink()
    spool.sync()
    assert spool.load() == []
