"""packaging/sign: whose signature a repository bears, and what machines are given to check it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

import servers

SIGN = servers.TREE / "packaging" / "sign"
SIGNED = ("InRelease", "Release.gpg", "oj-archive-keyring.asc", "oj-archive-keyring.gpg")


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    directory = tmp_path / "apt"
    directory.mkdir()
    (directory / "Release").write_text("Origin: oj\nSuite: oj\n")
    return directory


@pytest.fixture
def keyring() -> Iterator[Path]:
    """A site's own keyring with one key; its sockets need a short name."""
    with TemporaryDirectory(dir="/tmp") as home:
        words = ["--quick-generate-key", "site <site@localhost>", "ed25519", "sign", "never"]
        gpg(Path(home), "--passphrase", "", *words)
        yield Path(home)
        subprocess.run(["gpgconf", "--homedir", home, "--kill", "all"], check=True)


def gpg(home: Path, *words: str) -> bytes:
    done = subprocess.run(
        ["gpg", "--batch", "--quiet", "--homedir", str(home), *words], capture_output=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def fingerprint(home: Path) -> str:
    told = gpg(home, "--with-colons", "--list-secret-keys").decode()
    found = re.search(r"^fpr:+([0-9A-F]{40}):", told, re.MULTILINE)
    assert found
    return found[1]


def sign(
    repository: Path, *words: str, code: int = 0, **environment: str
) -> subprocess.CompletedProcess[str]:
    environment.setdefault("OJ_CACHE", str(repository.parent / "cache"))
    clean = {name: text for name, text in os.environ.items() if not name.startswith("OJ_")}
    done = subprocess.run(
        [SIGN, *words, repository],
        capture_output=True, text=True, timeout=60, env=clean | environment,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    return done


def signer(repository: Path) -> str:
    """Who signed both ways, by the keyring that machines get; fails where a signature is wrong."""
    found = set()
    for signed in (["Release.gpg", "Release"], ["InRelease"]):
        done = subprocess.run(
            ["gpgv", "--status-fd=1", "--keyring", "./oj-archive-keyring.gpg", *signed],
            cwd=repository, capture_output=True, text=True,
        )  # fmt: skip
        assert done.returncode == 0, done.stderr
        valid = re.search(r"VALIDSIG ([0-9A-F]{40})", done.stdout)
        assert valid
        found.add(valid[1])
    assert len(found) == 1
    return found.pop()


def test_a_key_is_made_once_and_only_its_owner_can_read_it(repository: Path) -> None:
    assert "keep a copy" in sign(repository).stderr
    first = signer(repository)
    place = repository.parent / "cache" / "signing"
    secret = place / "oj-archive-secret.asc"
    assert place.stat().st_mode & 0o777 == 0o700
    assert secret.stat().st_mode & 0o777 == 0o600
    (repository / "Release").write_text("Origin: oj\nSuite: another\n")
    assert "keep a copy" not in sign(repository).stderr
    assert signer(repository) == first
    assert b"PRIVATE" not in b"".join(path.read_bytes() for path in repository.iterdir())


def test_what_is_signed_already_stays_as_it_is(repository: Path) -> None:
    sign(repository)
    before = {name: (repository / name).read_bytes() for name in SIGNED}
    times = {name: (repository / name).stat().st_mtime_ns for name in SIGNED}
    assert sign(repository).stdout == ""
    assert {name: (repository / name).read_bytes() for name in SIGNED} == before
    assert {name: (repository / name).stat().st_mtime_ns for name in SIGNED} == times


def test_a_site_signs_with_a_key_of_its_keyring(repository: Path, keyring: Path) -> None:
    key = fingerprint(keyring)
    sign(repository, "--key", key, GNUPGHOME=str(keyring))
    assert signer(repository) == key
    assert not (repository.parent / "cache").exists()


def test_a_site_signs_with_a_key_from_a_file(repository: Path, keyring: Path) -> None:
    sign(repository)
    own = signer(repository)
    secret = repository.parent / "secret.asc"
    secret.write_bytes(gpg(keyring, "--armor", "--export-secret-keys"))
    sign(repository, OJ_SIGNING_KEY=str(secret))
    assert signer(repository) == fingerprint(keyring) != own


def test_the_file_for_apt_has_the_place_and_the_key(repository: Path) -> None:
    sign(repository, "--uri", "http://apt.example/oj")
    text = (repository / "oj.sources").read_text()
    fields = dict(re.findall(r"^([A-Za-z-]+): ?(.*(?:\n .*)*)", text, re.MULTILINE))
    assert (fields["Types"], fields["Suites"]) == ("deb", "./")
    assert fields["URIs"] == "http://apt.example/oj"
    armoured = fields["Signed-By"].replace("\n .\n", "\n\n").replace("\n ", "\n").strip()
    assert armoured == (repository / "oj-archive-keyring.asc").read_text().strip()
    sign(repository)
    assert f"URIs: file:{repository}\n" in (repository / "oj.sources").read_text()


@pytest.mark.parametrize(
    ("key", "message"),
    [
        ("0123456789ABCDEF0123456789ABCDEF01234567", "there is no secret key 0123456789ABCDEF"),
        ("/nowhere/key.asc", "/nowhere/key.asc is neither a file nor the fingerprint"),
        (os.devnull, "/dev/null is neither a file nor the fingerprint"),
    ],
)
def test_a_key_that_is_not_there_is_named(repository: Path, key: str, message: str) -> None:
    assert message in sign(repository, "--key", key, code=1).stderr
    assert sorted(path.name for path in repository.iterdir()) == ["Release"]


def test_a_keyring_is_no_secret_key(repository: Path) -> None:
    sign(repository)
    public = repository.parent / "public.asc"
    public.write_bytes((repository / "oj-archive-keyring.asc").read_bytes())
    before = signer(repository)
    assert "there is no secret key" in sign(repository, "--key", str(public), code=1).stderr
    assert signer(repository) == before


def test_a_directory_without_an_index_is_not_signed(tmp_path: Path) -> None:
    assert f"{tmp_path} has no Release" in sign(tmp_path, code=1).stderr
