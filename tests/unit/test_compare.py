"""Output against expected output: every rule, and the same in small and large."""

from __future__ import annotations

import os
import random
import time
import tracemalloc

import pytest

from oj.executor.compare import CHUNK_BYTES, Bytes, compare, show
from oj.model import Compare

EXACT, TOKENS, FLOATS = Compare.EXACT, Compare.TOKENS, Compare.FLOATS
CHUNKS = [1, 2, 3, 7, CHUNK_BYTES]


def diff(
    output: bytes,
    expected: bytes,
    how: Compare,
    tolerance: float = 1e-6,
    chunk_bytes: int = CHUNK_BYTES,
) -> str | None:
    found = compare(Bytes.of(output), Bytes.of(expected), how, tolerance, chunk_bytes)
    return None if found is None else found.where


RIGHT = [
    (b"", b"", EXACT),
    (b"4\n", b"4\n", EXACT),
    (b"a\0b", b"a\0b", EXACT),
    (b"", b"", TOKENS),
    (b"", b" \n\t", TOKENS),
    (b"4", b"4\n", TOKENS),
    (b"  1 2\t3\r\n\n", b"1\n2\n3", TOKENS),
    (b"word" * 50, b"word" * 50 + b"\n", TOKENS),
    (b"1.0000001", b"1", FLOATS),
    (b"1000000.5", b"1000000", FLOATS),
    (b"-0.0000001", b"0", FLOATS),
    (b"1e3 x", b"1000.0 x", FLOATS),
    (b"inf nan", b"inf nan", FLOATS),
    (b"1" * 400, b"1" * 400, FLOATS),
    (b"1.7976931348623157e308", b"1.7976931348623156e308", FLOATS),
    (b"1e-400", b"0", FLOATS),
    (b"1" + b"0" * 300 + b"e-300", b"1", FLOATS),
]
WRONG = [
    (b"4", b"4\n", EXACT),
    (b"4\n", b"4", EXACT),
    (b"5\n", b"4\n", EXACT),
    (b"", b"4", EXACT),
    (b"12", b"1 2", TOKENS),
    (b"1 2", b"12", TOKENS),
    (b"1", b"1 2", TOKENS),
    (b"1 2", b"1", TOKENS),
    (b"", b"1", TOKENS),
    (b"1.0", b"1", TOKENS),
    (b"word" * 50 + b" ", b"word" * 50 + b"x", TOKENS),
    (b"1.00001", b"1", FLOATS),
    (b"x", b"y", FLOATS),
    (b"1_0", b"10", FLOATS),
    (b"nan", b"1", FLOATS),
    (b"1", b"inf", FLOATS),
    (b"-inf", b"inf", FLOATS),
    (b"0x10", b"16", FLOATS),
    (b"0x1p4", b"16", FLOATS),
    (b"1__0", b"10", FLOATS),
    (b"1e1_0", b"1e10", FLOATS),
    (b"inf", b"1" * 310, FLOATS),
    (b"Infinity", b"9" * 400, FLOATS),
    (b"1e999", b"1" * 310, FLOATS),
    (b"1" * 310, b"1e999", FLOATS),
    (b"-inf", b"-" + b"1" * 310, FLOATS),
    (b"1e999", b"2e999", FLOATS),
    (b"1e99999999999999999999", b"1" * 310, FLOATS),
    (b"nan", b"NaN", FLOATS),
    (b"Infinity", b"inf", FLOATS),
    (b"1e308", b"1.1e308", FLOATS),
    (b"-1.7e308", b"1.7e308", FLOATS),
]


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize(("output", "expected", "how"), RIGHT)
def test_right_output_is_right(
    output: bytes, expected: bytes, how: Compare, chunk_bytes: int
) -> None:
    if how is FLOATS:  # a number longer than a chunk is a word
        chunk_bytes = max(chunk_bytes, len(output), len(expected))
    assert diff(output, expected, how, chunk_bytes=chunk_bytes) is None


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize(("output", "expected", "how"), WRONG)
def test_wrong_output_is_wrong(
    output: bytes, expected: bytes, how: Compare, chunk_bytes: int
) -> None:
    assert diff(output, expected, how, chunk_bytes=chunk_bytes)


