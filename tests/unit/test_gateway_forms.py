"""Forms taken apart: what clients send is read, what is made to cost memory is refused."""

from __future__ import annotations

import contextlib
import random
import time

import pytest

from oj.errors import Rejected
from oj.gateway import forms
from oj.gateway.problems import Problem
from oj.gateway.reading import read_form, read_task
from oj.model import MAX_TAGS

MB = 1 << 20


def part(name: str, content: bytes = b"", more: str = "") -> bytes:
    head = f'--b\r\nContent-Disposition: form-data; name="{name}"{more}\r\n\r\n'
    return head.encode() + content + b"\r\n"


END = b"--b--\r\n"


def parse(body: bytes) -> forms.Form:
    """With the bound on memory that every form keeps: what is charged is no more than twice it."""
    charged: list[int] = []
    found = forms.parse(body, b"b", {"task": MB}, charged.append)
    kept = sum(map(len, found.fields.values()))
    kept += sum(len(content) for some in found.files.values() for _, content in some)
    assert sum(charged) >= kept
    return found


def test_fields_and_files_are_found() -> None:
    body = b"".join(
        [
            b"\r\n",  # which some clients send first
            part("language", b"c"),
            part("language", b"python"),
            part(
                "source",
                b"int main;\r\n--c\r\n\r\n",
                '; filename="a.c"\r\nContent-Type: text/plain',
            ),
            part("source", b"", '; filename="b.c"'),
            part("data", b"\0\xff", "; filename*=UTF-8''%C3%A9.txt"),
            part("tags", "é".encode()),
            END,
            b"what follows",
        ]
    )
    found = parse(body)
    assert found.fields == {"language": b"c", "tags": "é".encode()}
    assert found.files == {
        "source": [("a.c", b"int main;\r\n--c\r\n\r\n"), ("b.c", b"")],
        "data": [("é.txt", b"\0\xff")],
    }


def test_every_content_comes_back_as_it_was() -> None:
    seeded = random.Random(3)
    for _ in range(300):
        contents = [
            bytes(seeded.choice(b"\r\n-a\0") for _ in range(seeded.randrange(60))) for _ in range(4)
        ]
        body = b"".join(part("data", one, '; filename="x"') for one in contents) + END
        assert [content for _, content in parse(body).files["data"]] == contents


@pytest.mark.parametrize(
    "body",
    [
        b"",
        b"--b",
        END[:-4],
        part("language", b"c"),
        part("language", b"c")[:30],
        b"x" * 2000 + b"\r\n" + part("language", b"c") + END,
        part("x" * 5000) + END,
        part("source", b"", '; filename="%s"' % ("x" * 5000)) + END,
        part("language", b"c").replace(b"--b", b"--b?") + END,
        part("language", b"c").replace(b"form-data", b"attachment") + END,
        part("") + END,
        part("language", b"c").replace(b"language", b"\xff") + END,
        part("language", b"c\r\n--bc") + END,
        part("source", b"", "; filename*=bogus''x") + END,
        part("source", b"", "; filename*=x") + END,
        part("source", b"", "; filename*=UTF-8''%FF") + END,
        part("source", b"", '; filename="x') + END,
    ],
    ids=range(17),
)
def test_a_broken_form_is_refused(body: bytes) -> None:
    with pytest.raises(Problem, match="the form is broken") as refused:
        parse(body)
    assert refused.value.status == 400


