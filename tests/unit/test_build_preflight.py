"""Without a network, without room, without rights: what the scripts of packaging/ and the bed say.

In namespaces of their own: a network without an interface, and a mount of a tiny disk. Run as root.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import servers

PACKAGING = servers.TREE / "packaging"
NO_NETWORK = ["unshare", "--net"]
NOBODY = ["setpriv", "--reuid=nobody", "--regid=nogroup", "--clear-groups"]


@pytest.fixture
def place() -> Iterator[Path]:
    """A directory that everybody may enter, with copies of the scripts."""
    with TemporaryDirectory(dir="/tmp") as name:
        place = Path(name)
        place.chmod(0o755)
        (place / "cache").mkdir()
        (place / "packaging").mkdir()
        for script in ("build", "fetch-mongod", "preflight.sh", "sign"):
            shutil.copy(PACKAGING / script, place / "packaging" / script)
        yield place


def tiny(path: Path) -> list[str]:
    """Runs what follows with 5 MB at a path."""
    script = f'mount -t tmpfs -o size=5m tiny {path} && exec "$@"'
    return ["unshare", "--mount", "sh", "-c", script, "sh"]


def run(place: Path, *words: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    dropped = ("OJ_MONGOD", "OJ_CACHE", "TMPDIR")
    clean = {name: text for name, text in os.environ.items() if name not in dropped}
    return subprocess.run(
        [str(word) for word in words],
        capture_output=True, text=True, timeout=300, cwd=place,
        env=clean | {"OJ_CACHE": str(place / "cache")} | environment,
    )  # fmt: skip


def last_line(done: subprocess.CompletedProcess[str]) -> str:
    assert done.returncode != 0
    assert "Traceback" not in done.stderr
    return done.stderr.splitlines()[-1]


def test_mongod_is_not_fetched_without_a_network(place: Path) -> None:
    done = run(place, *NO_NETWORK, "packaging/fetch-mongod")
    said = done.stderr.splitlines()
    assert said[0] == f"fetching mongod 6.0.5 into {place}/cache"
    assert "fetch-mongod: cannot fetch mongod: no network (" in said[-1]
    assert "set OJ_MONGOD to a mongod, as mongodb-org-server's" in said[-1]
    assert len(said) == 2 and done.returncode == 1
    assert [path.name for path in (place / "cache").iterdir()] == [".mongod.lock"]


def test_mongod_is_not_fetched_onto_a_full_disk(place: Path) -> None:
    done = run(place, *tiny(place / "cache"), "packaging/fetch-mongod")
    assert "no space left: fetching mongod needs " in last_line(done)
    assert f"MB in {place}/cache, which has " in last_line(done)
    assert "set OJ_CACHE to a directory with more room" in last_line(done)


def test_a_disk_that_fills_up_while_mongod_is_fetched_is_named(place: Path) -> None:
    # As if another had filled it since the room was asked for.
    script = place / "packaging" / "fetch-mongod"
    script.write_text(script.read_text().replace("needed_mb=250", "needed_mb=1"))
    done = run(place, *tiny(place / "cache"), "packaging/fetch-mongod")
    assert f"no space left (in {place}/cache): set OJ_CACHE to" in last_line(done)


def test_mongod_is_not_fetched_where_the_cache_is_anothers(place: Path) -> None:
    done = run(place, *NOBODY, "packaging/fetch-mongod")
    assert done.stderr == (
        f"fetch-mongod: nobody cannot write to {place}/cache: "
        "set OJ_CACHE to a directory of yours, or OJ_MONGOD to a mongod\n"
    )


def test_a_mongod_in_the_cache_is_anybodys_without_a_network(place: Path) -> None:
    mongod = place / "cache" / "mongod-6.0.5" / "mongod"
    mongod.parent.mkdir()
    mongod.write_text("#!/bin/sh\necho 'db version v6.0.5'\n")
    mongod.chmod(0o755)
    done = run(place, *NO_NETWORK, *NOBODY, "packaging/fetch-mongod")
    assert (done.returncode, done.stdout, done.stderr) == (0, f"{mongod}\n", "")


def test_the_build_says_first_of_all_that_there_is_no_network(place: Path) -> None:
    # In the tree itself: it builds nothing there.
    out = place / "out" / "apt"
    done = run(place, *NO_NETWORK, PACKAGING / "build", "--no-lintian", "--out", out)
    assert "no network (" in done.stderr and done.returncode == 1
    assert "building oj" not in done.stdout
    assert not out.exists()


def test_the_build_asks_for_room_before_it_begins(place: Path) -> None:
    (place / "tmp").mkdir()
    words = [PACKAGING / "build", "--no-lintian", "--out", place / "out" / "apt"]
    done = run(place, *tiny(place / "tmp"), *words, TMPDIR=str(place / "tmp"))
    assert f"no space left: the build needs 400 MB in {place}/tmp, which has " in last_line(done)
    assert "set TMPDIR to a directory with more room" in last_line(done)
    assert "building" not in done.stdout
    assert list((place / "tmp").iterdir()) == []


@pytest.mark.parametrize(
    ("environment", "repair"),
    [
        ({"OJ_CACHE": "/proc/oj"}, "set OJ_CACHE to a directory of yours"),
        ({"TMPDIR": "/proc"}, "set TMPDIR to a directory of yours"),
    ],
)
def test_the_build_names_what_it_may_not_write(
    place: Path, environment: dict[str, str], repair: str
) -> None:
    words = [PACKAGING / "build", "--no-lintian", "--out", place / "out" / "apt"]
    done = run(place, *words, **environment)
    ((name, value),) = environment.items()
    assert last_line(done) == f"packaging/build: root cannot write to {value}: {repair}", name


def test_apt_without_a_network_is_one_line(place: Path) -> None:
    script = 'die() { echo "x: $*" >&2; exit 1; }; . packaging/preflight.sh; install_packages hello'
    # A list of packages and a cache of this test's own, in which hello is known and not there.
    done = run(place, *NO_NETWORK, "bash", "-c", script, APT_CONFIG=str(empty_apt(place)))
    assert done.stderr.splitlines()[0] == "installing hello"
    assert last_line(done).startswith("x: cannot install hello: no network (")
    assert "let apt reach a mirror" in last_line(done)


def empty_apt(place: Path) -> Path:
    """A configuration of apt that knows one source, which is on no reachable host."""
    for name in ("lists/partial", "archives/partial", "sources"):
        (place / "apt" / name).mkdir(parents=True)
    (place / "apt" / "sources" / "x.list").write_text("deb [trusted=yes] http://192.0.2.1/x ./\n")
    configuration = place / "apt" / "apt.conf"
    configuration.write_text(
        f'Dir::State::Lists "{place}/apt/lists";\n'
        f'Dir::Cache::Archives "{place}/apt/archives";\n'
        'Dir::Etc::SourceList "/dev/null";\n'
        f'Dir::Etc::SourceParts "{place}/apt/sources";\n'
        'Acquire::Retries "0";\n'
    )
    return configuration


BASE = """
import sys
sys.path.insert(0, "tests")
from bed import BedError, root
try:
    root.base()
