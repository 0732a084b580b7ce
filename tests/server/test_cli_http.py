"""`oj` from outside, through a real gateway with a token: what holds over Thrift holds here."""

import contextlib
import http.server
import json
import os
import socket
import ssl
import subprocess
import threading
import time

import pytest

import servers
from gateways import Gateway
from oj.cli.remote.gateway import Gateway as RemoteGateway

# The same tests with another `environment`: the fixture below, not the one over Thrift.
from test_cli import (  # noqa: F401
    oj,
    one_line,
    problem,
    test_a_key_submits_once,
    test_a_large_test_file_is_sent_as_a_blob,
    test_a_plain_command_shows_what_it_printed,
    test_a_program_and_its_data_can_come_in_archives,
    test_a_program_that_does_not_compile_shows_the_compilers_words,
    test_a_reader_that_leaves_is_no_error,
    test_a_source_can_come_from_standard_input,
    test_a_tasks_files_are_saved_byte_by_byte,
    test_a_terminal_shows_one_line_of_progress_and_colours,
    test_a_token_may_live_for_hours,
    test_a_webhook_has_to_be_a_url,
    test_a_wrong_answer_is_exit_code_1_and_a_table,
    test_an_accepted_program_is_one_json_object_and_exit_code_0,
    test_an_interrupt_leaves_the_task_and_says_how_to_go_on,
    test_cancel_ends_a_task_and_says_when_there_was_nothing_to_end,
    test_drain_takes_an_executor_out_and_puts_it_back,
    test_files_beside_the_source_and_float_comparison,
    test_limits_and_failures_have_their_verdicts,
    test_rejudging_prints_the_new_task,
    test_search_finds_by_every_condition,
    test_status_can_wait_until_all_is_well,
    test_tests_after_the_first_failure_are_skipped_when_asked,
    test_the_cluster_is_described,
    test_tokens_are_made_listed_and_removed,
    test_without_waiting_the_id_is_printed_and_the_task_can_be_watched,
)


@pytest.fixture(scope="module")
def gateway(cluster):
    one = Gateway(cluster.addresses, "[limits]\nrequests = 100000\nlogins = 10000")
    yield one
    one.close()


@pytest.fixture(scope="module")
def admin(gateway):
    return gateway.make_token("admin", user="root")


@pytest.fixture
def environment(gateway, admin):
    kept = {name: value for name, value in os.environ.items() if "proxy" not in name.lower()}
    return {
        **kept,
        "PYTHONPATH": str(servers.TREE / "daemons"),
        "OJ_SERVER": gateway.url,
        "OJ_TOKEN": admin,
        "TERM": "xterm",
        "LC_ALL": "C.UTF-8",
    }


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["get", "xyz"], "not a task id"),
        (["get", "0" * 24], "0" * 24),
        (["watch", "0" * 24], "0" * 24),
        (["cancel", "0" * 24], "0" * 24),
        (["rejudge", "0" * 24], "0" * 24),
        (["submit", "no-such-file.py"], "No such file"),
        (["submit", "--command", "/bin/true", "--priority", "1000"], "priority"),
        (["drain", "nobody-by-that-name"], "nobody-by-that-name"),
        (["status", "--server", "judge.example"], "is not a URL"),
        (["status", "--server", "http://x", "--judicator", "x:1"], "do not go together"),
        (["status", "--token-file", "/no/such/file"], "No such file"),
        (["token", "add", "x", "--expires", "20000d"], "within 3650 days"),
    ],
)
def test_input_errors_are_one_line_and_exit_code_2(oj, words, message):  # noqa: F811
    assert message in one_line(oj(*words, code=2))


@pytest.mark.parametrize(
    "verb",
    [
        ["doctor"],
        ["setup", "executor", "--join", "x"],
        ["leave"],
        ["remove", "n1"],
        ["recover", "--only-survivor", "n1"],
        ["backup", "x"],
        ["restore", "x"],
    ],
)
def test_verbs_about_a_node_say_that_they_do_not_go_through_a_gateway(oj, verb):  # noqa: F811
    said = one_line(oj(*verb, "--server", "http://127.0.0.1:1", code=2))
    assert f"'oj {verb[0]}' works on a node of the cluster" in said


def test_a_token_is_needed_known_and_good_for_what_is_asked(oj, gateway, tmp_path):  # noqa: F811
    said = one_line(oj("status", code=2, env={"OJ_TOKEN": ""}))
    assert "--token-file" in said
    assert "not known" in one_line(oj("search", code=2, env={"OJ_TOKEN": "oj_wrong"}))
    reader = tmp_path / "token"
    reader.write_text(gateway.make_token("read", user="eve") + "\n")
    words = ("--token-file", reader)  # goes before OJ_TOKEN
    oj("search", *words)
    assert "'submit'" in one_line(oj("submit", "--command", "/bin/true", *words, code=2))
    assert "'admin'" in one_line(oj("token", "list", *words, code=2))
    reader.write_text("two words\n")
    assert "something else than one token" in one_line(oj("search", *words, code=2))
    reader.write_text("\n")
    assert "holds no token" in one_line(oj("search", *words, code=2))


