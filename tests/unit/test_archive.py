"""Archives as people make them, and as people make them to do harm."""

from __future__ import annotations

import bz2
import contextlib
import gzip
import io
import lzma
import random
import stat
import struct
import tarfile
import time
import tracemalloc
import zipfile
from collections.abc import Callable

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from oj.archive import Bounds, unpack
from oj.errors import Oversized, Rejected

Entries = list[tuple[str, bytes]]
FILES: Entries = [("main.c", b"int main;\n" * 100), ("lib/π.h", b""), ("lib/a b.h", bytes(5000))]
SMALL = Bounds(files=8, entries=16, file_bytes=10_000, total_bytes=20_000)


def make_tar(files: Entries, form: int = tarfile.PAX_FORMAT, prefix: str = "") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name, content in files:
            info = tarfile.TarInfo(prefix + name)
            info.size = len(content)
            info.mtime = 1.5
            tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def make_zip(files: Entries, method: int = zipfile.ZIP_DEFLATED) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", method) as archive:
        for name, content in files:
            archive.writestr(name, content)
    return out.getvalue()


def tar_entry(name: str = "x", **fields: object) -> bytes:
    """A tar with one entry that is not a plain file."""
    info = tarfile.TarInfo(name)
    for key, value in fields.items():
        setattr(info, key, value)
    # Not by TarFile.addfile, which since Python 3.13 refuses a size without content.
    header = info.tobuf(tarfile.GNU_FORMAT, errors="surrogateescape")
    return header.ljust(tarfile.RECORDSIZE, b"\0")


def zip_entry(name: str = "x", content: bytes = b"", **fields: object) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        info = zipfile.ZipInfo("placeholder")
        info.filename = info.orig_filename = name
        for key, value in fields.items():
            setattr(info, key, value)
        archive.writestr(info, content)
    return out.getvalue()


def mode(kind: int) -> int:
    return (kind | 0o777) << 16


PACKED: dict[str, bytes] = {
    "tar": make_tar(FILES),
    "ustar": make_tar(FILES, tarfile.USTAR_FORMAT),
    "gnu": make_tar(FILES, tarfile.GNU_FORMAT),
    "dots": make_tar(FILES, prefix="./"),
    "gz": gzip.compress(make_tar(FILES)),
    "two gz": gzip.compress(make_tar(FILES)[:700]) + gzip.compress(make_tar(FILES)[700:]),
    "bz2": bz2.compress(make_tar(FILES)),
    "two bz2": bz2.compress(make_tar(FILES)[:700]) + bz2.compress(make_tar(FILES)[700:]),
    "xz": lzma.compress(make_tar(FILES)),
    "zip": make_zip(FILES),
    "stored": make_zip(FILES, zipfile.ZIP_STORED),
}


@pytest.mark.parametrize("packed", PACKED.values(), ids=PACKED.keys())
def test_each_form_gives_back_what_was_packed(packed: bytes) -> None:
    assert unpack(packed) == FILES
    assert unpack(io.BytesIO(packed)) == FILES


@pytest.mark.parametrize("form", [tarfile.PAX_FORMAT, tarfile.GNU_FORMAT])
def test_long_names_of_both_dialects_are_understood(form: int) -> None:
    files = [("d/" * 100 + "x" * 200, b"deep"), ("y", b"")]
    assert unpack(make_tar(files, form)) == files
    assert unpack(make_zip(files)) == files


def test_directories_are_entries_but_not_files() -> None:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w") as tar:
        for name in ("./", "./a", "a/b"):
            info = tarfile.TarInfo(name)
            info.type = tarfile.DIRTYPE
            tar.addfile(info)
        tar.addfile(tarfile.TarInfo("./a/b/c"))
    assert unpack(out.getvalue()) == [("a/b/c", b"")]
    assert unpack(make_zip([("a/", b""), ("a/b/", b""), ("a/b/c", b"")])) == [("a/b/c", b"")]


def with_end(packed: bytes, **changes: int) -> bytes:
    """A zip whose end record has other numbers."""
    names = ("disk", "first", "here", "entries", "size", "offset", "comment")
    fields = list(struct.unpack("<4H2LH", packed[-18:]))
    for name, value in changes.items():
        fields[names.index(name)] = value
    return packed[:-18] + struct.pack("<4H2LH", *fields)


def twice() -> bytes:
    with pytest.warns(UserWarning):
        return make_zip([("a", b""), ("a", b"")])


