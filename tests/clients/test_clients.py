"""Any language that Thrift knows can be a client: C++ and JavaScript, from the IDL alone."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

HERE = Path(__file__).resolve().parent
TREE = HERE.parents[1]
IDL = TREE / "thrift" / "judicator.thrift"
BUILD = TREE / "build" / "clients"


def run(*command: object, cwd: Path | None = None) -> str:
    done = subprocess.run(
        [str(word) for word in command], cwd=cwd, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


def build_cpp() -> list[object]:
    """Debian's libthrift-dev and thrift-compiler."""
    run("make", "--silent", "-j2", "-C", HERE / "cpp", f"OUT={BUILD / 'cpp'}")
    return [BUILD / "cpp" / "client"]


def build_js() -> list[object]:
    """npm's thrift, in a directory of its own; installed again only when package.json changes."""
    directory = BUILD / "js"
    (directory / "gen").mkdir(parents=True, exist_ok=True)
    run("thrift", "--gen", "js:node", "-out", directory / "gen", IDL)
    shutil.copy(HERE / "js" / "client.js", directory)
    wanted = (HERE / "js" / "package.json").read_bytes()
    installed = directory / "node_modules" / ".package.json"
    if not installed.exists() or installed.read_bytes() != wanted:
        shutil.copy(HERE / "js" / "package.json", directory)
        run(
            *("npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"),
            cwd=directory,
        )
        installed.write_bytes(wanted)
    return ["node", directory / "client.js"]


@pytest.mark.parametrize("build", [build_cpp, build_js], ids=["cpp", "js"])
def test_a_client_adds_a_task_waits_for_it_and_reads_the_result(build, cluster):
    answer = json.loads(run(*build(), *cluster.address))
    assert (answer["status"], answer["verdict"]) == ("RUN_FAILED", "WRONG_ANSWER")
    assert [(t["name"], t["verdict"], t["stdout"], t["exit_code"]) for t in answer["tests"]] == [
        ("right", "ACCEPTED", "hello\n", 0),
        ("wrong", "WRONG_ANSWER", "1\n", 0),
    ]
    # What a client can act on: one id for one key, and typed exceptions with the field.
    assert answer["added_again"] == answer["id"]
    assert answer["unknown_is_known"] is False
    assert answer["offending_field"] == "execute.limits.cpu_ms"
