"""The page about the client is true: its examples run, and it names every method."""

from __future__ import annotations

import inspect
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tests.client.fake_cluster import FakeCluster, Node, Stream, snapshot, state

from firesteel.client import ClusterClient, JobClient, errors

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "reference" / "python-client.md").read_text()
EXAMPLES = re.findall(r"^```python\n(.*?)^```$", PAGE, re.MULTILINE | re.DOTALL)


def run(code: str, node: Node, tmp_path: Path) -> str:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    environ |= {"FIRESTEEL_CLIENT_ADDRESSES": node.address, "HOME": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=environ,
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_first_example_submits_and_waits(fake: FakeCluster, node: Node, tmp_path: Path) -> None:
    fake.streams.append(Stream([snapshot("0" * 32), state("0" * 32, "FINISHED")]))
    out = run(EXAMPLES[0], node, tmp_path)
    (job_id,) = fake.jobs
    assert out.splitlines() == [f"submitted as {job_id}", "FINISHED after 2.5 s"]


def test_second_example_lists_jobs(fake: FakeCluster, node: Node, tmp_path: Path) -> None:
    row: dict[str, object] = {"id": "0" * 32, "name": "orders", "mode": "batch", "kind": "batch", "status": "RUNNING"}
    row |= {"submitted": 1, "changed": 1, "ended": None, "duration": 1}
    fake.answers["/jobs/list"] = {"jobs": [row]}
    assert run(EXAMPLES[1], node, tmp_path).split() == ["0" * 32, "orders", "RUNNING"]


@pytest.mark.parametrize("kind", [ClusterClient, JobClient])
def test_every_method_is_named(kind: type) -> None:
    methods = {n for n, f in vars(kind).items() if inspect.isfunction(f) and not n.startswith("_")} - {"close"}
    assert not {m for m in methods if f"`{m}(" not in PAGE}


def test_every_error_is_named() -> None:
    own = {n for n, c in vars(errors).items() if inspect.isclass(c) and c.__module__ == errors.__name__}
    assert not {name for name in own if f"`{name}`" not in PAGE}