def pax(*records: bytes, kind: bytes = b"x", size: int | None = None) -> bytes:
    """A tar whose file has a pax header of our own."""
    text = b"".join(records)
    info = tarfile.TarInfo("h")
    info.type = kind
    info.size = len(text) if size is None else size
    head = info.tobuf(tarfile.USTAR_FORMAT) + text + bytes(-len(text) % 512)
    return head + make_tar([("f", b"content")])


TAR, ZIP = make_tar([("a", b"1"), ("b", b"2")]), make_zip([("a", b"1"), ("b", b"2")])
SPARSE = b"22 GNU.sparse.major=1\n"

HARMFUL: dict[str, tuple[bytes | Callable[[], bytes], str]] = {
    "no archive": (b"hello" * 200, "neither a zip nor a tar"),
    "nothing": (b"", "neither a zip nor a tar"),
    "tar: empty": (gzip.compress(bytes(1024)), "holds no files"),
    "zip: empty": (make_zip([]), "holds no files"),
    "tar: up": (make_tar([("../x", b"")]), r"entry '\.\./x' must be relative"),
    "tar: up inside": (make_tar([("a/../../x", b"")]), r"must be relative"),
    "tar: up behind ./": (make_tar([("./../x", b"")]), r"must be relative"),
    "tar: absolute": (make_tar([("/etc/passwd", b"")]), r"entry '/etc/passwd' must be relative"),
    "tar: absolute behind ./": (make_tar([(".//etc/passwd", b"")]), "must be relative"),
    "tar: absolute directory": (tar_entry("/d", type=tarfile.DIRTYPE), "must be relative"),
    "tar: backslash": (make_tar([("..\\x", b"")]), "characters that are not allowed"),
    "tar: control": (make_tar([("a\x1b[2J", b"")]), r"entry 'a\\x1b\[2J' has characters"),
    "tar: right-to-left": (make_tar([("a\u202ec.exe", b"")]), "characters that are not allowed"),
    "tar: latin-1": (TAR.replace(b"a\0\0", b"\xe9\0\0", 1), "checksum"),
    "tar: not UTF-8": (tar_entry("\udce9t\udce9"), "not UTF-8"),
    "tar: NUL in pax": (pax(b"12 path=a\0b\n"), "characters that are not allowed"),
    "tar: long part": (make_tar([("x" * 300, b"")]), "longer than 255"),
    "tar: long path": (make_tar([("x/" * 800 + "x", b"")]), "longer than 1024"),
    "tar: twice": (make_tar([("a", b""), ("a", b"")]), "entry 'a' is there twice"),
    "tar: twice in disguise": (make_tar([("a", b""), ("./a", b"")]), "is there twice"),
    "tar: below a file": (make_tar([("a", b""), ("a/b", b"")]), "'a/b' is below 'a'"),
    "tar: above a file": (make_tar([("a/b", b""), ("a", b"")]), "'a' is a file and a directory"),
    "tar: symlink": (tar_entry(type=tarfile.SYMTYPE, linkname="/etc"), "entry 'x' is a link"),
    "tar: hard link": (tar_entry(type=tarfile.LNKTYPE, linkname="y"), "entry 'x' is a link"),
    "tar: device": (tar_entry(type=tarfile.CHRTYPE, devmajor=1), "entry 'x' is a device"),
    "tar: block device": (tar_entry(type=tarfile.BLKTYPE, devmajor=8), "is a device"),
    "tar: FIFO": (tar_entry(type=tarfile.FIFOTYPE), "entry 'x' is a FIFO"),
    "tar: sparse": (tar_entry(type=tarfile.GNUTYPE_SPARSE), "is a sparse file"),
    "tar: sparse in pax": (pax(SPARSE), "sparse"),
    "tar: unknown kind": (tar_entry(type=b"Z"), "unknown kind"),
    "tar: full directory": (
        tar_entry(type=tarfile.DIRTYPE, size=512) + bytes(512),
        "directory with content",
    ),
    "tar: pax for all": (pax(b"11 path=ab\n", kind=b"g"), "for all its entries"),
    "tar: pax without length": (pax(b"path=ab\n"), "pax header"),
    "tar: pax length 0": (pax(b"0 path=ab\n"), "pax header"),
    "tar: pax length too long": (pax(b"99 path=ab\n"), "pax header"),
    "tar: pax negative size": (pax(b"11 size=-1\n"), "number in a pax header"),
    "tar: pax size in other digits": (pax("13 size=٣٣\n".encode()), "number in a pax header"),
    "tar: pax of a gigabyte": (pax(size=1 << 30), "longer than 65536"),
    "tar: pax alone": (pax(b"11 path=ab\n")[:1024] + bytes(1024), "cut off"),
    "tar: cut in the header": (TAR[:1300], "cut off"),
    "tar: cut in the content": (TAR[:600], "cut off"),
    "tar: no end": (TAR[:1024], "cut off"),
    "tar: another behind it": (TAR + TAR, "added behind its end"),
    "tar: text behind it": (TAR + b"x", "added behind its end"),
    "tar: negative size": (
        tar_entry(size=0)[:124] + b"-0000000001\0" + tar_entry()[136:],
        "checksum|neither|number",
    ),
    "gz: damaged": (gzip.compress(TAR)[:40] + b"garbage" + gzip.compress(TAR)[47:], "damaged"),
    "gz: wrong checksum": (gzip.compress(TAR)[:-8] + bytes(8), "damaged"),
    "gz: cut": (gzip.compress(TAR)[:-9], "cut off"),
    "gz: text behind it": (gzip.compress(TAR) + b"x", "added behind its end"),
    "gz: zip behind it": (gzip.compress(TAR) + ZIP, "added behind its end"),
    "gz: of something else": (gzip.compress(b"x" * 2000), "checksum|damaged"),
    "gz: of a zip": (gzip.compress(make_zip(FILES)), "cut off|checksum|damaged"),
    "gz: of a gz": (gzip.compress(gzip.compress(TAR)), "cut off|checksum|damaged"),
    "bz2: cut": (bz2.compress(TAR)[:-5], "cut off"),
    "bz2: damaged": (b"BZh9" + b"x" * 100, "damaged"),
    "xz: cut": (lzma.compress(TAR)[:-5], "cut off"),
    "xz: damaged": (lzma.compress(TAR)[:30] + b"x" * 60, "damaged"),
    "zip: up": (zip_entry("../x"), "must be relative"),
    "zip: absolute": (zip_entry("/x"), "must be relative"),
    "zip: drive": (zip_entry("C:\\x"), "characters that are not allowed"),
    "zip: backslash": (zip_entry("a\\..\\..\\x"), "characters that are not allowed"),
    "zip: NUL": (zip_entry("a.c\0.jpg"), "characters that are not allowed"),
    "zip: absolute directory": (zip_entry("/d/"), "must be relative"),
    "zip: nameless": (zip_entry(""), "not a file name"),
    "zip: twice": (twice, "entry 'a' is there twice"),
    "zip: below a file": (make_zip([("a", b""), ("a/b", b"")]), "which is a file"),
    "zip: symlink": (zip_entry(external_attr=mode(stat.S_IFLNK)), "entry 'x' is a link"),
    "zip: device": (zip_entry(external_attr=mode(stat.S_IFBLK)), "entry 'x' is a device"),
    "zip: FIFO": (zip_entry(external_attr=mode(stat.S_IFIFO)), "entry 'x' is a FIFO"),
    "zip: socket": (zip_entry(external_attr=mode(stat.S_IFSOCK)), "entry 'x' is a socket"),
    "zip: full directory": (zip_entry("d/", b"content"), "directory with content"),
    "zip: encrypted": (
        ZIP.replace(b"PK\1\2\x14\3\x14\0\0\0", b"PK\1\2\x14\3\x14\0\1\0", 1),
        "entry 'a' is encrypted",
    ),
    "zip: cp437": (make_zip([("é", b"")]).replace(b"\xc3\xa9", b"\x82x"), "not UTF-8"),
    "zip: unmarked": (
        make_zip([("é", b"")]).replace(b"\0\x08", b"\0\0"),
        "not marked as UTF-8|damaged",
    ),
    "zip: bzip2": (make_zip([("a", b"")], zipfile.ZIP_BZIP2), "other than deflate"),
    "zip: lzma": (make_zip([("a", b"")], zipfile.ZIP_LZMA), "other than deflate"),
    "zip: wrong checksum": (make_zip([("a", b"1234")], 0).replace(b"1234", b"1235"), "damaged"),
    "zip: cut": (ZIP[:-30], "cut off"),
    "zip: text behind it": (ZIP + b"x", "added behind its end"),
    "zip: text in front": (b"PK\3\4 and so on" + ZIP, "added in front"),
    "zip: another behind it": (ZIP + make_zip([("z", b"")]), "added in front"),
    "zip: zip64": (with_end(ZIP, entries=0xFFFF, here=0xFFFF), "zip64"),
    "zip: parts": (with_end(ZIP, disk=1), "part of several"),
    "zip: fewer than there are": (with_end(ZIP, entries=1, here=1), "disagree"),
    "zip: more than there are": (with_end(ZIP, entries=3, here=3), "disagree"),
}


