"""A form with files (multipart/form-data, RFC 7578), taken apart in memory, each part bounded.

Not with Werkzeug's parser: its releases in Debian 12 and 13 differ in what they bound. It copies a
header of 60 MB eight times, looks through a preamble of 60 MB for a boundary, makes one value of a
field of any size, and has files go through temporary ones on disk. Here the body is in memory
already, and charged. Nothing is copied of it but the contents of parts, once, after that was
charged too; what is neither a file nor the field of JSON is short.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from urllib.parse import unquote_to_bytes

from oj.errors import Rejected
from oj.gateway.problems import Problem
from oj.model import MAX_FILES, MAX_TESTS

MOST_BOUNDARY_BYTES = 70  # by RFC 2046
MOST_PREAMBLE_BYTES = 1 << 10
MOST_HEADER_BYTES = 4 << 10  # of a part: a name is 1 KiB at most, or three if it is quoted
MOST_FIELD_BYTES = 8 << 10
MOST_PARTS = 2 * MAX_TESTS + 2 * MAX_FILES + 64
PART_BYTES = 2 << 10  # what a part costs besides its content
_QUOTED = re.compile(r'"((?:[^"\\]|\\.)*)"')
_ESCAPED = re.compile(r'\\(["\\])')
_CHARSETS = ("utf-8", "iso-8859-1", "us-ascii")


@dataclass
class Form:
    """Plain fields, of which the first of a name counts, and files, with the names they came by."""

    fields: dict[str, bytes] = field(default_factory=dict)
    files: dict[str, list[tuple[str, bytes]]] = field(default_factory=dict)


def parse(
    body: bytes,
    boundary: bytes,
    most_bytes: dict[str, int],
    charge: Callable[[int], None] = lambda _: None,
) -> Form:
    """The parts of a form; `most_bytes` is of fields that may have more than a few words, and
    `charge` is told what memory it takes before it takes any."""
    if not 1 <= len(boundary) <= MOST_BOUNDARY_BYTES:
        raise Problem(400, "the form does not say what its boundary is")
    delimiter = b"\r\n--" + boundary
    if body.startswith(delimiter[2:]):
        at = len(delimiter) - 2
    else:
        at = body.find(delimiter, 0, MOST_PREAMBLE_BYTES) + len(delimiter)
        if at < len(delimiter):
            raise _broken("it does not begin with its boundary")
    form = Form()
    for _ in range(MOST_PARTS + 1):
        if body.startswith(b"--", at):
            return form
        start, name, filename = _read_header(body, at)
        stop = body.find(delimiter, start)
        if stop < 0:
            raise _broken("it does not end with its boundary")
        charge(stop - start + PART_BYTES)
        if filename == "" and start == stop:
            pass  # a field for a file that was left empty, as browsers send it
        elif filename is not None:
            form.files.setdefault(name, []).append((filename or name, body[start:stop]))
        else:
            most = most_bytes.get(name, MOST_FIELD_BYTES)
            if stop - start > most:
                raise Rejected(f"{name[:40]} is longer than {most} bytes", name[:40])
            form.fields.setdefault(name, body[start:stop])
        at = stop + len(delimiter)
    raise Rejected(f"the form has more than {MOST_PARTS} parts")


def _read_header(body: bytes, at: int) -> tuple[int, str, str | None]:
    """Of a part, behind its boundary: where its content begins, its name, and that of the file."""
    end = body.find(b"\r\n\r\n", at, at + MOST_HEADER_BYTES)
    if end < 0:
        raise _broken(f"a part has no header, or one of more than {MOST_HEADER_BYTES} bytes")
    padding, *lines = body[at:end].split(b"\r\n")
    if padding.strip(b" \t"):
        raise _broken("there is something behind a boundary")
    for line in lines:
        key, _, value = line.partition(b":")
        if key.strip().lower() != b"content-disposition":
            continue
        try:
            kind, options = read_disposition(value.decode())
        except ValueError:
            raise _broken("a header is not UTF-8") from None
        if kind != "form-data" or not options.get("name"):
            break
        return end + 4, options["name"], options.get("filename")
    raise _broken("a part has no name")


def read_disposition(value: str) -> tuple[str, dict[str, str]]:
    """The kind and the parameters of a Content-Disposition, in one pass along it.

    As clients write them: browsers quote and leave backslashes alone (a path of Windows), curl
    writes one in front of a quote or another one, and some libraries send
    `filename*=UTF-8''%C3%A9`, which counts before `filename`.
    """
    kind, _, rest = value.partition(";")
    plain: dict[str, str] = {}
    extended: dict[str, str] = {}
    at = 0
    while (equals := rest.find("=", at)) >= 0:
        key = rest[at:equals].rpartition(";")[2].strip().lower()
        at = equals + 1
        while rest[at : at + 1] in (" ", "\t"):
            at += 1
        if rest.startswith('"', at):
            quoted = _QUOTED.match(rest, at)
            if quoted is None:
                raise _broken("a quote in a header does not end")
            text, at = _ESCAPED.sub(r"\1", quoted[1]), quoted.end()
        else:
            end = rest.find(";", at)
            end = len(rest) if end < 0 else end
            text, at = rest[at:end].strip(), end
        if key.endswith("*"):
            extended.setdefault(key[:-1], _decode(text))
        else:
            plain.setdefault(key, text)
    return kind.strip().lower(), plain | extended


def _decode(text: str) -> str:
    """UTF-8'en'%C3%A9, as in RFC 5987."""
    charset, _, rest = text.partition("'")
    _, found, quoted = rest.partition("'")
    if not found or charset.lower() not in _CHARSETS:
        raise _broken(f"a header is in {charset[:20]!r}, and not in UTF-8")
    return unquote_to_bytes(quoted).decode(charset)


def _broken(why: str) -> Problem:
    return Problem(400, f"the form is broken: {why}")