@pytest.mark.parametrize(
    ("output", "expected", "how", "message"),
    [
        (b"2\n3\n5\n", b"2\n3\n4\n", TOKENS, 'line 3: "5" is wrong'),
        (b"2\n\n\n3 5", b"2 3 4", TOKENS, 'line 4: "5" is wrong'),
        (b"2\n", b"2\n4\n", TOKENS, "the output ends too early"),
        (b"2\n4\n", b"2", TOKENS, 'line 2: "4" is more than was expected'),
        (b"2\n3.5\n", b"2\n3.4\n", FLOATS, 'line 2: "3.5" is wrong'),
        (b"a\nbx\n", b"a\nby\n", EXACT, "line 2: wrong from byte 2 of it on"),
        (b"a\nb", b"a\nb\n", EXACT, "the output ends too early, in line 2"),
        (b"", b"a\n", EXACT, "the output ends too early, in line 1"),
        (b"a\nb\n", b"a\n", EXACT, "line 2: more than was expected from byte 1 of it on"),
        (b"a\nbcd", b"a\nb", EXACT, "line 2: more than was expected from byte 2 of it on"),
    ],
)
def test_the_message_tells_where_it_is_wrong(
    output: bytes, expected: bytes, how: Compare, message: str
) -> None:
    for chunk_bytes in (64, CHUNK_BYTES):
        assert diff(output, expected, how, chunk_bytes=chunk_bytes) == message


@pytest.mark.parametrize("chunk_bytes", CHUNKS)
@pytest.mark.parametrize(
    ("output", "expected", "in_space"),
    [
        (b"4", b"4\n", True),
        (b"4\n\n", b"4\n", True),
        (b"", b"\n", True),
        (b"1  2\n", b"1 2\n", True),
        (b"1 2\r\n", b"1 2\n", True),
        (b"word" * 50, b"word" * 50 + b" ", True),
        (b"12\n", b"1 2\n", False),
        (b"1 2\n", b"12\n", False),
        (b"1.0\n", b"1\n", False),
        (b"", b"4\n", False),
        (b"4 5\n", b"4\n", False),
        (b"4\0\n", b"4\n", False),
        (b"4\xc2\xa0\n", b"4\n", False),
    ],
)
def test_an_exact_comparison_tells_whether_only_white_space_differs(
    output: bytes, expected: bytes, in_space: bool, chunk_bytes: int
) -> None:
    found = compare(Bytes.of(output), Bytes.of(expected), EXACT, 0, chunk_bytes)
    assert found is not None
    assert found.in_space == in_space


def test_other_comparisons_never_blame_white_space() -> None:
    for how in (TOKENS, FLOATS):
        found = compare(Bytes.of(b"1 2"), Bytes.of(b"1  3"), how, 0)
        assert found is not None
        assert not found.in_space


@pytest.mark.parametrize("how", [EXACT, TOKENS, FLOATS])
@pytest.mark.parametrize("output", [b"", b"1\n2\n", b"1\nwrong", b"1\nSECRE", b"1\nSECRET 3 4"])
def test_the_message_never_tells_what_was_expected(output: bytes, how: Compare) -> None:
    message = diff(output, b"1\nSECRET 7\n", how)
    assert message is not None
    assert "7" not in message
    assert b"SECRET" in output or "SECRET" not in message


def test_the_tolerance_is_absolute_or_relative() -> None:
    assert diff(b"1.05", b"1", FLOATS, 0.1) is None
    assert diff(b"1050", b"1000", FLOATS, 0.1) is None
    assert diff(b"0.05", b"0", FLOATS, 0.1) is None
    assert diff(b"1150", b"1000", FLOATS, 0.1)
    assert diff(b"1", b"1.0", FLOATS, 0.0) is None


def test_numbers_near_the_largest_are_compared_by_the_tolerance() -> None:
    # Their difference is beyond what a float holds, and so is the tolerated one.
    assert diff(b"-1.7e308", b"1.7e308", FLOATS, 1.5)
    assert diff(b"-1.7e308", b"1.7e308", FLOATS, 2.5) is None
    assert diff(b"1.7e308", b"1e308", FLOATS, 3.0) is None


