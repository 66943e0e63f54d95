"""Modules that lie where a command is given become a part of no process (S45)."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from tests.support.waiting import until

from firesteel.worker.pool import DriverPool

MODULES = ("orjson", "httpx", "pydantic", "pyspark", "grpc", "py4j", "click", "uvicorn")


@pytest.fixture
def planted(tmp_path: Path) -> Path:
    """A directory in which each of these modules says that it was imported."""
    directory = tmp_path / "planted"
    directory.mkdir()
    for name in MODULES:
        text = f"open({str(tmp_path / 'imported')!r}, 'a').write({name!r})\nraise ImportError({name!r})\n"
        (directory / f"{name}.py").write_text(text)
    return directory


@pytest.mark.slow
def test_a_node_takes_no_module_from_where_the_command_was_given(planted: Path, tmp_path: Path) -> None:
    """S45: a node that was woken by a command, and one that was started."""
    command = [str(Path(sys.executable).with_name("firesteel"))]
    data = tmp_path / "data"
    own = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    environ = {**own, "FIRESTEEL_DATA_DIR": str(data)}

    def firesteel(*arguments: str) -> str:
        done = subprocess.run(
            [*command, *arguments], cwd=planted, env=environ, capture_output=True, text=True, timeout=120, check=False
        )
        assert done.returncode == 0, done
        return done.stdout

    try:
        firesteel("cluster", "start")
        firesteel("list")
        node = next(
            pid
            for pid in (p.name for p in Path("/proc").iterdir() if p.name.isdigit())
            if _is_node(int(pid), planted, data)
        )
        assert Path(os.readlink(f"/proc/{node}/cwd")) == data / "clusters" / "default"
    finally:
        firesteel("cluster", "stop")
    assert not (tmp_path / "imported").exists()


@pytest.mark.slow
def test_a_command_that_becomes_a_node_takes_none_either(planted: Path, tmp_path: Path) -> None:
    """S45: `cluster start --foreground`, which is what service managers run."""
    own = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    node = subprocess.Popen(
        [str(Path(sys.executable).with_name("firesteel")), "cluster", "start", "--foreground", "-Drest.port=0"],
        cwd=planted,
        env={**own, "FIRESTEEL_DATA_DIR": str(tmp_path / "data")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        said = tmp_path / "data" / "clusters" / "default" / "rest.json"
        until(lambda: said.exists() or node.poll() is not None, "the node serves")
        assert node.poll() is None
    finally:
        node.terminate()
        node.wait(timeout=60)
    assert not (tmp_path / "imported").exists()


def _is_node(pid: int, planted: Path, data: Path) -> bool:
    try:
        here = Path(os.readlink(f"/proc/{pid}/cwd"))
        return b"firesteel.entrypoint" in Path(f"/proc/{pid}/cmdline").read_bytes() and (
            here == planted or data in here.parents
        )
    except OSError:
        return False


def test_drivers_take_no_module_from_where_the_node_was_started(
    planted: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """S45"""
    monkeypatch.chdir(planted)
    with DriverPool(log=tmp_path / "pool.log") as pool:
        log = tmp_path / "task.log"
        (tmp_path / "attempt").mkdir()
        task = {"directory": str(tmp_path / "attempt")}
        driver = pool.spawn("attempt", task, stdout=log, stderr=log, cwd=tmp_path)
        assert driver.exited.result(timeout=60).status == 75  # there is no such attempt
    assert not (tmp_path / "imported").exists()