@pytest.mark.parametrize(
    ("sent", "name"),
    [
        ('filename="a.c"', "a.c"),
        ("filename=a.c", "a.c"),
        ("FileName = a.c ; x=y", "a.c"),
        ('filename="a \\"b\\" \\\\ c.c"', 'a "b" \\ c.c'),  # curl
        ('filename="C:\\src\\a.c"', "C:\\src\\a.c"),  # a browser, long ago
        ('filename="a;b=c.c"', "a;b=c.c"),
        ('filename="a%22b.c"', "a%22b.c"),  # a browser
        ('filename="é.c"', "é.c"),
        ("filename*=UTF-8''%C3%A9.c", "é.c"),
        ("filename*=utf-8'en'%C3%A9.c", "é.c"),
        ("filename*=iso-8859-1''%E9.c", "é.c"),
        ("filename=e.c; filename*=UTF-8''%C3%A9.c", "é.c"),
        ("filename*=\"UTF-8''a.c\"; filename=e.c", "a.c"),
        ('filename="a.c"; filename="b.c"', "a.c"),
        ('filename="a.c";', "a.c"),
        ('filename="x.c";foo;bar', "x.c"),
    ],
)
def test_the_name_of_a_file_is_read_as_clients_write_it(sent: str, name: str) -> None:
    assert parse(part("data", b"x", f"; {sent}") + END).files == {"data": [(name, b"x")]}
    first = f'--b\r\nContent-Disposition: form-data; {sent}; name="data"\r\n\r\nx\r\n'
    assert parse(first.encode() + END).files == {"data": [(name, b"x")]}


def test_a_file_that_was_not_chosen_is_none() -> None:
    chosen = part("data", b"x", '; filename=""') + part("source", b"", '; filename="empty.c"')
    empty = part("source", b"", '; filename=""\r\nContent-Type: application/octet-stream')
    found = parse(empty + chosen + empty + END)
    assert found.files == {"data": [("data", b"x")], "source": [("empty.c", b"")]}
    assert not found.fields


@pytest.mark.parametrize(
    "piece",
    [" ", "\t", ";", "=", '"', "\\", '\\"', "; ", ";a=b", ";a*=b", '; a="', "%", "*=UTF-8''", "'"],
)
def test_no_header_of_a_part_costs_more_than_its_length(piece: str) -> None:
    def cost_s(length: int, more: str) -> float:
        value = (f'form-data; name="data"; x={more}' + piece * length)[:length]
        times = []
        for _ in range(5):
            begun_s = time.process_time()
            for _ in range(20):
                with contextlib.suppress(Problem, ValueError):
                    forms.read_disposition(value)
            times.append(time.process_time() - begun_s)
        return min(times)

    # Four times the length: a square would be 16 times the cost.
    for more in ("", '"', "a;filename*=", 'a;filename="'):
        assert cost_s(16_000, more) < 8 * cost_s(4_000, more) + 1e-4, more


def test_a_boundary_is_as_long_as_it_may_be() -> None:
    for boundary in (b"", b"b" * 71):
        with pytest.raises(Problem, match="boundary"):
            forms.parse(b"--" + boundary + b"--", boundary, {})


def test_what_is_no_file_is_short() -> None:
    assert parse(part("task", b" " * MB) + END).fields["task"]
    for name, most in (("task", MB), ("tags", forms.MOST_FIELD_BYTES)):
        with pytest.raises(Rejected, match=f"{name} is longer than {most} bytes") as refused:
            parse(part(name, b" " * (most + 1)) + END)
        assert refused.value.field == name


def test_parts_are_charged_before_they_are_made_and_so_many_at_most() -> None:
    def refuse(_: int) -> None:
        raise Problem(429, "no more")

    with pytest.raises(Problem, match="no more"):
        forms.parse(part("data", b"x", '; filename="x"') + END, b"b", {}, refuse)
    one = part("data", b"", '; filename="x"')
    assert len(parse(one * forms.MOST_PARTS + END).files["data"]) == forms.MOST_PARTS
    with pytest.raises(Rejected, match="parts"):
        parse(one * (forms.MOST_PARTS + 1) + END)


def test_tags_of_a_form_are_counted_before_they_are_kept() -> None:
    def read(text: str) -> frozenset[str]:
        return read_task(read_form({"tags": text}, {})).tags

    assert read("a, b,,c ") == {"a", "b", "c"}
    some = [f"t{number}" for number in range(MAX_TAGS)]
    assert read(" ".join(some)) == set(some)
    body = read_form({"tags": "a " * 1_000_000}, {})
    assert len(body["tags"]) == MAX_TAGS + 1
    with pytest.raises(Rejected, match="tags has more than 32 entries") as refused:
        read_task(body)
    assert refused.value.field == "tags"
