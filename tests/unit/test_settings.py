"""Configuration text: values out, or every mistake with its place."""

from __future__ import annotations

from pathlib import Path

import pytest

from oj import settings
from oj.errors import BadSettings


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("500ms", 0.5), ("2s", 2), ("1.5m", 90), ("1 h", 3600), ("250us", 0.00025), ("1d", 86400)],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert settings.parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "2", "s", "-1s", "2 parsecs", "1e3s", "2s2s", "9" * 400 + "s"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a duration"):
        settings.parse_duration(text)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [("4096", 4096), ("64K", 65536), ("1.5GiB", 3 << 29), ("2 MB", 2 << 20), ("1t", 1 << 40)],
)
def test_a_size_is_read(text: str, size_bytes: int) -> None:
    assert settings.parse_size(text) == size_bytes


@pytest.mark.parametrize("text", ["", "K", "-1M", "1 lot", "1MM", "9" * 400])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        settings.parse_size(text)


@pytest.mark.parametrize(
    ("text", "address"),
    [("h:1", ("h", 1)), ("[::1]:7500", ("::1", 7500)), ("127.0.0.1:65535", ("127.0.0.1", 65535))],
)
def test_an_address_is_read(text: str, address: tuple[str, int]) -> None:
    assert settings.parse_address(text) == address


@pytest.mark.parametrize("text", ["", "h", ":1", "h:", "h:x", "h:65536", "h:-1"])
def test_what_is_no_address_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="not HOST:PORT"):
        settings.parse_address(text)


def test_an_empty_file_gives_the_defaults(tmp_path: Path) -> None:
    path = tmp_path / "etcd.conf"
    path.write_text("")
    values = settings.read(path, "etcd")
    assert values["client"] == ("127.0.0.1", 7501)
    assert values["heartbeat"] == pytest.approx(0.1)
    assert values["cluster"]["join"] == []


def test_one_address_or_several_make_a_list(tmp_path: Path) -> None:
    path = tmp_path / "etcd.conf"
    path.write_text("[cluster]\njoin = a:1\n")
    assert settings.read(path, "etcd")["cluster"]["join"] == [("a", 1)]
    path.write_text("[cluster]\njoin = a:1, b:2\n")
    assert settings.read(path, "etcd")["cluster"]["join"] == [("a", 1), ("b", 2)]


def test_every_mistake_is_told_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "etcd.conf"
    path.write_text(
        "# a comment\nmode = emperor\nclient = nowhere\n\n[cluster]\njion = a:1\n[walrus]\nx = 1\n"
    )
    with pytest.raises(BadSettings) as caught:
        settings.read(path, "etcd")
    places = [mistake.split(" ")[:2] for mistake in caught.value.mistakes]
    assert places == [
        [f"{path}:2:", "mode:"],
        [f"{path}:3:", "client:"],
        [f"{path}:6:", "cluster.jion:"],
        [f"{path}:7:", "walrus:"],
    ]


def test_a_file_that_is_no_configuration_at_all_is_told_by_line(tmp_path: Path) -> None:
    path = tmp_path / "etcd.conf"
    path.write_text("mode = member\nwhat is this\n[unclosed\n")
    with pytest.raises(BadSettings) as caught:
        settings.read(path, "etcd")
    assert [m.partition(" ")[0] for m in caught.value.mistakes] == [f"{path}:2:", f"{path}:3:"]


def test_a_file_that_is_missing_or_no_text_is_a_mistake(tmp_path: Path) -> None:
    with pytest.raises(BadSettings, match="cannot be read"):
        settings.read(tmp_path / "none.conf", "etcd")
    binary = tmp_path / "binary.conf"
    binary.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadSettings, match="cannot be read"):
        settings.read(binary, "etcd")


def test_a_percent_sign_is_only_a_percent_sign(tmp_path: Path) -> None:
    path = tmp_path / "etcd.conf"
    path.write_text("data = /srv/%(name)s/$name\n")
    assert settings.read(path, "etcd")["data"] == "/srv/%(name)s/$name"


def test_a_mistake_between_values_is_placed_at_its_key(tmp_path: Path) -> None:
    path = tmp_path / "f.conf"
    path.write_text("a = 1\n[s]\nb = 2\n")
    assert settings.place(path, ["s.b: odd", "a: even", "c: missing"]) == [
        f"{path}: c: missing",
        f"{path}:1: a: even",
        f"{path}:3: s.b: odd",
    ]


def test_a_section_in_the_place_of_a_value_is_a_mistake(tmp_path: Path) -> None:
    path = tmp_path / "client.conf"
    path.write_text("judicators = here\n[timeout]\nx = 1\n")
    with pytest.raises(BadSettings) as caught:
        settings.read(path, "client")
    assert [mistake.split(": ")[0] for mistake in caught.value.mistakes] == [
        f"{path}:1",
        f"{path}:2",
    ]
