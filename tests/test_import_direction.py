"""Dependencies point one way: who may import whom, by package."""

from __future__ import annotations

import ast
import subprocess
import sys
from pathlib import Path

import pytest

import firesteel

ROOT = Path(firesteel.__file__).parent

BASE = {
    "types",
    "errors",
    "fs",
    "processes",
    "process_watch",
    "hosts",
    "ports",
    "failure",
    "records",
    "durations",
    "ip_addresses",
    "status",
    "concurrency",
    "log_context",
    "module_files",
    "environment",
    "sandbox",
    "metrics",
}
ALLOWED: dict[str, set[str]] = {
    "types": set(),
    "failure": set(),
    "records": set(),
    "durations": set(),
    "ip_addresses": set(),
    "status": set(),
    "concurrency": set(),
    "log_context": set(),
    "errors": set(),
    "fs": {"errors"},
    "layout": {"types", "config"},
    "module_files": set(),
    "processes": set(),
    "process_watch": {"processes"},
    "hosts": set(),
    "sandbox": {"fs", "errors"},
    "ports": set(),
    "metrics": {"errors", "concurrency"},
    "environment": set(),
    "config": BASE,
    "masking": {"config"},
    "jobgraph": BASE | {"blob"},
    "sinks": BASE | {"jobgraph"},
    "engines": BASE,
    "spark_connect": BASE | {"jobgraph", "engines"},
    "attempts": BASE | {"jobgraph", "engines", "savepoint", "spark_connect"},
    "driver": BASE | {"jobgraph", "spark_connect", "engines", "sinks", "savepoint", "attempts"},
    "ha": BASE | {"config"},
    "stores": BASE | {"ha", "jobgraph"},
    "resourcemanager": BASE | {"config", "engines", "layout"},
    "blob": BASE,
    "savepoint": BASE | {"jobgraph", "sinks"},
    "jobmaster": BASE
    | {
        "config",
        "jobgraph",
        "attempts",
        "engines",
        "sinks",
        "spark_connect",
        "ha",
        "stores",
        "resourcemanager",
        "blob",
        "savepoint",
    },
    "worker": BASE
    | {
        "config",
        "layout",
        "jobgraph",
        "attempts",
        "engines",
        "savepoint",
        "resourcemanager",
        "jobmaster",
        "rpc",
        "blob",
        "node_log",
        "__init__",
    },
    "node_log": {"config", "fs", "log_context"},
    "rpc": BASE | {"jobgraph", "engines", "attempts", "jobmaster"},
    "fleet": BASE
    | {
        "config",
        "layout",
        "ha",
        "stores",
        "rpc",
        "attempts",
        "engines",
        "savepoint",
        "jobmaster",
        "resourcemanager",
    },
    "dispatcher": BASE
    | {
        "masking",
        "config",
        "fleet",
        "layout",
        "jobgraph",
        "attempts",
        "worker",
        "engines",
        "sinks",
        "ha",
        "stores",
        "resourcemanager",
        "jobmaster",
        "blob",
        "savepoint",
        "rpc",
    },
    "delivery": BASE | {"ha", "stores"},
    "lineage": BASE | {"config", "masking", "jobgraph", "stores", "jobmaster", "delivery"},
    "notifications": BASE | {"config", "masking", "attempts", "jobmaster", "delivery"},
    "rest": BASE
    | {
        "masking",
        "config",
        "fleet",
        "jobgraph",
        "attempts",
        "worker",
        "layout",
        "engines",
        "ha",
        "stores",
        "resourcemanager",
        "jobmaster",
        "dispatcher",
        "blob",
        "savepoint",
        "__init__",
        "rpc",
    },
    "flink_rest": BASE
    | {
        "masking",
        "spark_connect",
        "config",
        "jobgraph",
        "attempts",
        "worker",
        "layout",
        "engines",
        "ha",
        "stores",
        "resourcemanager",
        "jobmaster",
        "dispatcher",
        "blob",
        "savepoint",
        "rest",
        "__init__",
    },
    "client": BASE | {"config", "layout", "jobgraph", "blob"},
    "deployment": BASE | {"config", "layout", "jobgraph", "ha", "client"},
    "entrypoint": BASE
    | {
        "delivery",
        "lineage",
        "notifications",
        "masking",
        "config",
        "fleet",
        "jobgraph",
        "attempts",
        "worker",
        "layout",
        "engines",
        "ha",
        "stores",
        "resourcemanager",
        "jobmaster",
        "dispatcher",
        "blob",
        "savepoint",
        "rest",
        "flink_rest",
        "rpc",
        "node_log",
    },
    "history": BASE
    | {
        "fleet",
        "masking",
        "config",
        "jobgraph",
        "attempts",
        "worker",
        "layout",
        "engines",
        "ha",
        "stores",
        "resourcemanager",
        "jobmaster",
        "dispatcher",
        "blob",
        "savepoint",
        "rest",
        "flink_rest",
        "entrypoint",
        "node_log",
    },
    "testing": BASE
    | {
        "config",
        "jobgraph",
        "attempts",
        "layout",
        "engines",
        "ha",
        "jobmaster",
        "resourcemanager",
        "savepoint",
        "client",
        "entrypoint",
    },
    "doctor": BASE | {"engines"},
    "cli": BASE
    | {
        "notifications",
        "config",
        "jobgraph",
        "engines",
        "attempts",
        "worker",
        "layout",
        "jobmaster",
        "ha",
        "resourcemanager",
        "doctor",
        "client",
        "deployment",
        "notebook",
        "rest",
        "savepoint",
        "__init__",
        "rpc",
    },
    "notebook": BASE | {"config", "client", "cli", "spark_connect"},
    "__init__": {"jobgraph", "client", "notebook"},
}
CHAOS = BASE | {"config", "layout", "jobgraph", "engines", "client"}
"""What the distribution `firesteel-chaos` may import of this one: what a user has, and what is needed to look from outside."""
CHAOS_ROOT = ROOT.parents[1] / "chaos" / "src" / "firesteel_chaos"