@pytest.mark.parametrize(("packed", "reason"), HARMFUL.values(), ids=HARMFUL.keys())
def test_whatever_is_not_plain_files_is_refused_with_a_reason(
    packed: bytes | Callable[[], bytes], reason: str
) -> None:
    packed = packed if isinstance(packed, bytes) else packed()
    with pytest.raises(Rejected, match=reason) as raised:
        unpack(packed, "sent.zip")
    assert raised.value.message.startswith("sent.zip: ")
    assert raised.value.message.isprintable()


BOMB = bytes(12 << 20)
BOMBS: dict[str, Callable[[], bytes]] = {
    "tar.gz": lambda: gzip.compress(make_tar([("a", BOMB)]), 6),
    "tar.bz2": lambda: bz2.compress(make_tar([("a", BOMB)])),
    "tar.xz": lambda: lzma.compress(make_tar([("a", BOMB)]), preset=0),
    "zip": lambda: make_zip([("a", BOMB)]),
    "zip that lies": lambda: make_zip([("a", BOMB)]).replace(
        struct.pack("<L", len(BOMB)), struct.pack("<L", 100)
    ),
    "many files in a tar.gz": lambda: gzip.compress(
        make_tar([(str(n), bytes(9000)) for n in range(8)])
    ),
    "many files in a zip": lambda: make_zip([(str(n), bytes(9000)) for n in range(8)]),
    "endless zeros behind a tar": lambda: gzip.compress(TAR + BOMB, 6),
    "a header that claims more than there is": lambda: tar_entry(size=1 << 32),
    "a size in binary": lambda: tar_entry(size=1 << 60),
}


