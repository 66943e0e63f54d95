"""Flink's own command-line client against Firesteel: it prints what it prints against Flink."""

from __future__ import annotations

import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.chaos.rest_node import RestNode
from tests.needs import ROOT, missing
from tests.support.engine_shape import QUICK_JAVA

from firesteel.client.cluster import ClusterClient
from firesteel.client.job import JobClient
from firesteel.engines.java import find_java
from firesteel.status import JobStatus

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

OPENED = ("java.lang", "java.lang.reflect", "java.net", "java.text", "java.time", "java.util", "java.util.concurrent")
"""As Flink's own scripts do it, for programs."""
Flink = Callable[..., "subprocess.CompletedProcess[str]"]


def flink_jars() -> Path:
    home = ROOT / ".cache" / "flink-cli"
    found = sorted(home.glob("lib/python*/site-packages/pyflink/lib"))
    if not (home / ".complete").exists() or not found:
        missing("Flink's command-line client", "scripts/fetch-flink-cli")
    return found[0]


@pytest.fixture(scope="module")
def node(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RestNode]:
    flink_jars()
    with RestNode(
        tmp_path_factory.mktemp("flink-cli"), {"engine.master": "local[2]", "engine.jvm-options": QUICK_JAVA}
    ) as started:
        yield started


@pytest.fixture
def flink(node: RestNode, tmp_path: Path) -> Flink:
    (tmp_path / "config.yaml").write_text("{}\n")

    def run(*args: str, token: str | None = node.token) -> subprocess.CompletedProcess[str]:
        address = node.address.removeprefix("http://")
        command = [
            str(find_java(None).home / "bin" / "java"),
            *(f"--add-opens=java.base/{package}=ALL-UNNAMED" for package in OPENED),
            "-cp",
            f"{flink_jars()}/*",
            "org.apache.flink.client.cli.CliFrontend",
            args[0],
            "-m",
            address,
            *args[1:],
        ]
        environment = {k: v for k, v in os.environ.items() if k in ("PATH", "HOME", "LANG")}
        environment["FLINK_CONF_DIR"] = str(tmp_path)
        if token is not None:
            environment["FLINK_REST_CLIENT_HEADERS"] = f"Authorization:Bearer {token}"
        return subprocess.run(
            command, env=environment, capture_output=True, text=True, timeout=150, cwd=tmp_path, check=False
        )

    return run


@pytest.fixture
def client(node: RestNode) -> Iterator[ClusterClient]:
    with ClusterClient(node.address, token=node.token) as made:
        yield made


