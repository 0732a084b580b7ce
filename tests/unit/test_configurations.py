"""The configuration files as they come, their manual pages, and the mistakes that daemons find."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import servers
from oj import settings
from oj.errors import BadSettings
from oj.etcd import argv as etcd
from oj.executor import configuration as executor
from oj.gateway import settings as gateway
from oj.judicator import settings as judicator
from oj.mongodb import argv as mongodb

ROLES = ("etcd", "mongodb", "judicator", "executor", "gateway", "client")
# What the files show is the default, but for these, of which it is an example.
EXAMPLES = {
    "etcd": {"name", "advertise", "cluster.init", "cluster.join", "cluster.discover"},
    "mongodb": {"name", "advertise", "mongod.program"},
    "client": {"etcd", "server", "token_file"},
}


def flatten(values: dict[str, Any], section: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in values.items():
        if isinstance(value, dict):
            yield from flatten(value, f"{section}{key}.")
        else:
            yield f"{section}{key}", value


def shown_in(role: str) -> str:
    """The file of a package with every setting in force that it shows."""
    text = (servers.TREE / "etc" / f"{role}.conf").read_text()
    return re.sub(r"(?m)^# ?(\w+ *=)", r"\1", text)


@pytest.mark.parametrize("role", ROLES)
def test_the_file_shows_every_setting_with_its_default(role: str, tmp_path: Path) -> None:
    path = tmp_path / f"{role}.conf"
    path.write_text("")
    defaults = dict(flatten(settings.read(path, role)))
    path.write_text(shown_in(role))
    shown = dict(flatten(settings.read(path, role)))
    for name in EXAMPLES.get(role, ()):
        shown[name] = defaults[name]
    # An empty list has no other form than a list with an empty word, which all ignore.
    assert {name: [] if value == [""] else value for name, value in shown.items()} == defaults
    sections = re.findall(r"(?m)^\[(\w+)\]|^(\w+) *=", shown_in(role))
    keys = {key for _, key in sections if key}
    assert {name.rpartition(".")[2] for name in defaults} == keys


@pytest.mark.parametrize("role", ROLES)
def test_the_manual_describes_every_setting(role: str, tmp_path: Path) -> None:
    manual = (servers.TREE / "man" / f"oj-{role}.conf.5").read_text()
    path = tmp_path / f"{role}.conf"
    path.write_text("")
    for name, _ in flatten(settings.read(path, role)):
        key = name.rpartition(".")[2]
        assert re.search(rf"(?m)^(\.B.*)?\b{key}\b", manual), name


@pytest.mark.parametrize(
    ("load", "text", "mistakes"),
    [
        (etcd.load, "name = a b\ndata = here\n\n[cluster]\ninit = yes\njoin = h:1\n", [1, 2, 5]),
        (mongodb.load, "name = a b\ngrace = 0s\n\n[mongod]\ncache = 1\n", [1, 2, 5]),
        (
            judicator.load,
            "name = a b\nadvertise = x\nstate_directory = here\n[tasks]\n\nlease = 1h\n",
            [1, 2, 3, 6],
        ),
        (
            executor.load,
            "user = root\nname = a b\ntimeout = 0s\n[run]\ncpu = 0s\n[most]\nwall = 1d\n",
            [2, 3, 5, 7],
        ),
        (gateway.load, "name = a b\n[webhooks]\n\nallow = nonsense\n", [1, 4]),
    ],
)
def test_what_a_daemon_itself_finds_wrong_has_a_line_too(
    load: Any, text: str, mistakes: list[int], tmp_path: Path
) -> None:
    path = tmp_path / "role.conf"
    path.write_text(text)
    with pytest.raises(BadSettings) as caught:
        load(path)
    lines = [re.match(rf"{path}:(\d+): [a-z_.]+: .", line) for line in caught.value.mistakes]
    assert [int(line[1]) if line else 0 for line in lines] == mistakes, caught.value.mistakes
