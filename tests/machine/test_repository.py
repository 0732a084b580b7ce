"""The repository as machines see it: served over HTTP, with the signature as all that is trusted.

A new machine becomes an executor by the cloud-init file and nothing else: it gets the packages from
a web server, by the oj.sources that packaging/build wrote. Then it is offered changed copies.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from bed import Bed, Machine, Repository, build, root
from bed.machine import Disk

TREE = Path(__file__).resolve().parents[2]
RELEASE = os.environ.get("OJ_RELEASE", root.HOST)
PACKAGES = Path(os.environ.get("OJ_PACKAGES", build.directory(RELEASE)))
BUILT_HERE = Path(os.environ.get("OJ_PACKAGES", build.directory()))
PORT = 8000
HERE = f"http://outside:{PORT}"
USER_DATA = TREE / "share" / "cloud-init" / "executor.yaml"
SOURCES = "/etc/apt/sources.list.d/oj.sources"
# What tells when or with which key a repository was made, and not what it was made from.
OF_ONE_SIGNING = {
    "InRelease", "Release", "Release.gpg", "oj-archive-keyring.asc", "oj-archive-keyring.gpg",
    "oj.sources", ".signed", ".checked",
}  # fmt: skip


def sign(directory: Path, cache: Path) -> None:
    words = [TREE / "packaging" / "sign", "--uri", f"{HERE}/{directory.name}", directory]
    clean = {name: text for name, text in os.environ.items() if name != "OJ_SIGNING_KEY"}
    subprocess.run(words, check=True, capture_output=True, env=clean | {"OJ_CACHE": str(cache)})


def flip_a_byte(path: Path) -> None:
    """Changes one byte in the middle, so that neither size nor beginning tell of it."""
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 1
    path.write_bytes(content)


@pytest.fixture(scope="module")
def web(cluster_bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The directory of a web server on the machines' network, with the repository as oj/ and copies
    of it that somebody changed on the way."""
    top = tmp_path_factory.mktemp("web")
    shutil.copytree(PACKAGES, top / "oj")
    sign(top / "oj", top.parent / "key")
    for name in ("deb", "index", "release", "signer"):
        shutil.copytree(top / "oj", top / name)
    flip_a_byte(next((top / "deb").glob("oj-client_*.deb")))
    flip_a_byte(top / "index" / "Packages")
    flip_a_byte(top / "index" / "Packages.gz")
    # Whoever changes an index would have to change its hash in here.
    release = top / "release" / "InRelease"
    text = release.read_text()
    digest = re.search(r"^ ([0-9a-f]{64}) +\d+ Packages$", text, re.MULTILINE)
    assert digest
    release.write_text(text.replace(digest[1], hashlib.sha256(b"another").hexdigest()))
    sign(top / "signer", top.parent / "another-key")
    inside = ["nsenter", f"--net=/run/netns/{cluster_bed.network.namespace}"]
    with subprocess.Popen(
        [*inside, sys.executable, "-m", "http.server", "--directory", str(top), str(PORT)],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    ) as server:  # fmt: skip
        yield top
        server.terminate()


@pytest.fixture(scope="module")
def judicator(cluster_bed: Bed, installed: Disk) -> Iterator[Machine]:
    machine = cluster_bed.machine("c1", installed)
    machine.boot()
    machine.run("oj setup judicator --only", timeout_s=280)  # others judge, not this one
    yield machine
    machine.power_off_hard()


@pytest.fixture(scope="module")
def cloud_init(cluster_bed: Bed, tmp_path_factory: pytest.TempPathFactory) -> Repository:
    """Debian's cloud-init with what it needs."""
    nothing = tmp_path_factory.mktemp("nothing")
    (nothing / "Packages").write_text("")
    return cluster_bed.repository(nothing, ["cloud-init"])


