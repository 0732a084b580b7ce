"""oj-judicator: its command line and configuration; running.py has its life."""

from __future__ import annotations

from typing import NoReturn

from oj import service
from oj.judicator.settings import JudicatorSettings, load


def main() -> NoReturn:
    service.run("judicator", load, _serve, "Keeps tasks and hands them to executors.")


def _serve(daemon: service.Service, config: JudicatorSettings) -> None:
    # Only now: the libraries for MongoDB, etcd and Thrift are slow to import.
    from oj.judicator.running import serve

    serve(daemon, config)