@pytest.mark.parametrize("make", BOMBS.values(), ids=BOMBS.keys())
def test_a_bomb_is_refused_before_it_takes_room(make: Callable[[], bytes]) -> None:
    packed = make()
    tracemalloc.start()
    try:
        with pytest.raises(Rejected) as raised:
            unpack(packed, "bomb", SMALL)
        _, peak_bytes = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert isinstance(raised.value, Oversized) or "damaged" in raised.value.message
    assert peak_bytes < 5 << 20


def million_entries_zip() -> bytes:
    count = 200_000
    entry = struct.pack("<4s4B4HL2L5H2L", b"PK\1\2", 20, 3, 20, 0, *[0] * 4, 0, 0, 0, 1, *[0] * 6)
    directory = (entry + b"a") * count
    body = b"PK\3\4" + bytes(27)
    return (
        body
        + directory
        + struct.pack("<4s4H2LH", b"PK\5\6", 0, 0, 500, 500, len(directory), len(body), 0)
    )


def entries(count: int) -> bytes:
    """Headers of so many empty files."""
    return b"".join(
        tarfile.TarInfo(str(number)).tobuf(tarfile.USTAR_FORMAT) for number in range(count)
    )


MANY: dict[str, Callable[[], bytes]] = {
    "the same in a tar": lambda: gzip.compress(entries(1) * 100_000, 1),
    "files in a tar": lambda: gzip.compress(entries(300) + entries(1) * 50_000, 1),
    "directories in a tar": lambda: gzip.compress(
        tar_entry("d", type=tarfile.DIRTYPE)[:512] * 50_000, 1
    ),
    "a zip that lies": million_entries_zip,
    "a zip": lambda: make_zip([(str(n), b"") for n in range(300)]),
}


@pytest.mark.parametrize("make", MANY.values(), ids=MANY.keys())
def test_a_million_entries_cost_no_more_than_the_first_few(make: Callable[[], bytes]) -> None:
    packed = make()
    begun_s = time.process_time()
    with pytest.raises(Rejected, match=r"more than|twice"):
        unpack(packed)
    assert time.process_time() - begun_s < 0.5