except BedError as mistake:
    print(mistake, file=sys.stderr)
    sys.exit(1)
"""


def test_the_bed_says_that_there_is_no_network(place: Path) -> None:
    words = [*NO_NETWORK, sys.executable, "-c", BASE]
    # A mirror that is an address: nobody waits for the name of one.
    done = run(servers.TREE, *words, OJ_CACHE=str(place), OJ_MIRROR="http://192.0.2.1/debian")
    assert last_line(done).startswith("cannot make a Debian root: no network (")
    assert last_line(done).endswith("set OJ_MIRROR to a mirror of Debian that this machine reaches")
    assert not list((place / "roots").glob("*.making"))


@pytest.mark.parametrize("name", ["OJ_SIGNING_KEY", "OJ_APT_URI"])
def test_the_bed_says_what_does_not_reach_a_build_for_another_release(
    place: Path, name: str
) -> None:
    script = BASE.replace("root.base()", "build.build('other')")
    script = script.replace("BedError, root", "BedError, build")
    done = run(servers.TREE, sys.executable, "-c", script, **{name: "/tmp/oj"})
    assert last_line(done).startswith(f"{name} does not reach the build for other: unset it")


def test_the_bed_asks_for_room_before_it_fetches(place: Path) -> None:
    words = [*tiny(place / "cache"), sys.executable, "-c", BASE]
    done = run(servers.TREE, *words, OJ_CACHE=str(place / "cache"))
    assert last_line(done).startswith("no space left: machines need ")
    assert last_line(done).endswith("MB: set OJ_CACHE to a directory with more room")
