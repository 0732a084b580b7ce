"""uWSGI's configuration file, made from ours; no I/O."""

from __future__ import annotations

from pathlib import Path

from oj.gateway.settings import Settings

# What every process of uWSGI can see of the others: counters of requests and log-ins.
CACHE = "limits"
CACHED_ITEMS = 16384
CACHED_KEY_BYTES = 80
FIFO = "master.fifo"
METRICS = "metrics"
RELOAD = b"c"  # one worker after the other
METRICS_VARIABLE = "PROMETHEUS_MULTIPROC_DIR"  # the library's own name for it
WORKER_BYTES = 128 << 20
# Of its router's memory, what a connection takes that has sent all but the end of the headers, and
# for how many of them MemoryMax= of the unit has room.
CONNECTION_BYTES = 72 << 10
CONNECTIONS = 4096
BACKLOG = 1024
MERCY_S = 5  # for requests under way when it stops; streams come back
# The same of a worker that is replaced, while the others serve: longer than a request may wait for
# a task (30 s). Streams are cut off then, and come back; so are downloads that take longer.
RELOAD_MERCY_S = 35


def worker_bytes(found: Settings) -> int:
    """Of memory, that a worker may keep: itself, and what requests have in hand and half of that
    again."""
    return WORKER_BYTES + 3 * found.limits.memory_bytes // 2


def find_backlog(limit: Path = Path("/proc/sys/net/core/somaxconn")) -> int:
    """How many connections may wait to be accepted. One more is refused, which people see as 502;
    so there is room for a crowd that comes at once, each of which is answered, if only with 429.

    uWSGI refuses to start with more than the kernel takes, where it can read how much that is.
    """
    try:
        return min(BACKLOG, int(limit.read_text()))
    except (OSError, ValueError):
        return BACKLOG


def write_ini(found: Settings, config: Path) -> str:
    host, port = found.listen
    address = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    options: list[tuple[str, object]] = [
        ("strict", "true"),
        ("plugins", "http,python3"),
        # A router of its own, so that a client that sends slowly holds no thread of Python's
        # while its headers come in.
        ("http", address),
        ("socket", found.runtime_directory / "app.socket"),
        ("chmod-socket", 600),
        # Takes the word for a graceful reload, which SIGHUP is not: it would close the port.
        ("master-fifo", found.runtime_directory / FIFO),
        ("http-keepalive", 30),
        ("http-auto-chunked", "true"),
        # Who asks whether to send a large body is told so at once; curl would wait a second.
        ("http-manage-expect", 1),
        # Of who sends headers and stops; a byte now and then goes on for ever, and costs a
        # descriptor and what has come, of which MemoryMax= of the unit is the bound.
        ("http-headers-timeout", 10),
        ("http-timeout", 90),
        ("http-connect-timeout", 5),
        ("http-buffer-size", 32768),
        # Of one read of a body: longer than GRACE_S of bodies.py, which is what ends those that do
        # not come. Writes wait as long; who is slow to take an answer that is larger than a socket
        # holds has a place among the large downloads.
        ("socket-timeout", 11),
        ("buffer-size", 16384),
        ("so-keepalive", "true"),
        ("listen", find_backlog()),
        ("master", "true"),
        ("processes", found.processes),
        # Event streams hold a thread each; a thread that waits costs a stack and nothing else.
        ("threads", found.threads),
        ("thread-stacksize", 512),
        ("enable-threads", "true"),
        # gRPC does not survive a fork: each process loads the application for itself.
        ("lazy-apps", "true"),
        ("need-app", "true"),
        ("single-interpreter", "true"),
        ("module", "oj.gateway.wsgi"),
        ("env", f"OJ_GATEWAY_CONF={config}"),
        ("env", f"{METRICS_VARIABLE}={found.runtime_directory / METRICS}"),
        (
            "cache2",
            f"name={CACHE},items={CACHED_ITEMS},keysize={CACHED_KEY_BYTES},blocksize=64,purge_lru=1",
        ),
        ("die-on-term", "true"),
        ("worker-reload-mercy", RELOAD_MERCY_S),
        ("reload-mercy", MERCY_S),
        # A worker that has kept more than its requests may have in hand is replaced: it takes no
        # more of them, and ends when those under way are answered or the mercy is over. That is
        # well before the unit's MemoryMax would have the kernel end all of them.
        ("reload-on-rss", worker_bytes(found) >> 20),
        ("ignore-sigpipe", "true"),
        ("ignore-write-errors", "true"),
        ("disable-write-exception", "true"),
        # uWSGI takes the scheme from X-Forwarded-Proto, whoever sends it, and dies if that is no
        # UTF-8. The application looks at the header itself, where it comes from a known proxy.
        ("route-run", "setscheme:http"),
        # Bodies carry programs and tokens; what is worth telling the application tells itself.
        ("disable-logging", "true"),
        ("auto-procname", "true"),
        ("procname-prefix", "oj-gateway "),
        ("no-orphans", "true"),
        ("vacuum", "true"),
    ]
    lines = [
        "; Written by oj-gateway at each start; change /etc/oj/gateway.conf instead.",
        "[uwsgi]",
    ]
    lines += [f"{key} = {value}" for key, value in options]
    return "\n".join(lines) + "\n"