def without_ours(repository: Repository) -> str:
    """The index of what a repository of the bed has of Debian."""
    ours = {path.name for path in PACKAGES.glob("*.deb")}
    paragraphs = (repository.path / "Packages").read_text().split("\n\n")
    names = (re.search(r"^Filename: (?:\./)?(.*)$", text, re.MULTILINE) for text in paragraphs)
    kept = [
        text for text, name in zip(paragraphs, names, strict=True) if name and name[1] not in ours
    ]
    assert len(kept) < len([text for text in paragraphs if text.strip()])
    return "\n\n".join(kept) + "\n"


@pytest.fixture(scope="module")
def machine(
    cluster_bed: Bed, repository: Repository, cloud_init: Repository, web: Path, judicator: Machine
) -> Iterator[Machine]:
    """A new machine that was given the user data, and to which nothing else was done."""
    machine = cluster_bed.machine("e1")
    machine.boot()
    machine.add_repository(cloud_init)
    machine.install("--no-install-recommends", "cloud-init")
    # Debian, as far as this network has it; ours come from the web server or not at all.
    machine.run(f"cp -rs /srv/bed/{repository.name}/. /srv/debian")
    machine.run("rm /srv/debian/Packages /srv/debian/Release")
    machine.put(without_ours(repository), "/srv/debian/Packages")
    machine.put("deb [trusted=yes] file:/srv/debian ./\n", "/etc/apt/sources.list.d/bed.list")
    seed = "/var/lib/cloud/seed/nocloud"
    machine.put("instance-id: e1\nlocal-hostname: e1\n", f"{seed}/meta-data")
    machine.put(user_data(web / "oj", judicator.name), f"{seed}/user-data")
    # Neither a network nor a locale is made: the bed has the one, and nobody needs the other.
    machine.put("network: {config: disabled}\nlocale: false\n", "/etc/cloud/cloud.cfg.d/bed.cfg")
    for stage in ("init --local", "init", "modules --mode=config", "modules --mode=final"):
        machine.run(f"cloud-init {stage}", timeout_s=400, check=False)
    yield machine
    machine.power_off_hard()


def user_data(repository: Path, judicator: str) -> str:
    """The cloud-init file as its comment says that it is to be filled in."""
    text = USER_DATA.read_text()
    example = yaml.safe_load(text)["write_files"][0]["content"]
    indented = "".join(f"      {line}\n" for line in example.splitlines())
    assert indented in text
    ours = (repository / "oj.sources").read_text()
    text = text.replace(indented, "".join(f"      {line}\n" for line in ours.splitlines()))
    assert yaml.safe_load(text)["write_files"][0]["content"] == ours
    return text.replace("--join, n1]", f"--join, {judicator}]")


# --- the signature -------------------------------------------------------------------------------


def test_cloud_init_makes_an_executor(machine: Machine, judicator: Machine) -> None:
    """With packages that apt took from the web server, by the signature."""
    told = json.loads(machine.run("cat /run/cloud-init/result.json").stdout)
    log = machine.run("tail -n 40 /var/log/cloud-init-output.log").stdout
    assert told["v1"]["errors"] == [], log
    policy = machine.run("apt-cache policy oj-executor").stdout
    assert re.search(rf" \*\*\* \S+ 500\n +500 {HERE}/oj \./ Packages\n", policy), policy
    assert "bed" not in policy and "/srv" not in policy
    executors = json.loads(judicator.run("oj executors --json").stdout)
    assert "e1" in json.dumps(executors)
    done = judicator.run("oj submit --command /bin/true --wait --json", timeout_s=120)
    task = json.loads(done.stdout)
    assert (task["verdict"], task["executor"]) == ("accepted", "e1")


def test_cloud_init_finds_no_mistake_in_the_file(machine: Machine) -> None:
    machine.put(USER_DATA, "/root/executor.yaml")
    done = machine.run("cloud-init schema --config-file /root/executor.yaml")
    assert done.stdout.startswith("Valid")  # "cloud-config", or "schema" and the file


