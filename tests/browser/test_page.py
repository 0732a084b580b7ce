"""The page as people use it, in a real browser, against a real cluster."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import loopback
from browser.browser import Browser, wait
from gateways import Gateway

ADD = "a, b = map(int, input().split())\nprint(a + b)\n"
SLEEP = "import time\ntime.sleep(50)\n"
LONG = {"limits": {"wall_ms": 60_000}}


def add_task(gateway: Gateway, token: str, **more: Any) -> str:
    task = {
        "language": "python",
        "source": [{"name": "add.py", "text": ADD}],
        "tests": [{"input": "1 2", "expected": "3"}],
        **more,
    }
    answer = gateway.call("POST", "/api/v1/tasks", task, token=token)
    assert answer.status == 201, answer.body
    return str(answer.json["id"])


def row(task: str) -> str:
    return f".tasks tr[data-id='{task}']"


def test_somebody_logs_in_submits_and_watches_the_verdict_come(
    browser: Browser, gateway: Gateway
) -> None:
    browser.open("/submit")
    assert browser.path.startswith("/login")
    browser.type("input[name=token]", gateway.make_token("submit", user="ann"))
    browser.click("form button[type=submit]")
    browser.see(".user", "ann")
    wait(lambda: browser.path == "/submit")
    browser.script("window.notReloaded = true")
    browser.choose("select[name=language]", "python")
    browser.write_program("import time\n" + ADD + "time.sleep(2.5)\n")
    browser.type("textarea[name=input]", "1 2")
    browser.type("textarea[name=expected]", "3")
    browser.click("#addtest")
    browser.type("li.test:nth-child(2) textarea[name=input]", "2 2")
    browser.type("li.test:nth-child(2) textarea[name=expected]", "5")
    browser.click("form details summary")
    browser.type("input[name=wall]", "60")  # a busy machine sleeps longer
    browser.type("input[name=tags]", "course, week 3")
    browser.picture("submit-light-desktop")
    browser.click("#send")
    browser.find(".hero.live")
    browser.see("#verdict", "Wrong answer")
    browser.see(".hero", "1 of 2 tests passed")
    assert len(browser.all("tr.result")) == 2
    assert len(browser.all(".timeline .past")) >= 4
    assert len(browser.all(".facts a.tag")) == 2
    browser.click("tr.result.bad .toggle")
    browser.see(".diff .minus .line", "5")
    browser.see(".diff .plus .line", "4")
    browser.see("pre.source .cm-builtin", "map")
    assert browser.script("return window.notReloaded")
    browser.picture("task-light-desktop")


def test_ctrl_enter_submits_and_a_draft_outlives_a_reload(
    browser: Browser, gateway: Gateway
) -> None:
    browser.log_in(gateway.make_token("submit", user="kim"), "/submit")
    browser.choose("select[name=language]", "python")
    browser.write_program(ADD)
    browser.type("textarea[name=input]", "1 2")
    browser.click(".brand")
    browser.find(".tile")
    browser.open("/submit")
    wait(
        lambda: (
            ADD
            in browser.script(
                "return document.querySelector('.CodeMirror')?.CodeMirror.getValue() ?? ''"
            )
        )
    )
    # Without a language nothing can be submitted.
    wait(lambda: browser.find("select[name=language]").get_property("value") == "python")
    browser.click("textarea[name=expected]")
    browser.script(
        "document.activeElement.dispatchEvent(new KeyboardEvent('keydown',"
        " {key: 'Enter', ctrlKey: true, bubbles: true, cancelable: true}))"
    )
    browser.find("tr.result")


def test_files_and_a_zip_of_tests_go_along(
    browser: Browser, gateway: Gateway, tmp_path: Path
) -> None:
    import zipfile

    (tmp_path / "prog.py").write_text("import other\nother.run()\n")
    (tmp_path / "other.py").write_text("def run():\n    print(int(input()) * 2)\n")
    with zipfile.ZipFile(tmp_path / "tests.zip", "w") as archive:
        for name, number in (("one", 4), ("two", 5)):
            archive.writestr(f"{name}.in", f"{number}\n")
            archive.writestr(f"{name}.ans", f"{2 * number}\n")
    browser.log_in(gateway.make_token("submit", user="zoe"), "/submit")
    browser.choose("select[name=language]", "python")
    browser.find(".CodeMirror")
    browser.find("input[name=files]").send_keys(f"{tmp_path / 'prog.py'}\n{tmp_path / 'other.py'}")
    browser.see(".files", "other.py")
    wait(lambda: browser.find("input[name=filename]").get_property("value") == "prog.py")
    browser.click("li.test button.square")
    browser.find("input[name=zip]").send_keys(str(tmp_path / "tests.zip"))
    browser.click("#send")
    browser.see("#verdict", "Accepted")
    browser.find("tr.result")  # the verdict comes first
    assert [found.text.split()[0] for found in browser.all("tr.result")] == ["one", "two"]


def test_filters_live_in_the_address_and_the_list_follows_by_itself(
    browser: Browser, gateway: Gateway
) -> None:
    token = gateway.make_token("submit", user="fay")
    right = add_task(gateway, token, tags=["t-one"])
    wrong = add_task(gateway, token, tests=[{"input": "1 2", "expected": "9"}], tags=["t-two"])
    browser.log_in(token, "/tasks")
    browser.see(row(right), "Accepted")
    browser.see(row(wrong), "Wrong answer")
    browser.choose("select[name=verdict]", "wrong_answer")
    wait(lambda: "verdict=wrong_answer" in browser.path)
    wait(lambda: browser.all(row(wrong)) and not browser.all(row(right)))
    browser.driver.back()
    browser.find(row(right))
    assert browser.path == "/tasks"
    browser.type("input[name=tag]", "t-one")
    browser.click(".filters button[type=submit]")
    wait(lambda: browser.path == "/tasks?tag=t-one")
    wait(lambda: browser.all(row(right)) and not browser.all(row(wrong)))
    browser.script("window.notReloaded = true")
    fresh = add_task(gateway, token, tags=["t-one"])
    browser.see(row(fresh), "Accepted")
    assert browser.script("return window.notReloaded")
    browser.click("#clear")
    browser.find(row(wrong))


def test_several_tasks_are_rejudged_and_cancelled_together(
    browser: Browser, gateway: Gateway
) -> None:
    token = gateway.make_token("submit", user="sue")
    done = [add_task(gateway, token) for _ in range(2)]
    browser.log_in(token, "/tasks")
    for task in done:
        browser.see(row(task), "Accepted")
        browser.click(f"{row(task)} input[type=checkbox]")
    browser.see(".selection strong", "2 selected")
    browser.click("#tasks-rejudge")
    wait(lambda: len(browser.all(".tasks tbody tr")) == 4)
    wait(lambda: browser.all(".selection[hidden]"))  # what was selected is forgotten
    slow = [
        add_task(gateway, token, source=[{"name": "s.py", "text": SLEEP}], tests=[], execute=LONG)
        for _ in range(2)
    ]
    for task in slow:
        browser.see(row(task), "running")
    for task in slow:
        browser.click(f"{row(task)} input[type=checkbox]")
    browser.click("#tasks-cancel")
    for task in slow:
        browser.see(row(task), "Cancelled")


def test_one_task_is_cancelled_and_rejudged(browser: Browser, gateway: Gateway) -> None:
    token = gateway.make_token("submit", user="joe")
    task = add_task(
        gateway, token, source=[{"name": "s.py", "text": SLEEP}], tests=[], execute=LONG
    )
    browser.log_in(token, f"/tasks/{task}")
    browser.see("#verdict", "running")
    browser.click("#task-cancel")
    browser.see("#verdict", "Cancelled")
    browser.click("#task-rejudge")
    wait(lambda: browser.path.startswith("/tasks/") and not browser.path.endswith(task))
    browser.see(".facts", f"rejudge:{task}")
    browser.click("#task-cancel")
    browser.see("#verdict", "Cancelled")


def test_a_wrong_token_is_told_kindly_and_log_out_ends_everything(
    start_browser: Callable[..., Browser], gateway: Gateway
) -> None:
    browser = start_browser()
    browser.open("/tasks")
    browser.type("input[name=token]", "oj_wrong")
    browser.click("form button[type=submit]")
    browser.see(".error", "not known")
    browser.type("input[name=token]", gateway.make_token("submit", user="lea"))
    browser.click("form button[type=submit]")
    browser.see(".user", "lea")
    wait(lambda: browser.path == "/tasks")
    browser.find(".filterbox")  # until the page is there, the form that logged in still is
    browser.click("#logout")
    wait(lambda: browser.path == "/login")
    browser.find("input[name=token]")
    browser.driver.back()
    browser.find("input[name=token]")
    # A browser tells of each answer above 400; only the one for the wrong token may come.
    assert browser.complaints(expected=("/api/v1/session - Failed to load resource",)) == []


def test_too_many_wrong_tokens_are_told_as_such(
    own_cluster: loopback.Cluster, start_browser: Callable[..., Browser]
) -> None:
    strict = Gateway(own_cluster.addresses, "[limits]\nlogins = 1")
    try:
        browser = start_browser(strict.url)
        browser.open("/login")

        button = "form button[type=submit]"

        def try_wrong_token() -> str:
            browser.type("input[name=token]", "oj_wrong")
            browser.click(button)
            return wait(lambda: browser.all(f"{button}:enabled") and browser.text(".error"), "it")

        assert "not known" in try_wrong_token()
        # By the minute of the clock: where one ends in between, the next try is a first one.
        tries = (try_wrong_token() for _ in range(3))
        assert any("Wait a minute" in told for told in tries)
    finally:
        strict.close()


def test_guests_see_everything_and_change_nothing_where_that_is_configured(
    own_cluster: loopback.Cluster, start_browser: Callable[..., Browser]
) -> None:
    open_gateway = Gateway(own_cluster.addresses, "[access]\nanonymous = read")
    try:
        token = open_gateway.make_token("submit", user="gus")
        task = add_task(open_gateway, token)
        browser = start_browser(open_gateway.url)
        browser.open(f"/tasks/{task}")
        browser.see("#verdict", "Accepted")
        assert not browser.all("#task-rejudge")
        browser.open("/tasks")
        browser.find(row(task))
        assert not browser.all(".tasks input[type=checkbox]")
        browser.open("/submit")
        browser.see("main", "Log in to submit")
        assert browser.complaints() == []
    finally:
        open_gateway.close()


def test_an_administrator_drains_an_executor_and_makes_a_token(
    browser: Browser, gateway: Gateway
) -> None:
    browser.log_in(gateway.make_token("admin", user="root"), "/executors")
    browser.see(".executor .badge", "in service")
    browser.click(".executor button")
    browser.see(".executor .badge", "drained")
    browser.click(".executor button")
    browser.see(".executor .badge", "in service")
    browser.click(".executor a[href='/tasks?executor=executor-1']")
    wait(lambda: browser.find("input[name=executor]").get_property("value") == "executor-1")
    browser.open("/judicators")
    browser.see("main", "judicator-1")
    browser.see("section[aria-label=Judicators]", "healthy")
    browser.see("main", "primary")
    browser.open("/tokens")
    browser.type("form input[name=name]", "from the page")
    browser.type("form input[name=user]", "ned")
    browser.click("form button[type=submit]")
    secret = browser.text(".made .secret")
    assert gateway.call("GET", "/api/v1/tasks", token=secret).status == 200
    browser.see(".members", "from the page")
    browser.click(
        ".members tr:has(td:first-of-type) button[aria-label='Remove the token from the page']"
    )
    browser.click("dialog .danger")
    wait(lambda: "from the page" not in browser.text(".members"))


def test_the_overview_counts_what_happens_by_itself(browser: Browser, gateway: Gateway) -> None:
    token = gateway.make_token("read", "submit", user="eve")
    browser.log_in(token)
    browser.find(".tile")
    browser.script("window.notReloaded = true")
    tasks = [add_task(gateway, token) for _ in range(3)]
    browser.see(f".tasks tr[data-id='{tasks[-1]}']", "Accepted")
    browser.see("#verdicts", "Accepted")
    assert "tasks judged" in browser.find("#throughput svg[role=img]").get_attribute("aria-label")
    wait(lambda: browser.all("#throughput rect.good"))
    wait(lambda: browser.all("#waiting .p50"))
    browser.click("#throughput details summary")
    browser.find("#throughput table tbody tr")
    assert browser.script("return window.notReloaded")


def test_the_overview_shows_how_many_tasks_are_open_over_time(
    browser: Browser, gateway: Gateway
) -> None:
    token = gateway.make_token("submit", user="olga")
    slow = {"source": [{"name": "s.py", "text": SLEEP}], "tests": [], "execute": LONG}
    tasks = [add_task(gateway, token, **slow) for _ in range(4)]
    browser.log_in(token)

    def told() -> int:
        label: str = browser.find("#queue svg[role=img]").get_attribute("aria-label")
        return int(label.partition(" tasks wait or run now")[0])

    wait(lambda: told() >= len(tasks) and browser.all("#queue rect.open"))
    for task in tasks:
        gateway.call("POST", f"/api/v1/tasks/{task}/cancel", token=token)
    wait(lambda: told() < len(tasks))


def test_charts_count_open_tasks_back_from_now_and_have_round_scales(browser: Browser) -> None:
    browser.open("/login")
    found = browser.driver.execute_async_script(
        """const done = arguments[arguments.length - 1];
        const root = document.querySelector("script[type=module]").src.replace("main.js", "");
        Promise.all(["histogram.js", "charts.js"].map((name) => import(root + name)))
          .then(([{group}, {scaleOf}]) => {
            const at = (n) => new Date(n * 60000).toISOString();
            const none = {verdicts: {}, waiting: [], judging: []};
            const minute = (n, added, ended) =>
              ({...none, time: at(n), added, ended: {success: ended}});
            const minutes = [minute(100, 5, 1), minute(102, 0, 3), minute(103, 2, 1)];
            const open = (most) =>
              group(minutes, 5, most, 104 * 60000, 2).map((slot) => slot.open);
            done([open(5), open(2), scaleOf([70, 130000]), scaleOf([]), scaleOf([3, 3e8])]);
          });"""
    )
    assert found == [
        [4, 4, 1, 2, 2],
        [4, 2],
        [10, 100, 1000, 10_000, 60_000, 600_000],
        [1000, 10_000],
        [1, 100, 10_000, 600_000, 36_000_000, 864_000_000],
    ]


def test_a_page_that_lost_its_gateway_goes_on_by_itself(
    own_cluster: loopback.Cluster, start_browser: Callable[..., Browser]
) -> None:
    import servers

    mortal = Gateway(own_cluster.addresses, "[webhooks]\nsend = no")
    try:
        token = mortal.make_token("submit", user="liv")
        browser = start_browser(mortal.url)
        browser.log_in(token, "/tasks")
        browser.see(".livemark", "live")
        mortal.daemon.close()
        browser.see(".livemark", "connecting")
        mortal.daemon = servers.start_daemon("gateway", mortal.config, mortal.directory)
        browser.see(".livemark", "live")
        task = add_task(mortal, token)
        browser.see(row(task), "Accepted")
    finally:
        mortal.close()


def test_it_speaks_german_and_remembers(
    start_browser: Callable[..., Browser], gateway: Gateway
) -> None:
    browser = start_browser(language="de-DE")
    browser.log_in(gateway.make_token("submit", user="uli"), "/tasks")
    browser.see("h1", "Aufträge")
    assert browser.find("html").get_attribute("lang") == "de"
    browser.choose("#language", "en")
    browser.see("h1", "Tasks")
    browser.open("/submit")
    browser.see("h1", "Submit a program")
    assert browser.complaints() == []


def test_the_keyboard_alone_goes_everywhere(browser: Browser, gateway: Gateway) -> None:
    from selenium.webdriver.common.action_chains import ActionChains
    from selenium.webdriver.common.keys import Keys

    def press(*keys: str) -> None:
        ActionChains(browser.driver).send_keys(*keys).perform()

    browser.log_in(gateway.make_token("submit", user="kay"), "/executors")
    browser.find(".executor")
    press(Keys.TAB)
    assert browser.script("return document.activeElement.className") == "skip"
    press(Keys.ENTER)
    assert browser.script("return document.activeElement.id") == "content"
    press("?")
    browser.see("dialog", "Keyboard shortcuts")
    press(Keys.ESCAPE)
    wait(lambda: not browser.all("dialog"))

    def go_to_tasks() -> bool:
        """Again where the machine was slower than the page waits for the second key."""
        press("g", "t")
        return browser.path == "/tasks"

    wait(go_to_tasks)
    browser.find(".filters")
    assert browser.script("return document.activeElement.tagName") == "H1"
    press("/")
    wait(lambda: browser.script("return document.activeElement.name") == "status")


def test_the_look_can_be_switched_and_stays(browser: Browser, gateway: Gateway) -> None:
    browser.log_in(gateway.make_token("read", user="dia"))
    ground = "return getComputedStyle(document.body).backgroundColor"
    light = browser.script(ground)
    browser.click("#theme")
    browser.click("#theme")
    wait(lambda: browser.script("return document.documentElement.dataset.theme") == "dark")
    dark = browser.script(ground)
    assert dark != light
    browser.open("/tasks")
    assert browser.script(ground) == dark


@pytest.mark.parametrize("address", ["/nowhere", "/tasks/6af000000000000000000000"])
def test_a_wrong_address_is_told_as_a_page(
    start_browser: Callable[..., Browser], gateway: Gateway, address: str
) -> None:
    browser = start_browser()
    browser.log_in(gateway.make_token("read", user="wim"))
    browser.open(address)
    wait(lambda: "nothing here" in browser.text("main") or "no such task" in browser.text("main"))


def test_a_long_list_has_pages(browser: Browser, gateway: Gateway) -> None:
    token = gateway.make_token("submit", user="pam")
    task = {"language": "python", "source": [{"name": "p.py", "text": "print(1)\n"}]}
    body = {"tasks": [task] * 55}
    assert gateway.call("POST", "/api/v1/tasks/batch", body, token=token).status == 201
    browser.log_in(token, "/tasks")
    wait(lambda: len(browser.all(".tasks tbody tr")) == 50)
    newest = browser.find(".tasks tbody tr").get_attribute("data-id")
    browser.click("#older")
    wait(lambda: len(browser.all(".tasks tbody tr")) == 5)
    assert "cursor=" in browser.path
    browser.click("#newest")
    wait(lambda: browser.find(".tasks tbody tr").get_attribute("data-id") == newest)


def test_without_the_editor_a_plain_field_does(
    start_browser: Callable[..., Browser], gateway: Gateway
) -> None:
    browser = start_browser()
    browser.log_in(gateway.make_token("submit", user="pia"))
    browser.driver.execute_cdp_cmd("Network.enable", {})
    browser.driver.execute_cdp_cmd("Network.setBlockedURLs", {"urls": ["*/static/codemirror/*"]})
    browser.open("/submit")
    browser.choose("select[name=language]", "python")
    browser.type("textarea[name=source]", "print(7)\n")
    browser.click("#send")
    browser.see("#verdict", "Accepted")
    browser.see("pre.source", "print(7)")


def test_a_dropped_file_becomes_the_program(browser: Browser, gateway: Gateway) -> None:
    browser.log_in(gateway.make_token("submit", user="dan"), "/submit")
    browser.find(".CodeMirror")
    browser.script(
        """const data = new DataTransfer();
        data.items.add(new File(["print('dropped')\\n"], "dropped.py", {type: "text/x-python"}));
        const target = document.querySelector(".CodeMirror");
        for (const kind of ["dragenter", "dragover", "drop"])
            target.dispatchEvent(new DragEvent(
                kind, {bubbles: true, cancelable: true, dataTransfer: data}));"""
    )
    browser.see(".CodeMirror-code", "dropped")
    assert browser.find("input[name=filename]").get_property("value") == "dropped.py"


def test_a_changed_program_begins_with_what_was_submitted(
    browser: Browser, gateway: Gateway
) -> None:
    token = gateway.make_token("submit", user="ida")
    task = add_task(gateway, token, tags=["again"], execute={"limits": {"cpu_ms": 1500}})
    browser.log_in(token, f"/tasks/{task}")
    browser.click(".actions a[href^='/submit']")
    browser.see(".CodeMirror-code", "print")
    wait(lambda: browser.find("textarea[name=expected]").get_property("value") == "3")
    assert browser.find("input[name=tags]").get_property("value") == "again"
    assert browser.find("input[name=cpu]").get_property("value") == "1.5"


def test_a_changed_program_keeps_what_the_page_cannot_change(
    browser: Browser, gateway: Gateway
) -> None:
    """Files in directories, data, commands, weights, tests that are large or no text."""
    large = "5 " * 300_000
    token = gateway.make_token("submit", user="ilse")
    task = add_task(
        gateway,
        token,
        language="",
        source=[{"name": "cat.sh", "text": "cat\n"}, {"name": "lib/no.bin", "base64": "/wD/"}],
        data=[{"name": "words.txt", "text": "one two\n"}],
        compile={"command": ["/bin/cp", "cat.sh", "cat2.sh"], "limits": {"wall_ms": 9000}},
        execute={"command": ["/bin/sh", "cat2.sh"], "limits": {"processes": 7}},
        tests=[
            {"input": "1", "expected": "1", "weight": 3},
            {"name": "large", "input": large, "expected": large},
            {"name": "binary", "input": {"base64": "/wA="}, "expected": {"base64": "/wA="}},
        ],
        priority=2,
        compare="floats",
        tolerance=0.5,
    )
    browser.log_in(token, f"/submit?from={task}")
    browser.see(".toast", "Taken from task")
    browser.see(".testlist", "goes along as it is")
    browser.see(".files", "words.txt")
    browser.picture("submit-changed")
    browser.click("#send")
    browser.see("#verdict", "Accepted")
    again = browser.path.rpartition("/")[2]
    assert again != task

    def read(one: str) -> Any:
        return gateway.call("GET", f"/api/v1/tasks/{one}", token=token).json

    assert read(again)["task"] == read(task)["task"]
    assert read(again)["priority"] == 2
