"""The life of oj-gateway: write uWSGI's configuration, start it, watch over it, stop it.

Processes: this daemon; uWSGI's master, its HTTP router and its workers, which have the application
(wsgi.py). The daemon alone speaks to systemd; it is ready when the application answers over the
port, and the same question feeds the watchdog. That no judicator answers is told, but not mended by
a restart. SIGHUP has uWSGI load the application anew, worker by worker, without closing the port.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import logging
import os
import shutil
import signal
import sys
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

from oj import service
from oj.child import Child, Silent
from oj.clock import backoff
from oj.errors import Unavailable
from oj.gateway.ini import (
    CONNECTION_BYTES,
    CONNECTIONS,
    FIFO,
    MERCY_S,
    METRICS,
    RELOAD,
    worker_bytes,
    write_ini,
)
from oj.gateway.presence import Presence
from oj.gateway.settings import Settings, load
from oj.redact import redact

PROGRAM = "uwsgi-core"
CHECK_TIMEOUT_S = 4.0
STOP_S = MERCY_S + 10.0
# Of this daemon, and of uWSGI without its workers.
OWN_BYTES = (128 << 20) + CONNECTIONS * CONNECTION_BYTES
QUIET_START_S = 5.0  # no word of trouble before that: the application needs a second or two

log = logging.getLogger("oj.gateway")


def read_line(line: str) -> tuple[int, str]:
    """A line of uWSGI's or of the application, which puts its level in front as systemd does."""
    if len(line) > 3 and line[0] == "<" and line[2] == ">" and line[1].isdigit():
        level = {"2": 50, "3": 40, "4": 30, "5": 20, "6": 20, "7": 10}.get(line[1], logging.INFO)
        return level, line[3:]
    # Dozens of lines at each start; our own say what matters of them.
    # Some of them are Python's words about an error, or have a request's address.
    return logging.DEBUG, redact(line)


def serve(daemon: service.Service, settings: Settings) -> None:
    directory = settings.runtime_directory
    directory.mkdir(mode=0o700, parents=True, exist_ok=True)
    shutil.rmtree(directory / METRICS, ignore_errors=True)
    (directory / METRICS).mkdir(mode=0o700)
    ini = directory / "uwsgi.ini"
    ini.write_text(write_ini(settings, keep_checked(settings)))
    needed_bytes = settings.processes * worker_bytes(settings) + OWN_BYTES
    allowed_bytes = find_memory_limit()
    if allowed_bytes is not None and allowed_bytes < needed_bytes:
        log.warning(
            "MemoryMax is %d MB, and %d processes may need %d MB: raise MemoryHigh and MemoryMax "
            "by 'systemctl edit oj-gateway', or lower 'memory' or 'processes' in gateway.conf",
            allowed_bytes >> 20,
            settings.processes,
            needed_bytes >> 20,
        )
    daemon.status("uWSGI is starting")
    with contextlib.ExitStack() as stack:
        child = Child(
            "uwsgi",
            [find_program(settings), "--ini", str(ini)],
            env={
                **{k: v for k, v in os.environ.items() if not k.startswith("UWSGI_")},
                "PYTHONPATH": os.pathsep.join(filter(None, sys.path)),
                "GRPC_DNS_RESOLVER": "native",
            },
            read_line=read_line,
            on_exit=daemon.fail,
        )
        child.start()
        stack.callback(child.stop, STOP_S)
        daemon.on_signal(signal.SIGHUP, lambda: reload(settings))

        def check() -> str:
            return ask(settings)

        if wait_until_serving(daemon, check):
            host, port = settings.listen
            daemon.ready(f"serving at http://{host}:{port}/")
            stack.enter_context(Presence(settings, lambda: daemon.failure is None))
            daemon.supervise(child.guard(check))


def find_memory_limit(root: Path = Path("/")) -> int | None:
    """What the unit's cgroup, of version 2 or 1, allows this process and its children."""
    with contextlib.suppress(OSError, ValueError):
        for line in (root / "proc/self/cgroup").read_text().splitlines():
            _, controllers, path = line.split(":", 2)
            if not controllers:
                file = root / "sys/fs/cgroup" / path.lstrip("/") / "memory.max"
            elif controllers == "memory":
                file = root / "sys/fs/cgroup/memory" / path.lstrip("/") / "memory.limit_in_bytes"
            else:
                continue
            if file.exists():
                found = file.read_text().strip()
                return None if found == "max" else int(found)
    return None


def keep_checked(settings: Settings) -> Path:
    """A copy of the configuration, for workers: they start at any time, and would end uWSGI if the
    file itself were wrong by then. Raises BadSettings, before anything is touched."""
    load(config_path())
    kept = settings.runtime_directory / "gateway.conf"
    new = kept.with_suffix(".new")
    new.write_bytes(config_path().read_bytes())
    load(new)
    return new.replace(kept)


def reload(settings: Settings) -> None:
    """Has each worker load the application and its configuration anew, one after the other."""
    keep_checked(settings)
    log.info("reloading")
    fifo = os.open(settings.runtime_directory / FIFO, os.O_WRONLY | os.O_NONBLOCK)
    try:
        os.write(fifo, RELOAD)
    finally:
        os.close(fifo)


def find_program(settings: Settings) -> str:
    program = settings.program or shutil.which(PROGRAM) or shutil.which("uwsgi")
    if not program:
        raise Unavailable("there is no uwsgi: install uwsgi-core and uwsgi-plugin-python3")
    return program


def config_path() -> Path:
    return Path(service.parse_arguments("gateway", DESCRIPTION).config).resolve()


def ask(settings: Settings) -> str:
    """The sentence for STATUS=; Unavailable when no judicator answers, Silent when we do not."""
    page = http.client.HTTPConnection(*settings.local, timeout=CHECK_TIMEOUT_S)
    try:
        page.request("GET", "/healthz", headers={"Host": "localhost"})
        answer = page.getresponse()
        told = json.loads(answer.read())
    except (OSError, http.client.HTTPException, ValueError) as error:
        raise Silent(f"the application does not answer: {error}") from error
    finally:
        page.close()
    if answer.status != 200:
        raise Unavailable(str(told.get("detail", "the application is not well")))
    return f"serving; {told['status']}"


def wait_until_serving(daemon: service.Service, check: Callable[[], str]) -> bool:
    """Whether it answers now; False when stopped before. systemd bounds the wait."""
    waited_s = 0.0
    for pause_s in backoff(0.1, 1.0):
        if daemon.stop.is_set():
            return False
        try:
            check()
            return True
        except Unavailable:
            return True  # it answers, and says that the cluster does not
        except Silent as error:
            if waited_s > QUIET_START_S:
                daemon.status(f"waiting: {error}")
        waited_s += pause_s
        daemon.stop.wait(pause_s)
    return False


DESCRIPTION = "The HTTP API and the web page of an oj cluster."


def main() -> NoReturn:
    service.run("gateway", load, serve, DESCRIPTION)
