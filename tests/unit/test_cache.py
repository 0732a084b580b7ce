"""The blob cache: fetched once, bounded, whole, and safe from several threads."""

from __future__ import annotations

import hashlib
import os
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import BinaryIO

import pytest

from oj.errors import Missing
from oj.executor.cache import Cache


class Source:
    """Where blobs come from; counts how often it was asked."""

    def __init__(self) -> None:
        self.blobs: dict[str, bytes] = {}
        self.asked: list[str] = []
        self.gate = threading.Event()
        self.gate.set()

    def add(self, content: bytes) -> str:
        digest = hashlib.sha256(content).hexdigest()
        self.blobs[digest] = content
        return digest

    def fetch(self, digest: str, into: BinaryIO) -> int:
        self.asked.append(digest)
        assert self.gate.wait(10)
        if digest not in self.blobs:
            raise Missing(f"no blob {digest}")
        return into.write(self.blobs[digest])


def count_fds() -> int:
    return len(list(Path("/proc/self/fd").iterdir()))


def read(cache: Cache, digest: str) -> bytes:
    fd = cache.open(digest)
    try:
        return os.read(fd, 1 << 20)
    finally:
        os.close(fd)


def test_a_blob_is_fetched_once_and_found_again_after_a_restart(tmp_path: Path) -> None:
    source = Source()
    digest = source.add(b"tests")
    cache = Cache(tmp_path, 1000, source.fetch)
    assert read(cache, digest) == read(cache, digest) == b"tests"
    again = Cache(tmp_path, 1000, source.fetch)
    assert read(again, digest) == b"tests"
    assert source.asked == [digest]
    assert again.total_bytes == 5


def test_many_who_want_the_same_blob_make_one_fetch(tmp_path: Path) -> None:
    source = Source()
    source.gate.clear()
    digest = source.add(b"tests")
    cache = Cache(tmp_path, 1000, source.fetch)
    got: list[bytes] = []
    threads = [threading.Thread(target=lambda: got.append(read(cache, digest))) for _ in range(8)]
    for thread in threads:
        thread.start()
    source.gate.set()
    for thread in threads:
        thread.join(10)
    assert got == [b"tests"] * 8
    assert source.asked == [digest]


def test_the_least_recently_used_goes_first_and_open_files_stay_readable(tmp_path: Path) -> None:
    source = Source()
    a, b, c = (source.add(letter * 40) for letter in (b"a", b"b", b"c"))
    cache = Cache(tmp_path, 100, source.fetch)
    held = cache.open(a)
    read(cache, b)
    read(cache, a)
    read(cache, c)  # pushes b out
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted([a, c])
    read(cache, b)  # pushes a out
    assert os.pread(held, 100, 0) == b"a" * 40
    os.close(held)
    assert source.asked == [a, b, c, b]
    assert cache.total_bytes == 80


def test_a_blob_larger_than_the_cache_is_still_served(tmp_path: Path) -> None:
    source = Source()
    digest = source.add(b"x" * 500)
    cache = Cache(tmp_path, 100, source.fetch)
    assert read(cache, digest) == b"x" * 500


def test_a_failed_fetch_leaves_nothing_and_is_tried_again(tmp_path: Path) -> None:
    source = Source()
    digest = hashlib.sha256(b"late").hexdigest()
    cache = Cache(tmp_path, 100, source.fetch)
    with pytest.raises(Missing):
        cache.open(digest)
    assert list(tmp_path.iterdir()) == []
    source.add(b"late")
    assert read(cache, digest) == b"late"


def test_half_a_blob_of_a_killed_process_is_swept(tmp_path: Path) -> None:
    source = Source()
    digest = source.add(b"whole")
    (tmp_path / f"{digest}.part").write_bytes(b"who")
    cache = Cache(tmp_path, 100, source.fetch)
    assert list(tmp_path.iterdir()) == []
    assert read(cache, digest) == b"whole"


def test_a_blob_deleted_by_hand_is_fetched_again(tmp_path: Path) -> None:
    source = Source()
    digest = source.add(b"tests")
    cache = Cache(tmp_path, 100, source.fetch)
    read(cache, digest)
    (tmp_path / digest).unlink()
    assert read(cache, digest) == b"tests"
    assert cache.total_bytes == 5


def test_a_linked_blob_is_readable_by_others_and_not_copied(tmp_path: Path) -> None:
    source = Source()
    digest = source.add(b"tests")
    (tmp_path / "cache").mkdir()
    cache = Cache(tmp_path / "cache", 100, source.fetch)
    old = os.umask(0o077)
    try:
        cache.link(digest, str(tmp_path / "data.txt"))
    finally:
        os.umask(old)
    info = (tmp_path / "data.txt").stat()
    assert (info.st_nlink, info.st_mode & 0o777) == (2, 0o644)


def test_slots_that_push_out_each_others_blobs_still_get_theirs(tmp_path: Path) -> None:
    source = Source()
    digests = [source.add(bytes([n]) * 10) for n in range(8)]
    cache = Cache(tmp_path, 15, source.fetch)  # room for one

    def slot(number: int) -> None:
        for turn in range(300):
            digest = digests[(turn * 3 + number) % len(digests)]
            assert read(cache, digest) == source.blobs[digest]

    fds = count_fds()
    with ThreadPoolExecutor(4) as slots:
        list(slots.map(slot, range(4)))
    assert count_fds() == fds
    assert cache.total_bytes == sum(path.stat().st_size for path in tmp_path.iterdir()) <= 15