def stream(tmp_path: Path, name: str) -> dict[str, Any]:
    """Counts by key, so that there is state to save."""
    return {
        "name": name,
        "mode": "streaming",
        "settings": {"spark": {"spark.sql.shuffle.partitions": "1"}},
        "vertices": [
            {"kind": "source", "name": "ticks", "format": "rate", "options": {"rowsPerSecond": "10"}},
            {
                "kind": "sql",
                "name": "counted",
                "query": "SELECT value % 3 AS k, count(*) AS n FROM ticks GROUP BY value % 3",
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


def started(client: ClusterClient, graph: dict[str, Any]) -> JobClient:
    """A job that has committed its first batch."""
    job = client.submit(graph)
    deadline = time.monotonic() + 120
    while True:
        details = job.details()
        batch = ((details["progress"].get("sinks") or {}).get("out") or {}).get("batch")
        if batch is not None and batch >= 1:
            return job
        assert details["status"] not in ("FAILED", "CANCELED", "FINISHED"), details
        assert time.monotonic() < deadline, details
        time.sleep(0.2)


def test_list_savepoint_checkpoint_stop_and_dispose(flink: Flink, client: ClusterClient, tmp_path: Path) -> None:
    job = started(client, stream(tmp_path, "from flink's client"))
    line = rf"\d\d\.\d\d\.\d{{4}} \d\d:\d\d:\d\d : {job.job_id} : from flink's client \(RUNNING\)"
    listed = flink("list", "-a")
    assert listed.returncode == 0, listed.stderr
    assert re.search(line, listed.stdout), listed.stdout
    assert re.search(line, flink("list", "-r").stdout)

    checkpoint = flink("checkpoint", job.job_id)
    assert re.search(rf"Checkpoint \d+ for job {job.job_id} completed\.", checkpoint.stdout), checkpoint

    saved = flink("savepoint", job.job_id, str(tmp_path / "savepoints"))
    assert saved.returncode == 0, saved
    path = re.search(r"Savepoint completed\. Path: (\S+)", saved.stdout)
    assert path is not None, saved.stdout
    assert Path(path[1].removeprefix("file:")).is_dir()

    disposed = flink("savepoint", "-d", path[1])
    assert f"Savepoint '{path[1]}' disposed." in disposed.stdout, disposed
    assert not Path(path[1].removeprefix("file:")).exists()
    again = flink("savepoint", "-d", path[1])
    assert again.returncode == 1
    assert "no savepoint" in (again.stdout + again.stderr).lower()

    assert job.status() is JobStatus.RUNNING
    stopped = flink("stop", "-p", str(tmp_path / "savepoints"), job.job_id)
    assert stopped.returncode == 0, stopped
    assert re.search(r"Savepoint completed\. Path: \S+", stopped.stdout), stopped.stdout
    assert job.wait(60).status is JobStatus.FINISHED
    assert "(FINISHED)" in flink("list", "-a").stdout


PROGRAM = """
import org.apache.flink.streaming.api.environment.StreamExecutionEnvironment;

public class Program {
    public static void main(String[] args) throws Exception {
        StreamExecutionEnvironment env = StreamExecutionEnvironment.getExecutionEnvironment();
        env.fromSequence(1, 10).print();
        env.execute("program");
    }
}
"""


def flink_program(directory: Path, megabytes: int) -> Path:
    """A program for Flink, in a jar of this size."""
    tools = find_java(None).home / "bin"
    if not (tools / "javac").exists():
        missing("a Java compiler", "install a JDK and let JAVA_HOME name it")
    (directory / "Program.java").write_text(PROGRAM)
    classes = directory / "classes"
    subprocess.run(
        [str(tools / "javac"), "-cp", f"{flink_jars()}/*", "-d", str(classes), str(directory / "Program.java")],
        check=True,
        capture_output=True,
    )
    (classes / "ballast").write_bytes(os.urandom(megabytes << 20))
    jar = directory / "program.jar"
    subprocess.run([str(tools / "jar"), "cf", str(jar), "-C", str(classes), "."], check=True, capture_output=True)
    return jar


def test_a_flink_program_is_refused_in_words_whatever_its_size(flink: Flink, node: RestNode, tmp_path: Path) -> None:
    """PyFlink sends 42 MB with every program; the limit for bodies is 16 MB."""
    refused = flink("run", "-d", "-c", "Program", str(flink_program(tmp_path, 42)))
    assert refused.returncode != 0
    assert "Firesteel runs Spark jobs, not Flink programs" in refused.stdout + refused.stderr
    assert "max-content-length" not in refused.stdout + refused.stderr
    # How long the node takes shows with a client that has no Java to start. In chunks too, without a length.
    began = time.monotonic()
    body = (b"x" * (1 << 20) for _ in range(60))
    headers = {"authorization": f"Bearer {node.token}", "content-type": "multipart/form-data; boundary=b"}
    answer = httpx.post(f"{node.address}/v1/jobs", content=body, headers={**headers, "connection": "close"})
    assert answer.status_code == 400
    assert time.monotonic() - began < 5


def test_cancel(flink: Flink, client: ClusterClient, tmp_path: Path) -> None:
    job = started(client, stream(tmp_path, "to be cancelled"))
    cancelled = flink("cancel", job.job_id)
    assert cancelled.returncode == 0, cancelled
    assert f"Cancelled job {job.job_id}." in cancelled.stdout
    assert job.wait(60).status is JobStatus.CANCELED


def test_unknown_job_and_missing_token_are_said_in_words(flink: Flink) -> None:
    unknown = flink("cancel", "0" * 32)
    assert unknown.returncode == 1
    assert "could not be found" in unknown.stdout + unknown.stderr
    nobody = flink("list", "-a", token=None)
    assert nobody.returncode == 1
    assert "Authorization: Bearer" in nobody.stdout + nobody.stderr