@pytest.mark.each_release
def test_apt_has_no_complaint_of_the_repository(machine: Machine) -> None:
    told = machine.run(["apt-get", "update", *only_ours()])
    assert f"{HERE}/oj" in told.stdout
    assert told.stderr == ""
    codename = machine.run(". /etc/os-release && echo $VERSION_CODENAME").stdout.strip()
    policy = machine.run("apt-cache policy").stdout
    assert f"release o=oj,a=oj,n={codename},l=oj,c=" in policy


def only_ours() -> list[str]:
    return ["-o", f"Dir::Etc::SourceList={SOURCES}", "-o", "Dir::Etc::SourceParts=/dev/null"]


@pytest.fixture
def elsewhere(machine: Machine) -> Iterator[Machine]:
    """The machine, which looks for packages where a test says, with the same key."""
    before = machine.get(SOURCES)
    yield machine
    machine.put(before, SOURCES)
    machine.run(["apt-get", "update"])


def look_at(machine: Machine, name: str) -> Any:
    text = machine.get(SOURCES).decode()
    machine.put(text.replace(f"{HERE}/oj\n", f"{HERE}/{name}\n"), SOURCES)
    return machine.run(["apt-get", "update", *only_ours()], check=False)


@pytest.mark.each_release
def test_a_package_with_a_changed_byte_is_refused(elsewhere: Machine) -> None:
    assert look_at(elsewhere, "deb").rc == 0
    elsewhere.run("apt-get clean")  # or apt takes what it has fetched before
    done = elsewhere.run("apt-get -y install --reinstall oj-client", check=False)
    assert done.rc != 0, done.stdout
    assert "Hash Sum mismatch" in done.stderr
    # The same words are good for a package that nobody changed.
    elsewhere.run("cd /tmp && apt-get download oj-gateway")


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("index", "Hash Sum mismatch"),
        # By gpgv of Debian 12, and by sqv of Debian 13.
        pytest.param("release", "BADSIG|manipulated", marks=pytest.mark.each_release),
        ("signer", "NO_PUBKEY|Missing key"),
    ],
)
def test_an_index_that_the_key_did_not_sign_is_refused(
    elsewhere: Machine, name: str, reason: str
) -> None:
    done = look_at(elsewhere, name)
    assert done.rc != 0
    assert re.search(reason, done.stderr + done.stdout)
    policy = elsewhere.run("apt-cache policy oj-gateway").stdout
    assert f"{HERE}/{name}" not in policy


def test_the_source_of_a_package_comes_by_apt(elsewhere: Machine, tmp_path: Path) -> None:
    text = elsewhere.get(SOURCES).decode()
    elsewhere.put(text.replace("Types: deb\n", "Types: deb deb-src\n"), SOURCES)
    elsewhere.run(["apt-get", "update"])
    elsewhere.run("mkdir /tmp/source && cd /tmp/source && apt-get source --download-only oj")
    names = elsewhere.run("ls /tmp/source").stdout.split()
    assert [re.sub(r"_.*?(?=\.(dsc|tar))", "", name) for name in names] == ["oj.dsc", "oj.tar.xz"]
    for name in names:
        (tmp_path / name).write_bytes(elsewhere.get(f"/tmp/source/{name}"))
    words = ["dpkg-source", "--no-check", "--extract", names[0], "oj"]
    subprocess.run(words, cwd=tmp_path, check=True, capture_output=True)
    for name in ("daemons/oj/__init__.py", "daemons/box/main.c", "debian/control", "LICENSE"):
        assert (tmp_path / "oj" / name).exists()


# --- what is in it -------------------------------------------------------------------------------


def test_debug_symbols_are_those_of_the_sandbox(tmp_path: Path) -> None:
    for pattern in ("oj-executor_*.deb", "oj-executor-dbgsym_*.deb"):
        deb = next(PACKAGES.glob(pattern))
        subprocess.run(["dpkg-deb", "--extract", deb, tmp_path], check=True)
    words = ["readelf", "--notes", tmp_path / "usr/libexec/oj/oj-box"]
    notes = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    found = re.search(r"Build ID: ([0-9a-f]+)", notes)
    assert found
    symbols = tmp_path / "usr/lib/debug/.build-id" / found[1][:2] / f"{found[1][2:]}.debug"
    words = ["readelf", "--sections", symbols]
    sections = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert ".debug_info" in sections