def test_tasks_of_others_are_not_there(oj, gateway):  # noqa: F811
    task = oj("submit", "--command", "/bin/true", "--user", "ann").stdout.strip()
    bob = {"OJ_TOKEN": gateway.make_token("submit", user="bob")}
    for verb in ("get", "watch", "cancel", "rejudge"):
        assert task in one_line(oj(verb, task, code=2, env=bob))
    said = one_line(oj("submit", "--command", "/bin/true", "--user", "ann", code=2, env=bob))
    assert "other users" in said


def test_a_quota_that_is_used_up_is_exit_code_3(oj, gateway):  # noqa: F811
    env = {"OJ_TOKEN": gateway.make_token("submit", user="quo", quota=1)}
    words = ("submit", "--command", "/bin/true")
    hour = int(time.time() // 3600)
    oj(*words, env=env)
    try:
        said = one_line(oj(*words, code=3, env=env))
    except AssertionError:
        # By the hour of the clock: where one ended in between, that was a first one.
        if int(time.time() // 3600) == hour:
            raise
        said = one_line(oj(*words, code=3, env=env))
    assert said.startswith("oj: the token's quota of 1 tasks an hour is used up; try again in")


def test_what_is_too_large_for_the_gateway_is_exit_code_2(oj, cluster, tmp_path):  # noqa: F811
    (tmp_path / "big").write_bytes(os.urandom(4 << 20))
    one = Gateway(cluster.addresses, "[limits]\nbody = 64K")
    try:
        env = {"OJ_SERVER": one.url, "OJ_TOKEN": one.make_token("submit")}
        words = ("submit", "--command", "/bin/cat", "--input", tmp_path / "big")
        assert one_line(oj(*words, code=2, env=env)).startswith("oj: too large: ")
    finally:
        one.close()


def test_a_server_that_does_not_answer_is_exit_code_3(oj):  # noqa: F811
    with socket.create_server(("127.0.0.1", 0)) as listener:
        url = f"http://127.0.0.1:{listener.getsockname()[1]}"
        said = one_line(oj("search", "--server", url, "--timeout", "1s", code=3))
        assert "does not answer" in said and "no answer in time" in said
    said = one_line(oj("search", "--server", url, "--timeout", "1s", code=3))
    assert "Connection refused" in said


def test_the_configuration_names_the_gateway_and_the_token(oj, gateway, admin, tmp_path):  # noqa: F811
    (tmp_path / "token").write_text(admin)
    config = tmp_path / "client.conf"
    config.write_text(f"server = {gateway.url}\ntoken_file = {tmp_path / 'token'}\n")
    env = {"OJ_SERVER": "", "OJ_TOKEN": ""}
    found = json.loads(oj("judicators", "--config", config, "--json", env=env).stdout)
    assert found[0]["name"] == "judicator-1"


def test_judicators_of_the_command_line_go_before_a_gateway_of_the_environment(oj, cluster):  # noqa: F811
    where = ("--judicator", f"127.0.0.1:{cluster.address[1]}")
    oj("judicators", *where, env={"OJ_SERVER": "http://127.0.0.1:1", "OJ_TOKEN": ""})


def test_languages_are_the_same_from_inside_and_outside(oj, cluster):  # noqa: F811
    outside = json.loads(oj("languages", "--json").stdout)
    where = ("--judicator", f"127.0.0.1:{cluster.address[1]}")
    assert json.loads(oj("languages", "--json", *where).stdout) == outside
    assert "python" in [one["name"] for one in outside]
    assert "python" in oj("languages").stdout


def test_a_task_is_followed_by_waiting_where_no_stream_is_to_be_had(oj, cluster):  # noqa: F811
    one = Gateway(cluster.addresses, "processes = 1\n[limits]\nstreams = 1")
    try:
        token = one.make_token("submit", user="ann")
        env = {"OJ_SERVER": one.url, "OJ_TOKEN": token}
        with one.stream("/api/v1/events", token):
            done = oj("submit", "--command", "/bin/sleep 1", "--wait", env=env)
        assert done.stdout.splitlines()[-1] == "accepted"
    finally:
        one.close()


# -------------------------------------------------------------- other servers


@contextlib.contextmanager
def serving(handler):
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_a_redirect_is_not_followed_with_the_token(oj, gateway):  # noqa: F811
    class Elsewhere(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(302)
            self.send_header("Location", f"{gateway.url}{self.path}")
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_):
            pass

    with serving(Elsewhere) as url:
        said = one_line(oj("search", "--server", url, code=2))
        assert gateway.url in said and "does not follow" in said
        # Neither is a stream.
        assert "does not follow" in one_line(oj("watch", "0" * 24, "--server", url, code=2))


def test_who_asks_too_often_waits_and_goes_on(oj, gateway):  # noqa: F811
    token = gateway.make_token("submit", user="ann")
    task = gateway.call(
        "POST", "/api/v1/tasks", {"execute": {"command": ["/bin/true"]}}, token=token
    ).json["id"]
    left = [None] * 3

    class Busy(http.server.BaseHTTPRequestHandler):
        """The gateway, whose first answers are those of somebody who asked too often."""

        def do_GET(self):
            if left and self.path.partition("?")[0].endswith((task, "/wait")):
                left.pop()
                self._answer(429, b'{"detail": "more than 3 requests a minute"}')
            else:
                answer = gateway.call("GET", self.path, token=token)
                self._answer(answer.status, answer.body)

        def _answer(self, status, content):
            self.send_response(status)
            self.send_header("Content-Type", "application/json")
            self.send_header("Retry-After", "1")
            self.send_header("Content-Length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_):
            pass

    with serving(Busy) as url:
        remote = RemoteGateway(url, token, timeout_s=60.0)
        assert remote.wait(task).id == task
        assert not left


@pytest.mark.parametrize("status", [200, 404])
def test_something_else_than_a_gateway_is_told(oj, status):  # noqa: F811
    class Page(http.server.BaseHTTPRequestHandler):
        def do_GET(self):
            self.send_response(status)
            self.send_header("Content-Type", "text/html")
            self.end_headers()
            self.wfile.write(b"<html>hello</html>")

        def log_message(self, *_):
            pass

    with serving(Page) as url:
        assert "is not a gateway" in one_line(oj("search", "--server", url, code=2))


class Relay:
    """Passes connections on to the gateway: under TLS, or as a proxy that is asked to connect."""

    def __init__(self, port, context=None, connect=False):
        self._port, self._context, self._connect = port, context, connect
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self.asked = []
        self._thread = threading.Thread(target=self._accept)
        self._thread.start()

    def close(self):
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    def _accept(self):
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client):
        with contextlib.suppress(OSError), client:
            if self._context:
                client = self._context.wrap_socket(client, server_side=True)
            if self._connect:
                head = b""
                while not head.endswith(b"\r\n\r\n"):
                    head += client.recv(1)
                self.asked.append(head)
                client.sendall(b"HTTP/1.1 200 go on\r\n\r\n")
            with socket.create_connection(("127.0.0.1", self._port)) as server:
                back = threading.Thread(target=self._pump, args=(server, client), daemon=True)
                back.start()
                self._pump(client, server)
                back.join()

    @staticmethod
    def _pump(source, target):
        with contextlib.suppress(OSError):
            while piece := source.recv(65536):
                target.sendall(piece)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def certificate(tmp_path_factory):
    directory = tmp_path_factory.mktemp("tls")
    subprocess.run(
        [
            *("openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256"),
            *("-nodes", "-days", "2", "-subj", "/CN=localhost"),
            *("-addext", "subjectAltName=DNS:localhost"),
            *("-keyout", directory / "key", "-out", directory / "cert"),
        ],
        check=True,
        capture_output=True,
    )
    return directory


@pytest.fixture
def secure(gateway, certificate):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate / "cert", certificate / "key")
    relay = Relay(gateway.port, context)
    yield relay
    relay.close()


def test_a_certificate_is_verified(oj, secure, certificate):  # noqa: F811
    where = ("--server", f"https://localhost:{secure.port}")
    assert "certificate does not hold" in one_line(oj("search", *where, code=2))
    trust = {"SSL_CERT_FILE": str(certificate / "cert")}
    oj("submit", "--command", "/bin/true", "--wait", *where, env=trust)
    # Of the right authority, but somebody else's.
    other = ("--server", f"https://127.0.0.1:{secure.port}")
    assert "certificate does not hold" in one_line(oj("search", *other, code=2, env=trust))


def test_a_proxy_of_the_environment_is_used_and_does_not_see_the_token(
    oj,  # noqa: F811
    secure,
    certificate,
    admin,
):
    proxy = Relay(secure.port, connect=True)
    try:
        env = {
            "SSL_CERT_FILE": str(certificate / "cert"),
            "https_proxy": f"http://me:word@127.0.0.1:{proxy.port}",
        }
        oj("search", "--server", "https://localhost:9", env=env)
        [head] = proxy.asked
        assert head.startswith(b"CONNECT localhost:9 ")
        assert b"Proxy-Authorization: Basic bWU6d29yZA==" in head
        assert admin.encode() not in head
        where = ("--server", f"https://localhost:{secure.port}")
        oj("search", *where, env={**env, "no_proxy": "localhost"})
        assert len(proxy.asked) == 1
    finally:
        proxy.close()