def package_of(path: Path) -> str:
    first = path.relative_to(ROOT).parts[0]
    return first.removesuffix(".py")


def imports(path: Path, root: Path = ROOT) -> set[str]:
    """Full names of the modules that a file imports, relative ones made absolute."""
    found: set[str] = set()
    package = [root.name, *path.relative_to(root).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {a.name for a in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            module = ".".join([*base, *([node.module] if node.module else [])])
            found |= {f"{module}.{a.name}" for a in node.names} | {module}
    return found


@pytest.mark.parametrize("path", sorted(ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(ROOT)))
def test_imports_point_the_allowed_way(path: Path) -> None:
    mine = package_of(path)
    others = {n.split(".")[1] for n in imports(path) if n.startswith("firesteel.")} - {mine, "__version__"}
    others &= set(ALLOWED)
    assert others <= ALLOWED[mine], f"{mine} imports {sorted(others - ALLOWED[mine])}"


@pytest.mark.parametrize("path", sorted(CHAOS_ROOT.rglob("*.py")), ids=lambda p: str(p.relative_to(CHAOS_ROOT)))
def test_chaos_stays_outside(path: Path) -> None:
    others = {n.split(".")[1] for n in imports(path, CHAOS_ROOT) if n.startswith("firesteel.")} & set(ALLOWED)
    assert others <= CHAOS, f"firesteel_chaos imports {sorted(others - CHAOS)}"


def test_the_product_does_not_know_of_chaos() -> None:
    assert list(CHAOS_ROOT.rglob("*.py"))
    assert [p for p in ROOT.rglob("*.py") if any(n.startswith("firesteel_chaos") for n in imports(p))] == []


def test_the_product_does_not_know_of_its_test_kit() -> None:
    assert "testing" in ALLOWED
    assert not [name for name, others in ALLOWED.items() if "testing" in others]


def test_control_plane_never_imports_pyspark() -> None:
    """User code and its PySpark live in driver processes; the control plane stays small and cannot be hurt by them."""
    code = (
        "import sys, firesteel.cli.run, firesteel.cli.info, firesteel.cli.engine, firesteel.cli.jobs, firesteel.doctor\n"
        "bad = {m.split('.')[0] for m in sys.modules} & {'pyspark', 'py4j', 'grpc', 'pandas', 'pyarrow', 'sqlglot'}\n"
        "print(sorted(bad))"
    )
    out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert out.stdout.strip() == "[]"


def test_every_package_is_listed() -> None:
    assert {package_of(p) for p in ROOT.rglob("*.py")} == set(ALLOWED)
