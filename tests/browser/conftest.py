"""A cluster, a gateway and browsers that the tests of this directory share."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest

import loopback
import servers
from browser.browser import Browser
from gateways import Gateway


@pytest.fixture(scope="module")
def own_cluster(etcd: servers.Etcd, mongod: servers.Mongod) -> Iterator[loopback.Cluster]:
    loopback.prepare()
    with loopback.Cluster(etcd, mongod) as one:
        yield one.start()


@pytest.fixture(scope="module")
def gateway(own_cluster: loopback.Cluster) -> Iterator[Gateway]:
    one = Gateway(own_cluster.addresses, "[webhooks]\nsend = no\n[limits]\nrequests = 100000")
    yield one
    one.close()


@pytest.fixture
def start_browser(gateway: Gateway) -> Iterator[Callable[..., Browser]]:
    started: list[Browser] = []

    def start(url: str = gateway.url, **options: Any) -> Browser:
        started.append(Browser(url, **options))
        return started[-1]

    yield start
    for one in started:
        one.close()


@pytest.fixture
def browser(start_browser: Callable[..., Browser]) -> Iterator[Browser]:
    """A browser whose console must stay quiet, and which must ask nobody else."""
    one = start_browser()
    yield one
    assert one.complaints() == []
    assert one.strangers() == []
