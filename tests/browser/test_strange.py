"""What strangers write is shown as text, whatever it is: markup, no text at all, far too much."""

from __future__ import annotations

import base64
import re
import socket
from typing import Any
from urllib.parse import quote

import servers
from browser.browser import Browser, wait
from gateways import Gateway

STATIC = servers.TREE / "daemons" / "oj" / "gateway" / "static"
IMAGE = "<img src=x onerror=window.hit=1>"
SCRIPT = "\"'><script>window.hit=1</script><svg onload=window.hit=1><a href=javascript:hit=1>x</a>"
MANY = 10 << 20


def add(gateway: Gateway, token: str, **task: Any) -> str:
    answer = gateway.call("POST", "/api/v1/tasks", task, token=token)
    assert answer.status == 201, answer.body
    task_id = str(answer.json["id"])
    while not gateway.call("GET", f"/api/v1/tasks/{task_id}/wait", token=token).json["done"]:
        pass
    return task_id


def test_no_script_of_ours_makes_markup_out_of_text() -> None:
    forbidden = re.compile(
        r"innerHTML|outerHTML|insertAdjacentHTML|document\.write|\beval\(|new Function|srcdoc"
        r"|createContextualFragment|DOMParser|setTimeout\(\s*[\"']|https?://(?!www\.w3\.org/2000/svg)"
    )
    scripts = [*STATIC.rglob("*.js"), *STATIC.glob("*.html")]
    assert len(scripts) > 20
    found = [
        f"{path.name}: {match.group()}"
        for path in scripts
        for match in forbidden.finditer(path.read_text())
    ]
    assert found == []
    for path in STATIC.glob("*.html"):
        assert not re.search(r"<style|\sstyle=|\son\w+=", path.read_text())


def test_both_languages_have_the_same_words() -> None:
    words = {
        name: set(re.findall(r'^  "([\w.]+)": ', (STATIC / "words" / name).read_text(), re.M))
        for name in ("en.js", "de.js")
    }
    assert words["en.js"] == words["de.js"] != set()
    asked = {
        key
        for path in STATIC.rglob("*.js")
        for key in re.findall(r'\bt\("([\w.]+)"', path.read_text())
    }
    assert asked - words["en.js"] == set()


def test_markup_in_any_field_stays_text(browser: Browser, gateway: Gateway) -> None:
    user, admin = f"u{IMAGE}", gateway.make_token("admin", user="root")
    prints = (
        f"import sys\nprint({SCRIPT!r})\nprint({IMAGE!r}, file=sys.stderr)\nraise SystemExit(3)\n"
    )
    task = add(
        gateway,
        admin,
        language="python",
        user=user,
        tags=[f"t{IMAGE}", f"t{SCRIPT}"],
        key=f"k{IMAGE}",
        source=[{"name": f"a{IMAGE}.py", "text": prints}],
        data=[{"name": f"d{IMAGE}", "text": IMAGE}],
        tests=[{"name": f"n{IMAGE}", "input": SCRIPT, "expected": IMAGE}],
    )
    broken = f"#error {SCRIPT}\nint main() {{ return {IMAGE}; }}\n"
    uncompiled = add(
        gateway, admin, language="cpp", source=[{"name": "m.cpp", "text": broken}], user=user
    )
    browser.log_in(admin, f"/tasks/{task}")
    browser.click("tr.result .toggle")
    for selector, text in (
        (".details", SCRIPT),
        (".details", IMAGE),
        ("tr.result", f"n{IMAGE}"),
        (".facts", user),
        (".facts", f"t{SCRIPT}"),
        (".facts", f"k{IMAGE}"),
        ("pre.source", "onerror"),
        (".files", f"d{IMAGE}"),
        ("details.source summary", f"a{IMAGE}.py"),
        (".hero", user),
    ):
        browser.see(selector, text)
    check_untouched(browser)
    download = browser.find("details.source a.download").get_attribute("href")
    assert quote(f"a{IMAGE}.py", safe="!'()*") in download or "a%3Cimg" in download
    browser.open(f"/tasks/{uncompiled}")
    browser.see("#compile-stderr", SCRIPT[:20])
    check_untouched(browser)
    browser.open(f"/tasks?user={quote(user)}&tag={quote(f't{SCRIPT}')}")
    browser.see(".tasks", user)
    browser.see(".tasks", f"t{SCRIPT}")
    check_untouched(browser)
    browser.click(".tasks a.tag")
    browser.find(".tasks tbody tr")
    browser.open(f"/submit?from={task}")
    wait(lambda: browser.find("input[name=filename]").get_property("value") == f"a{IMAGE}.py")
    check_untouched(browser)
    made = gateway.call(
        "POST", "/api/v1/tokens", {"name": SCRIPT, "user": user, "roles": ["read"]}, token=admin
    )
    assert made.status == 201
    browser.open("/tokens")
    browser.see(".members", SCRIPT)
    browser.open("/")
    browser.see(".tasks", user)
    check_untouched(browser)
    browser.log_in(made.json["secret"])
    browser.see(".user", user)
    check_untouched(browser)