@pytest.mark.parametrize("compress", [gzip.compress, bz2.compress, lzma.compress])
@pytest.mark.parametrize("part", [b"", b"x"])
def test_a_million_tiny_streams_cost_no_more_than_the_first_few(
    compress: Callable[[bytes], bytes], part: bytes
) -> None:
    header = make_tar([("a", bytes(100_000))], tarfile.USTAR_FORMAT)[:512]
    packed = compress(header) + compress(part) * 90_000
    begun_s = time.process_time()
    with pytest.raises(Rejected, match="too many compressed streams"):
        unpack(packed)
    assert time.process_time() - begun_s < 1


def test_an_archive_in_short_streams_as_bgzip_makes_them_is_accepted() -> None:
    files = [("a", random.Random(1).randbytes(3_000_000))]
    tar = make_tar(files)
    packed = b"".join(gzip.compress(tar[at : at + 65280]) for at in range(0, len(tar), 65280))
    assert unpack(packed + gzip.compress(b"")) == files


def test_an_archive_that_is_too_large_itself_is_not_read() -> None:
    with pytest.raises(Oversized, match="larger than 100 bytes"):
        unpack(TAR, bounds=Bounds(archive_bytes=100))


def test_as_much_as_is_allowed_is_accepted() -> None:
    files = [(str(n), b"x" * 2500) for n in range(8)]
    for packed in (make_zip(files), make_tar(files), gzip.compress(make_tar(files))):
        assert unpack(packed, bounds=SMALL) == files
    with pytest.raises(Rejected, match="more than 8 files"):
        unpack(make_zip([*files, ("9", b"")]), bounds=SMALL)


def damage(packed: bytes, dice: random.Random) -> bytes:
    """A few bytes changed, doubled, moved or lost."""
    data = bytearray(packed)
    for _ in range(dice.randint(1, 4)):
        at, length = dice.randrange(len(data)), dice.choice((1, 1, 2, 4, 30, 512))
        match dice.randrange(5):
            case 0:
                data[at] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
            case 1:
                del data[at : at + length]
            case 2:
                data[at:at] = data[at : at + length]
            case 3:
                data[at : at + length] = dice.randbytes(length)
            case 4:
                data[at : at + length] = b"\xff" * length
        if not data:
            break
    return bytes(data)


def mend(tar: bytes) -> bytes:
    """Right checksums everywhere, so that damage gets further than to them."""
    data = bytearray(tar)
    for at in range(0, len(data) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])
    return bytes(data)


def survives(packed: bytes) -> None:
    try:
        files = unpack(packed, "x", SMALL)
    except Rejected as error:
        assert error.message.isprintable()
    else:
        assert len(files) <= SMALL.files
        assert sum(len(content) for _, content in files) <= SMALL.total_bytes
        assert not any(name.startswith("/") or ".." in name.split("/") for name, _ in files)


@pytest.mark.parametrize("form", ["tar", "gnu", "gz", "bz2", "xz", "zip", "stored"])
def test_damaged_archives_are_refused_or_harmless_and_never_crash(form: str) -> None:
    dice = random.Random(form)
    packed = PACKED[form]
    for _ in range(200):
        damaged = damage(packed, dice)
        survives(mend(damaged) if form in ("tar", "gnu") else damaged)
        if form == "gz":  # the damage inside, the compression right
            survives(gzip.compress(mend(damage(PACKED["tar"], dice)), 1))


@settings(max_examples=100, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(
    st.sampled_from([b"", b"PK\3\4", b"PK\5\6", b"\x1f\x8b\x08\0", b"BZh9", b"\xfd7zXZ\0"]),
    st.binary(max_size=2000),
)
def test_bytes_of_any_kind_never_crash(start: bytes, rest: bytes) -> None:
    survives(start + rest)
    survives(gzip.compress(rest, 1))


@settings(max_examples=50, deadline=None)
@given(st.lists(st.tuples(st.text(min_size=1, max_size=20), st.binary(max_size=50)), max_size=4))
def test_any_names_are_refused_or_come_back_as_they_were(files: Entries) -> None:
    try:
        packed = make_tar(files)
    except (ValueError, UnicodeError):
        return
    with contextlib.suppress(Rejected):
        assert unpack(packed) == [(n.removeprefix("./"), c) for n, c in files]


def test_a_deflated_directory_of_other_tools_is_accepted() -> None:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        info = zipfile.ZipInfo("d/")
        info.compress_type = zipfile.ZIP_DEFLATED
        archive.writestr(info, b"")
        archive.writestr("d/f", b"content")
    assert unpack(out.getvalue()) == [("d/f", b"content")]
