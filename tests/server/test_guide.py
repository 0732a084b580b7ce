"""The examples of docs/api.md, run as they stand against a real gateway."""

from __future__ import annotations

import json
import os
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

import loopback
import servers
from gateways import Gateway
from oj.gateway.openapi import make_document
from oj.gateway.webhooks import sign

METHODS = ("get", "post", "put", "delete")
GUIDE = servers.TREE / "docs" / "api.md"
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def gateway(cluster: loopback.Cluster) -> Iterator[Gateway]:
    one = Gateway(cluster.addresses, "[webhooks]\nsend = no")
    yield one
    one.close()


def read_blocks(language: str) -> str:
    """All blocks of a language, one after the other: later ones use what earlier ones made."""
    blocks = [text for name, text in BLOCK.findall(GUIDE.read_text()) if name == language]
    assert blocks
    return "\n".join(blocks)


def run(gateway: Gateway, command: Sequence[str], directory: Path) -> list[str]:
    done = subprocess.run(
        command,
        cwd=directory,
        env={
            "PATH": "/usr/bin:/bin",
            "HOME": str(directory),
            "LC_ALL": "C.UTF-8",
            "OJ_SERVER": gateway.url,
            "OJ_TOKEN": gateway.make_token("submit", user="guide"),
        },
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout.splitlines()


def test_the_examples_for_the_shell_work(gateway: Gateway, directory: Path) -> None:
    (directory / "guide.sh").write_text("set -euo pipefail\n" + read_blocks("sh"))
    said = run(gateway, ["/bin/bash", "guide.sh"], directory)
    assert "accepted" in said
    assert "cba" in said and "print(input()[::-1])" in said
    assert "1" in said, "the same key made two tasks"
    assert said[-1] == "event: end"


def test_the_examples_in_python_work(gateway: Gateway, directory: Path) -> None:
    (directory / "guide.py").write_text(
        read_blocks("python")
        + "\nimport sys\nprint(is_genuine(sys.argv[1], sys.argv[2], sys.argv[3].encode()))\n"
        "print(is_genuine(sys.argv[1] + 'x', sys.argv[2], sys.argv[3].encode()))\n"
    )
    body = json.dumps({"event": "task.done"})
    signature = sign("secret", int(time.time()), body.encode())
    command = [servers.PYTHON, "guide.py", "secret", signature, body]
    said = run(gateway, command, directory)
    assert said[0] == "guide"
    assert "accepted" in said
    assert any(line.startswith("422 language ") for line in said), said
    assert said[-2:] == ["True", "False"]


def test_the_examples_in_javascript_work(gateway: Gateway, directory: Path) -> None:
    (directory / "guide.mjs").write_text(read_blocks("js"))
    said = run(gateway, ["/usr/bin/node", "guide.mjs"], directory)
    assert "accepted" in said
    assert sum(line.endswith(" true") for line in said) == 2, "two were cancelled"
    assert [line for line in said if line.startswith("live: ")][-1] == "live: success"


def test_the_guide_names_every_call() -> None:
    named = re.findall(r"`(GET|POST|PUT|DELETE) (/[^` ]+)`", GUIDE.read_text())
    served = {
        (method.upper(), re.sub(r"{[^}]+}", "X", path))
        for path, item in make_document()["paths"].items()
        for method in item
        if method in METHODS
    }
    assert served == {(method, re.sub(r"[A-Z]{2,}", "X", path)) for method, path in named}


def test_every_block_is_of_a_language_that_is_run() -> None:
    assert {name for name, _ in BLOCK.findall(GUIDE.read_text())} == {"sh", "python", "js"}
    assert os.access("/usr/bin/curl", os.X_OK) and os.access("/usr/bin/jq", os.X_OK)