@pytest.mark.parametrize(
    ("output", "expected"),
    [
        (b"0" * 8 + b"1.5", b"0" * 8 + b"1.50"),
        (b"3.1415926" + b"0001", b"3.1415926" + b"1"),
        (b"00000000", b"0000000000"),
        (b"123456781e5", b"12345678100000"),
    ],
)
def test_a_part_of_a_number_is_no_number(output: bytes, expected: bytes) -> None:
    # Words longer than a chunk are compared in pieces.
    assert diff(output, expected, FLOATS, chunk_bytes=8)
    assert diff(output, output, FLOATS, chunk_bytes=8) is None
    assert diff(output + b" 1.0", output + b"\n1", FLOATS, chunk_bytes=8) is None


def _long_number(digits: int) -> tuple[bytes, bytes]:
    return b"0." + b"7" * digits, b"0." + b"7" * (digits - 1) + b"8"


def test_long_numbers_cost_time_in_proportion_to_their_length() -> None:
    def cost_s(digits: int, repeated: int) -> float:
        sides = [b" ".join([word] * repeated) for word in _long_number(digits)]
        best_s = float("inf")
        for _ in range(5):
            begun_s = time.thread_time()
            for _ in range(4):
                diff(sides[0], sides[1], FLOATS)
            best_s = min(best_s, time.thread_time() - begun_s)
        return best_s

    # The same number of bytes: quadratic time would need thirty times as long.
    assert cost_s(60_000, 16) < 8 * cost_s(2_000, 480)


def test_small_and_chunked_comparison_agree_on_random_texts() -> None:
    dice = random.Random(7)
    for _ in range(400):
        words = [
            dice.choice([b"a", b"bb", b"ccc", b"1", b"1.0"]) for _ in range(dice.randint(0, 9))
        ]
        other = list(words)
        if other and dice.random() < 0.5:
            other[dice.randrange(len(other))] = dice.choice([b"a", b"bb", b"x"])
        space = [b" ", b"\n", b"\r\n", b"\t \n"]
        output = b"".join(word + dice.choice(space) for word in words)
        expected = b"".join(word + dice.choice(space) for word in other)
        right = words == other
        for chunk_bytes in (1, 2, 5, CHUNK_BYTES):
            found = diff(output, expected, TOKENS, chunk_bytes=chunk_bytes)
            assert (found is None) == right, (output, expected, chunk_bytes)


def test_what_is_shown_of_a_stranger_is_short_and_printable() -> None:
    assert show(b'a"\\\x1b[31m\n') == r'"a\"\\\x1b[31m\n"'
    assert show(b"\xff\xfe") == '"��"'
    assert show(b"x" * 10_000) == '"' + "x" * 40 + '"…'
    assert len(show("é".encode() * 1000)) < 60


@pytest.mark.parametrize("lasts", [(b"1", b"2"), (b"1", b"1 \n")])
@pytest.mark.parametrize("how", [EXACT, TOKENS, FLOATS])
@pytest.mark.parametrize("content", [b"1234567 ", b"x"])
def test_large_files_are_compared_in_bounded_memory(
    how: Compare, content: bytes, lasts: tuple[bytes, bytes]
) -> None:
    size_bytes = 4 << 20
    right = how is not EXACT and lasts[0] == lasts[1].strip()
    descriptors = []
    for last in lasts:
        fd = os.memfd_create("side")
        descriptors.append(fd)
        for _ in range(4):
            os.write(fd, content * ((1 << 20) // len(content)))
        os.write(fd, last)
    try:
        tracemalloc.start()
        sides = [Bytes.of_file(fd) for fd in descriptors]
        found = compare(sides[0], sides[1], how, 1e-9)
        assert (found is None) == right
        if found is not None:
            assert found.in_space == (lasts[0] == lasts[1].strip())
        assert compare(sides[0], sides[0], how, 1e-9) is None
        assert tracemalloc.get_traced_memory()[1] < size_bytes / 2
    finally:
        tracemalloc.stop()
        for fd in descriptors:
            os.close(fd)


def test_a_file_is_compared_only_up_to_the_size_that_is_given() -> None:
    fd = os.memfd_create("side")
    try:
        os.write(fd, b"4 5")
        assert compare(Bytes.of_file(fd, 1), Bytes.of(b"4"), TOKENS, 0) is None
    finally:
        os.close(fd)