def test_the_source_of_mongod_is_only_the_wrapper(tmp_path: Path) -> None:
    source = next(PACKAGES.glob("oj-mongod_*.tar.xz"))
    assert source.stat().st_size < 100_000
    words = ["tar", "--list", "--file", source]
    names = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout
    assert "oj-mongod/debian/README.source" in names
    assert "oj-mongod/mongod\n" not in names


def test_the_bill_of_materials_names_every_package_with_its_hash() -> None:
    bill = load_bill(PACKAGES)
    told = {
        component["hashes"][0]["content"]: component
        for component in bill["components"]
        if component["purl"].startswith("pkg:deb/oj/")
    }
    there = {hashlib.sha256(p.read_bytes()).hexdigest(): p.name for p in PACKAGES.glob("*.deb")}
    assert {
        digest: component["properties"][0]["value"] for digest, component in told.items()
    } == there
    assert all(component["version"] for component in told.values())


def test_the_bill_of_materials_is_cyclonedx() -> None:
    bill = load_bill(PACKAGES)
    assert (bill["bomFormat"], bill["specVersion"], bill["version"]) == ("CycloneDX", "1.5", 1)
    assert re.fullmatch(r"urn:uuid:[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", bill["serialNumber"])
    assert set(bill) == {
        "bomFormat", "specVersion", "version", "serialNumber", "metadata", "components",
        "dependencies",
    }  # fmt: skip
    allowed = {
        "type", "bom-ref", "supplier", "name", "version", "description", "scope", "hashes",
        "licenses", "purl", "properties",
    }  # fmt: skip
    references = [bill["metadata"]["component"]["bom-ref"]]
    for component in bill["components"]:
        assert {"type", "name", "bom-ref"} <= set(component) <= allowed
        assert component["type"] in ("application", "library")
        assert component["scope"] in ("required", "optional", "excluded")
        assert re.match(r"pkg:(deb|pypi)/[^/]+", component["purl"])
        for digest in component.get("hashes", ()):
            assert digest["alg"] == "SHA-256"
            assert re.fullmatch(r"[0-9a-f]{64}", digest["content"])
        references.append(component["bom-ref"])
    assert len(references) == len(set(references))
    told = [entry["ref"] for entry in bill["dependencies"]]
    assert sorted(told) == sorted(references)
    for entry in bill["dependencies"]:
        assert set(entry["dependsOn"]) <= set(references)
        assert len(entry["dependsOn"]) == len(set(entry["dependsOn"]))


def test_the_bill_of_materials_has_what_no_package_shows() -> None:
    """What is linked statically, what is wrapped, and what everything was built with."""
    bill = load_bill(PACKAGES)
    by_name = {component["name"]: component for component in bill["components"]}
    depends = {entry["ref"]: entry["dependsOn"] for entry in bill["dependencies"]}
    executor = depends[by_name["oj-executor"]["bom-ref"]]
    for name in ("libseccomp", "glibc"):
        assert by_name[name]["bom-ref"] in executor
        assert re.match(r"\d", by_name[name]["version"])
        assert by_name[name]["licenses"][0]["license"]["id"].startswith("LGPL-2.1")
    assert by_name["python3-oj"]["bom-ref"] in executor
    assert by_name["libseccomp-dev"]["scope"] == "excluded"
    assert by_name["python3-pymongo"]["scope"] == "required"
    mongod = by_name["mongod"]
    assert mongod["bom-ref"] in depends[by_name["oj-mongod"]["bom-ref"]]
    deb = next(PACKAGES.glob("oj-mongod_*.deb"))
    unpacking = f"dpkg-deb --fsys-tarfile '{deb}' | tar -xO ./usr/bin/mongod | sha256sum"
    digest = subprocess.run(unpacking, shell=True, stdout=subprocess.PIPE, text=True, check=True)
    assert mongod["hashes"][0]["content"] == digest.stdout.split(maxsplit=1)[0]
    words = [TREE / "packaging" / "fetch-mongod", "--describe"]
    origin = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True).stdout.split()
    values = {entry["name"]: entry["value"] for entry in mongod["properties"]}
    assert values["oj:wheel"] == origin[1]
    assert f"sha256:{values['oj:wheel-sha256']}" == origin[2]


