"""executor.conf as frozen dataclasses; oj-executor.conf(5) describes it."""

from __future__ import annotations

import os
import pwd
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from oj import settings
from oj.errors import BadSettings, Rejected
from oj.executor.languages import limits_from
from oj.executor.overcommit import Demand, advise
from oj.executor.pipeline import Rules
from oj.incarnation import INSTALLATION
from oj.model import MOST, check_node

CANARY_LEAST_S = 0.1
SLOTS_MOST = 128  # SLOTS_MAX in box.h

Address = tuple[str, int]


@dataclass(frozen=True)
class Directories:
    state: Path
    runtime: Path
    languages: Path

    @property
    def results(self) -> Path:
        return self.state / "results"

    @property
    def blobs(self) -> Path:
        return self.state / "blobs"

    @property
    def large_tasks(self) -> Path:
        return self.state / "tasks"

    @property
    def small_tasks(self) -> Path:
        return self.runtime / "tasks"

    @property
    def proven_languages(self) -> Path:
        return self.state / "languages.json"

    @property
    def installation(self) -> Path:
        return self.state / INSTALLATION

    @property
    def own(self) -> tuple[Path, ...]:
        """Those that hold nothing but what this executor puts there."""
        return self.results, self.blobs, self.large_tasks, self.small_tasks


@dataclass(frozen=True)
class Configuration:
    name: str
    user: str
    """Whom to become; empty: stay who we are."""
    slots: int
    pin: bool
    """Whether each slot's programs get a core of their own; set only if there are enough."""
    judicators: tuple[Address, ...]
    etcd: tuple[Address, ...]
    timeout_s: float
    canary_s: float
    box: str
    first_uid: int
    directories: Directories
    cache_bytes: int
    rules: Rules
    metrics: Address | None = None
    advice: settings.Advice = field(default_factory=settings.Advice)


def load(path: Path) -> Configuration:
    """Raises BadSettings with every mistake."""
    values = settings.read(path, "executor")
    mistakes: list[str] = []
    name = settings.default_name(values["name"])
    try:
        check_node(name, f"name: '{name}'")
    except Rejected as error:
        mistakes.append(error.message)
    if not values["judicators"] and not values["etcd"]:
        mistakes.append("judicators: at least one is needed, here or through etcd")
    for key in ("state_directory", "runtime_directory", "languages_directory", "box"):
        if not values[key].startswith("/"):
            mistakes.append(f"{key}: '{values[key]}' is not an absolute path")
    if values["user"]:
        try:
            pwd.getpwnam(values["user"])
        except KeyError:
            mistakes.append(f"user: there is no user '{values['user']}'")
    if not values["timeout"]:
        mistakes.append("timeout: must be above 0")
    if values["canary"] < CANARY_LEAST_S:
        mistakes.append(f"canary: must be at least {CANARY_LEAST_S:g}s")
    _check_limits(values, mistakes)
    if mistakes:
        raise BadSettings(settings.place(path, mistakes))
    cores = len(os.sched_getaffinity(0))
    slots = values["slots"] or min(cores, SLOTS_MOST)
    return Configuration(
        name=name,
        user=values["user"],
        slots=slots,
        pin=values["pin"] and slots < cores,
        judicators=tuple(values["judicators"]),
        etcd=tuple(values["etcd"]),
        timeout_s=values["timeout"],
        canary_s=values["canary"],
        box=values["box"],
        first_uid=values["first_uid"],
        directories=Directories(
            state=Path(values["state_directory"]),
            runtime=Path(values["runtime_directory"]),
            languages=Path(values["languages_directory"]),
        ),
        cache_bytes=values["cache"],
        rules=Rules(
            compile_limits=limits_from(values["compile"]),
            run_limits=limits_from(values["run"]),
            most_limits=limits_from(values["most"]),
            keep_bytes=values["keep"],
            keep_total_bytes=values["keep_total"],
        ),
        metrics=values["metrics"],
        advice=advise(
            Demand(
                slots,
                values["run"]["memory"],
                values["compile"]["memory"],
                values["most"]["memory"],
                settings.is_set(path, "most.memory"),
            ),
            read_memory_bytes(),
        ),
    )


def read_memory_bytes() -> int:
    """The machine's."""
    return os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")


def _check_limits(values: dict[str, Any], mistakes: list[str]) -> None:
    most = values["most"]
    for section in ("compile", "run", "most"):
        for key, value in values[section].items():
            if not value:
                mistakes.append(f"{section}.{key}: must be above 0")
            elif value > most[key]:
                mistakes.append(f"{section}.{key}: is above most.{key}")
    for key, value in vars(limits_from(most)).items():
        if value > getattr(MOST, key):
            name = key.partition("_")[0]
            mistakes.append(f"most.{name}: must be at most {getattr(MOST, key)} ({key})")
    if values["keep"] > values["keep_total"]:
        mistakes.append("keep: is above keep_total")
