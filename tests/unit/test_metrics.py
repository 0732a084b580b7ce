"""Numbers for Prometheus: how they are counted and told, and what happens when they cannot be."""

import logging
import socket
import subprocess
import threading

import servers
from oj import metrics
from oj.metrics import Count, Reading, Timing


def ask(port, path="/metrics"):
    return servers.ask_http(port, path).decode()


def no_readings():
    return []


def test_counts_times_and_readings_are_told():
    added = Count("oj_t_added_total", "Added")
    ended = Count("oj_t_ended_total", "Ended", "verdict", ["accepted", "wrong_answer"])
    took = Timing("oj_t_seconds", "Took", "call")
    added.add()
    added.add(many=2)
    ended.add("accepted")
    took.note(0.003, "add")
    took.note(70, "add")
    port = servers.free_port()
    readings = [
        Reading("oj_t_up", "Up", True),
        Reading("oj_t_language", "Languages", 1, "language", "c"),
        Reading("oj_t_language", "Languages", 1, "language", "python"),
    ]
    with metrics.served("test", ("127.0.0.1", port), (added, ended, took), lambda: readings):
        told = ask(port).splitlines()
    for line in (
        "oj_t_added_total 3.0",
        'oj_t_ended_total{verdict="accepted"} 1.0',
        'oj_t_ended_total{verdict="wrong_answer"} 0.0',
        'oj_t_seconds_bucket{call="add",le="0.002"} 0.0',
        'oj_t_seconds_bucket{call="add",le="0.005"} 1.0',
        'oj_t_seconds_bucket{call="add",le="+Inf"} 2.0',
        'oj_t_seconds_sum{call="add"} 70.003',
        "oj_t_up 1.0",
        'oj_t_language{language="c"} 1.0',
        'oj_t_language{language="python"} 1.0',
    ):
        assert line in told, "\n".join(told)
    assert len([line for line in told if line.startswith("# TYPE oj_t_language")]) == 1


def test_nothing_listens_any_more_in_the_end():
    port = servers.free_port()
    with metrics.served("test", ("127.0.0.1", port), (), no_readings):
        assert " 200 " in ask(port).splitlines()[0]
        assert " 404 " in ask(port, "/").splitlines()[0]
    servers.wait_until(lambda: not servers.accepts(port), 10, "the port to be closed")


def test_a_port_that_is_taken_is_a_warning(caplog):
    with socket.create_server(("127.0.0.1", 0)) as taken, caplog.at_level(logging.WARNING):
        port = taken.getsockname()[1]
        with metrics.served("test", ("127.0.0.1", port), (), no_readings):
            pass
    assert f"no metrics: 127.0.0.1:{port}" in caplog.text


def test_without_the_library_there_are_no_metrics_and_a_line_says_so():
    script = (
        "import sys, logging; sys.modules['prometheus_client'] = None\n"
        "logging.basicConfig(level=logging.INFO)\n"
        "from oj import metrics\n"
        f"with metrics.served('t', ('127.0.0.1', {servers.free_port()}), (), list):\n"
        "    print('goes on')"
    )
    done = subprocess.run(
        [servers.PYTHON, "-c", script],
        capture_output=True,
        text=True,
        env={"PYTHONPATH": str(servers.TREE / "daemons")},
        timeout=60,
    )
    assert (done.returncode, done.stdout) == (0, "goes on\n")
    assert "no metrics: python3-prometheus-client is not installed" in done.stderr


def test_without_an_address_nothing_is_opened():
    before = threading.active_count()
    with metrics.served("test", None, (), no_readings):
        assert threading.active_count() == before


def test_a_look_that_fails_is_an_error_for_who_asks_and_for_nobody_else():
    port = servers.free_port()

    def fail():
        raise RuntimeError("no numbers today")

    with metrics.served("test", ("127.0.0.1", port), (), fail):
        assert " 500 " in ask(port).splitlines()[0]
        assert " 500 " in ask(port).splitlines()[0]


def test_counting_from_many_threads_loses_nothing():
    count = Count("oj_t_total", "T", "word")

    def add():
        for _ in range(2000):
            count.add("a")

    threads = [threading.Thread(target=add) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert count.read() == {"a": 16000}
