"""Everyone can use the page: axe-core finds nothing serious, and a phone's width is enough."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import servers
from browser.browser import Browser, wait
from gateways import Gateway

HERE = Path(__file__).resolve().parent
BUILD = servers.TREE / "build" / "axe"
BROKEN = "#include <iostream>\nint main() { std::cout << x; }\n"
LINES = "for i in range(20):\n    print('line', i if i != 12 else 'twelve')\n"
SLOW = "import time\ntime.sleep(int(input()))\n"
# What each view has once it is loaded.
VIEWS = {
    "overview": ("/", "#verdicts li"),
    "submit": ("/submit", ".CodeMirror"),
    "tasks": ("/tasks", ".tasks tbody tr"),
    "executors": ("/executors", ".executor"),
    "cluster": ("/judicators", ".members"),
    "tokens": ("/tokens", ".members tbody tr"),
    "wrong": ("/tasks/{wrong}", "tr.result"),
    "accepted": ("/tasks/{accepted}", "tr.result"),
    "uncompiled": ("/tasks/{uncompiled}", "#compile-stderr"),
    "running": ("/tasks/{running}", ".timeline .now"),
}


@pytest.fixture(scope="module")
def axe() -> str:
    """npm's axe-core, in a directory of its own; installed again only when package.json changes."""
    wanted = (HERE / "package.json").read_bytes()
    installed = BUILD / "installed.json"
    if not installed.exists() or installed.read_bytes() != wanted:
        BUILD.mkdir(parents=True, exist_ok=True)
        shutil.copy(HERE / "package.json", BUILD)
        done = subprocess.run(
            ["npm", "install", "--no-package-lock", "--no-audit", "--no-fund", "--loglevel=error"],
            cwd=BUILD,
            capture_output=True,
            text=True,
            timeout=300,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        installed.write_bytes(wanted)
    return (BUILD / "node_modules" / "axe-core" / "axe.min.js").read_text()


@pytest.fixture(scope="module")
def shown(gateway: Gateway) -> Iterator[dict[str, str]]:
    """Tasks of every kind that a view may show."""
    token = gateway.make_token("submit", user="ann")

    def add(**task: object) -> str:
        body = {"language": "python", "tags": ["course-7"], **task}
        return str(gateway.call("POST", "/api/v1/tasks", body, token=token).json["id"])

    def is_done(task: str) -> bool:
        return bool(gateway.call("GET", f"/api/v1/tasks/{task}", token=token).json["done"])

    expected = "".join(f"line {i}\n" for i in range(20))
    limits = {"limits": {"cpu_ms": 1000, "memory_bytes": 64 << 20}}
    source = [{"name": "lines.py", "text": LINES}]
    tasks = {
        "wrong": add(
            source=source,
            execute=limits,
            tests=[{"name": f"sample-{i}", "expected": expected} for i in range(3)],
        ),
        "accepted": add(
            source=source, execute=limits, tests=[{"name": f"test-{i}"} for i in range(12)]
        ),
        "uncompiled": add(language="cpp", source=[{"name": "main.cpp", "text": BROKEN}]),
    }
    for task in tasks.values():
        wait(lambda task=task: is_done(task), "the verdict")
    # Its second test goes on until it is cancelled.
    tasks["running"] = add(
        source=[{"name": "slow.py", "text": SLOW}],
        execute={"limits": {"wall_ms": 1_150_000}},
        tests=[{"input": "0"}, {"input": "1150"}, {"input": "0"}],
    )
    yield tasks
    gateway.call("POST", f"/api/v1/tasks/{tasks['running']}/cancel", token=token)


def show(browser: Browser, name: str, tasks: dict[str, str]) -> None:
    path, loaded = VIEWS[name]
    browser.open(path.format(**tasks))
    browser.find(loaded)
    if name == "wrong":
        browser.click("tr.result.bad .toggle")
        browser.find(".diff .minus")
    wait(lambda: not browser.all(".loading"))


def check(browser: Browser, axe: str, name: str) -> list[str]:
    browser.script(axe)
    found = browser.driver.execute_async_script(
        """const done = arguments[0];
        axe.run(document, {resultTypes: ["violations"]}).then((all) => done(all.violations));"""
    )
    return [
        f"{name}: {one['impact']}: {one['id']}: {node['html'][:160]} ({node['failureSummary']})"
        for one in found
        if one["impact"] in ("serious", "critical")
        for node in one["nodes"][:3]
    ]


@pytest.mark.parametrize("look", ["light", "dark"])
def test_no_view_has_a_serious_problem_for_anyone(
    start_browser: Callable[..., Browser],
    gateway: Gateway,
    axe: str,
    shown: dict[str, str],
    look: str,
) -> None:
    browser = start_browser(dark=look == "dark")
    browser.driver.set_script_timeout(60)
    browser.open("/login")
    problems = check(browser, axe, "login")
    browser.picture(f"login-{look}-desktop")
    browser.log_in(gateway.make_token("admin", user="root"))
    for name in VIEWS:
        show(browser, name, shown)
        problems += check(browser, axe, name)
        browser.picture(f"{name}-{look}-desktop")
    for name in ("overview", "submit", "wrong"):  # for the guides: docs/pictures
        browser.resize(1100, 760)
        show(browser, name, shown)
        browser.script("scrollTo(0, 0)")
        browser.picture(f"guide-{name}-{look}", whole=False)
    browser.resize(1280, 900)
    browser.open("/executors")
    browser.click("button[aria-label='Keyboard shortcuts']")
    browser.find("dialog")
    problems += check(browser, axe, "help")
    browser.picture(f"help-{look}-desktop")
    assert problems == []
    assert browser.complaints() == []
    assert browser.strangers() == []


@pytest.mark.parametrize("look", ["light", "dark"])
def test_a_phone_is_wide_enough(
    start_browser: Callable[..., Browser],
    gateway: Gateway,
    axe: str,
    shown: dict[str, str],
    look: str,
) -> None:
    browser = start_browser(dark=look == "dark", language="de" if look == "dark" else "en")
    browser.driver.set_script_timeout(60)
    browser.resize(360, 740)
    browser.log_in(gateway.make_token("admin", user="root"))
    problems = []
    for name in VIEWS:
        show(browser, name, shown)
        if browser.wide():
            problems.append(f"{name} is {browser.wide()} px too wide")
        problems += check(browser, axe, name)
        browser.picture(f"{name}-{look}-phone")
    assert problems == []
    assert browser.complaints() == []
