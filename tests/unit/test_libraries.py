"""What we use of Debian's libraries, on the release that the tests run on.

A library may change whatever it does not document with its next release. So we use documented
modules and names; the few exceptions stand here, each with a test that fails when it is gone.
"""

from __future__ import annotations

import ast
import contextlib
import importlib
import subprocess
import sys
from collections.abc import Iterator
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest
from thrift.protocol.TBinaryProtocol import TBinaryProtocolAccelerated

from oj.judicator.server import FrameTransport
from oj.judicator.wire import encode
from oj.rpc import ttypes as rpc

DAEMONS = Path(__file__).resolve().parents[2] / "daemons"
FILES = {
    str(path.relative_to(DAEMONS)): ast.parse(path.read_text())
    for path in sorted((DAEMONS / "oj").rglob("*.py"))
    if "rpc" not in path.parts
}

# The modules that each library documents for its users, as far as we use them.
DOCUMENTED = {
    "bson": "bson bson.binary bson.codec_options bson.raw_bson",
    "configobj": "configobj configobj.validate",
    "flask": "flask",
    "grpc": "grpc",
    "prometheus_client": "prometheus_client prometheus_client.core prometheus_client.multiprocess",
    "pymongo": "pymongo pymongo.client_session pymongo.collection pymongo.database pymongo.errors"
    " pymongo.monitoring pymongo.read_concern pymongo.read_preferences pymongo.write_concern",
    "sdnotify": "sdnotify",
    "systemd": "systemd systemd.journal",
    "thrift": "thrift.Thrift thrift.TSerialization thrift.protocol.TBinaryProtocol"
    " thrift.transport.TTransport",
    "werkzeug": "werkzeug werkzeug.exceptions werkzeug.http werkzeug.security",
}
# The code that etcd3 generates from etcd's own definitions. Its documented client cannot keep a
# lease alive through a proxy, and knows no learners.
UNDOCUMENTED = {"etcd3": "etcd3.etcdrpc"}
# Names with an underscore that are used from outside their object. Ours (of a module's own or a
# sibling class), and one of a library.
PRIVATE = {
    "oj/client.py": {"_link", "_call"},
    "oj/executor/sandbox.py": {"_covering"},
    "oj/judicator/store/database.py": {"_shutdown_resources"},
}


def imported(tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Modules, each with the name that is taken from it ('' for the module itself)."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((alias.name, "") for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from ((node.module, alias.name) for alias in node.names)


@pytest.mark.parametrize("path", FILES)
def test_only_documented_modules_of_libraries_are_imported(path: str) -> None:
    places = {**DOCUMENTED, **UNDOCUMENTED}
    for module, name in imported(FILES[path]):
        top = module.partition(".")[0]
        if top in places:
            known = places[top].split()
            assert module in known or f"{module}.{name}" in known, f"{module} is not documented"
            assert not name.startswith("_"), f"{module}.{name} is {top}'s own"


@pytest.mark.parametrize("path", FILES)
def test_what_is_imported_is_there(path: str) -> None:
    for module, name in imported(FILES[path]):
        if module == "uwsgi":  # there is one only inside uWSGI
            continue
        found = importlib.import_module(module)
        if name and not hasattr(found, name):
            importlib.import_module(f"{module}.{name}")


@pytest.mark.parametrize("path", FILES)
def test_no_private_part_of_another_object_is_used_but_those_that_are_listed(path: str) -> None:
    used = set()
    for node in ast.walk(FILES[path]):
        if isinstance(node, ast.Attribute):
            owner, name = node.value, node.attr
            own = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
        elif isinstance(node, ast.Call) and ast.unparse(node.func) in (
            "delattr", "getattr", "hasattr", "setattr"
        ):  # fmt: skip
            name = node.args[1].value if isinstance(node.args[1], ast.Constant) else ""
            own = ast.unparse(node.args[0]) in ("self", "cls")
        else:
            continue
        if name.startswith("_") and not name.startswith("__") and not own:
            used.add(name)
    assert used == PRIVATE.get(path, set())


def test_every_generated_name_of_etcd_is_there() -> None:
    from etcd3 import etcdrpc

    used = {
        node.attr
        for tree in FILES.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.Attribute) and ast.unparse(node.value) == "etcdrpc"
    }
    assert {"KVStub", "LeaseStub", "RangeRequest", "LeaseKeepAliveRequest"} <= used
    assert {name for name in used if not hasattr(etcdrpc, name)} == set()


# Run as a process of its own, because it is about how a process ends.
AT_EXIT = """
import atexit
left = []
register, unregister = atexit.register, atexit.unregister
def remember(function, *words, **named):
    left.append(function)
    return register(function, *words, **named)
def forget(function):
    left[:] = [one for one in left if one != function]
    unregister(function)
atexit.register, atexit.unregister = remember, forget
import pymongo
assert any(one.__module__.startswith("pymongo.") for one in left), "the driver has nothing to end"
import oj.judicator.store.database
# The driver's asynchronous half, which nobody uses, has threads and a function of its own.
for one in left:
    if one.__module__.startswith("pymongo.") and ".asynchronous." not in one.__module__:
        print(f"{one.__module__}.{one.__name__}")
"""


def test_the_end_of_a_process_does_not_wait_for_the_databases_driver() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], cwd=DAEMONS, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout.strip()) == (0, ""), done.stdout + done.stderr


@pytest.mark.parametrize("kind", [rpc.InvalidRequest, rpc.NotFound, rpc.TooLarge, rpc.Unavailable])
def test_an_exception_of_the_idl_passes_context_managers_as_any_other(kind: Any) -> None:
    @contextlib.contextmanager
    def around() -> Iterator[None]:
        yield

    with pytest.raises(kind, match="because"), around():
        raise kind("because")


def test_thrifts_fast_decoder_reads_a_frame_without_our_help() -> None:
    """The decoder in C asks transports for their buffer; else it would call read() for each value,
    at a tenth of the speed."""
    calls = []

    class Watched(FrameTransport):
        def read(self, size: int) -> bytes:
            calls.append(size)
            return super().read(size)

    sent = rpc.File("a.cpp", rpc.Data(b"x" * 100_000))
    found = rpc.File()
    found.read(TBinaryProtocolAccelerated(Watched(BytesIO(encode(sent)))))
    assert (found, calls) == (sent, [])
    with pytest.raises(EOFError):
        rpc.File().read(TBinaryProtocolAccelerated(Watched(BytesIO(encode(sent)[:-10]))))