def check_untouched(browser: Browser) -> None:
    assert browser.script("return window.hit ?? null") is None
    assert browser.all("main img, main script, main [onerror], main [onload]") == []
    assert browser.all("a[href^='javascript']") == []


def test_bytes_that_are_no_text_are_shown_and_downloaded_exactly(
    browser: Browser, gateway: Gateway
) -> None:
    token = gateway.make_token("submit", user="bea")
    printed = bytes(range(256))
    broken = b"caf\xe9 \xff\xfe au lait\n"
    program = (
        f"import sys\nsys.stdout.buffer.write({printed!r} if input() == 'b' else {broken!r})\n"
    )
    task = add(
        gateway,
        token,
        language="python",
        source=[{"name": "b.py", "text": program}],
        tests=[
            {"input": "b", "expected": {"base64": base64.b64encode(printed[:99]).decode()}},
            {"input": "t", "expected": "café au lait\n"},
        ],
    )
    browser.log_in(token, f"/tasks/{task}")
    browser.click("tr.result:nth-of-type(1) .toggle")
    browser.see(".details", "The first difference is byte 100.")
    browser.see(".details", "00 01 02 03")
    browser.click("tr.result:nth-of-type(3) .toggle")
    browser.see("tr.opened:nth-of-type(4) .details", "Not valid UTF-8")
    browser.see("tr.opened:nth-of-type(4) .diff .plus", "caf\ufffd")
    got = browser.driver.execute_async_script(
        """const done = arguments[1];
        fetch(arguments[0]).then((answer) => answer.arrayBuffer())
            .then((buffer) => done([...new Uint8Array(buffer)]));""",
        browser.find("a.download[href$='/tests/1/stdout']").get_attribute("href"),
    )
    assert bytes(got) == printed


def test_a_line_of_10_mb_is_shown_by_its_beginning(browser: Browser, gateway: Gateway) -> None:
    token = gateway.make_token("submit", user="big")
    task = add(
        gateway,
        token,
        language="python",
        source=[{"name": "b.py", "text": f"print('ab' * {MANY // 2})\n"}],
        tests=[{"input": "", "expected": "ab" * (MANY // 2 - 1) + "ac\n"}],
        execute={"limits": {"output_bytes": 2 * MANY, "cpu_ms": 20_000, "wall_ms": 60_000}},
    )
    browser.log_in(token, f"/tasks/{task}")
    browser.see("#verdict", "Wrong answer")
    browser.click("tr.result .toggle")
    browser.see(".details", "The beginning")
    browser.see(".details", "more characters")
    assert len(browser.text(".details")) < 50_000
    assert browser.wide() == 0
    browser.picture("task-long-line")


def test_no_address_leads_out_of_the_served_files(gateway: Gateway) -> None:
    for path in (
        "/static/x/../../../../../../etc/passwd",
        "/static/x/..%2f..%2f..%2fpages.py",
        "/static/x/shell.html",
        "/static/codemirror/../../../../../etc/passwd",
        "/static/codemirror/..%2f..%2f..%2f..%2fetc%2fpasswd",
        "/static/codemirror/lib/%2e%2e/%2e%2e/%2e%2e/doc",
        "/static/codemirror//etc/passwd",
        "/static/codemirror/lib/codemirror.js%00.css",
    ):
        answer = gateway.call("GET", path)
        assert answer.status in (301, 308, 404), (path, answer.status)
        assert b"root:" not in answer.body


def test_files_are_kept_by_browsers_and_the_shell_is_not(gateway: Gateway) -> None:
    shell = gateway.call("GET", "/", headers={"Accept": "text/html"})
    assert shell.header("Cache-Control") == "no-store"
    assert "script-src 'self'" in (shell.header("Content-Security-Policy") or "")
    found = re.findall(rb'(?:src|href)="(/static/[^"]+)"', shell.body)
    assert len(found) > 8
    for address in found:
        answer = gateway.call("GET", address.decode())
        assert answer.status == 200, address
        assert "immutable" in (answer.header("Cache-Control") or "")
    wrong = gateway.call("GET", "/nowhere", headers={"Accept": "text/html"})
    assert (wrong.status, b"<html" in wrong.body) == (404, True)
    assert gateway.call("GET", "/nowhere").header("Content-Type") == "application/problem+json"


def test_an_answer_without_a_body_leaves_nothing_on_the_connection(gateway: Gateway) -> None:
    address = "/static/codemirror/lib/codemirror.js"
    tag = gateway.call("GET", address).header("ETag")
    for request in (
        f"GET {address} HTTP/1.1\r\nIf-None-Match: {tag}\r\n",
        "DELETE /api/v1/session HTTP/1.1\r\n",
    ):
        with socket.create_connection(("127.0.0.1", gateway.port), timeout=60) as connection:
            connection.sendall(f"{request}Host: x\r\nConnection: keep-alive\r\n\r\n".encode())
            answer = b""
            while piece := connection.recv(65536):
                answer += piece
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.split()[1] in (b"204", b"304")
        assert body == b"", head