def load_bill(repository: Path) -> Any:
    return json.loads(next(repository.glob("*.cdx.json")).read_text())


# --- built twice ---------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def second(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Built again from the same files: elsewhere, later, in a tree with other times and rights, for
    somebody with other habits; mongod is packed again as well."""
    top = tmp_path_factory.mktemp("again")
    listed = subprocess.run(
        [TREE / "packaging" / "build", "--list"], stdout=subprocess.PIPE, check=True
    )
    packed = subprocess.run(
        ["tar", "-C", TREE, "--create", "--files-from=-"],
        input=listed.stdout, stdout=subprocess.PIPE, check=True,
    )  # fmt: skip
    tree = top / "a tree"
    tree.mkdir()
    subprocess.run(["tar", "-C", tree, "--extract"], input=packed.stdout, check=True)
    subprocess.run(["chmod", "-R", "go=", tree], check=True)
    subprocess.run(["find", tree, "-exec", "touch", "--date=2001-02-03", "{}", "+"], check=True)
    (top / "tmp").mkdir()
    (top / "cache").mkdir()
    cache = Path(os.environ.get("OJ_CACHE", "/var/cache/oj"))
    for mongod in cache.glob("mongod-*"):
        (top / "cache" / mongod.name).symlink_to(mongod)
    habits = {
        "TZ": "Asia/Kolkata", "LANG": "C", "LC_ALL": "C", "HOME": str(top),
        "TMPDIR": str(top / "tmp"), "OJ_CACHE": str(top / "cache"), "DEB_BUILD_OPTIONS": "noopt",
        "CFLAGS": "-O0",
    }  # fmt: skip
    words = [tree / "packaging" / "build", "--no-lintian", "--out", top / "apt"]
    subprocess.run(
        ["sh", "-c", 'umask 077 && exec "$@"', "sh", *words], env=os.environ | habits, check=True
    )
    return top / "apt"


@pytest.fixture(scope="module")
def first(second: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What is tested elsewhere; built anew where packages were installed here since, for then both
    were built with others, as their bills tell."""
    if list_tools(BUILT_HERE) == list_tools(second):
        return BUILT_HERE
    out = tmp_path_factory.mktemp("anew") / "apt"
    subprocess.run([TREE / "packaging" / "build", "--no-lintian", "--out", out], check=True)
    return out


def list_tools(repository: Path) -> set[str]:
    parts = load_bill(repository)["components"]
    return {one["bom-ref"] for one in parts if one.get("scope") == "excluded"}


def test_the_same_files_give_the_same_packages(first: Path, second: Path) -> None:
    """Every byte of packages, sources, indexes and the bill of materials."""
    assert (second / ".built-from").read_text() == (BUILT_HERE / ".built-from").read_text(), (
        f"{BUILT_HERE} is of another state of the tree: run packaging/build"
    )
    digests = [
        {
            path.name: hashlib.sha256(path.read_bytes()).hexdigest()
            for path in directory.iterdir()
            if path.name not in OF_ONE_SIGNING
        }
        for directory in (first, second)
    ]
    assert digests[0] == digests[1]
    assert len([name for name in digests[0] if name.endswith((".deb", ".dsc", ".tar.xz"))]) >= 13


def test_the_release_file_differs_in_the_time_of_signing_alone(first: Path, second: Path) -> None:
    one, again = (
        re.sub(r"(?m)^Date: .*\n", "", (directory / "Release").read_text())
        for directory in (first, second)
    )
    assert one == again
