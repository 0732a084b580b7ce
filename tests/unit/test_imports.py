"""The cut of the code, kept by a test: who may import whom."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2] / "daemons" / "oj"
ROLES = {"etcd", "mongodb", "judicator", "executor", "gateway", "cli"}
# Each library has its owners; everyone else goes through them.
OWNERS = {
    "etcd3": {"etcdwire"},
    "grpc": {"etcdwire"},
    "pymongo": {"judicator.store", "mongodb.replicaset", "backup"},
    "gridfs": {"judicator.store"},
    "bson": {"judicator.store", "mongodb.replicaset", "backup"},
    "thrift": {"codec", "client", "link", "framing", "judicator.server", "judicator.wire"},
    "prometheus_client": {"metrics", "gateway.metrics"},
    "systemd": {"service"},
    "sdnotify": {"service"},
    "configobj": {"settings"},
}
# Whoever works on what a role keeps, in its stead.
GUESTS = {
    "backup": {"judicator.store", "judicator.settings"},
    "node": {"etcd.", "mongodb."},
}
PURE = {
    "model",
    "errors",
    "clock",
    "incarnation",
    "executor.overcommit",
    "executor.runs",
    "executor.verdict",
} | {
    "judicator.tenancy",
    "judicator.troubles",
    "mongodb.plan",
    "mongodb.argv",
    "etcd.argv",
}
PURE_MAY = {"model", "errors", "settings", "incarnation"}


def module_name(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imports(path: Path) -> set[str]:
    found: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {name.name for name in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {f"{node.module}.{name.name}" for name in node.names}
    return found


MODULES = {module_name(p): imports(p) for p in ROOT.rglob("*.py") if "rpc" not in p.parts}


@pytest.mark.parametrize("module", sorted(MODULES))
def test_a_module_imports_only_what_it_may(module):
    role = module.partition(".")[0]
    for name in MODULES[module]:
        top, _, rest = name.partition(".")
        if top == "oj":
            other = rest.partition(".")[0]
            guest = any(rest.startswith(place) for place in GUESTS.get(role, ()))
            if other in ROLES and not guest:
                assert other == role, f"{module} reaches into the role {other}"
            if module in PURE and other:
                assert ".".join(rest.split(".")[:2]) in PURE | PURE_MAY or other in PURE_MAY, (
                    f"{module} is pure and must not know {name}"
                )
        else:
            owners = OWNERS.get(top)
            # A package that owns a library does so with all its modules.
            owned = {module, module.rpartition(".")[0]}
            assert owners is None or owned & owners, f"{module} uses {top}; ask {sorted(owners)}"
