"""Notebooks and shells: a session that outlives the process that uses it, and ends when nobody does."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.cli.test_cli_run import Firesteel, commands, finish
from tests.conftest import Cluster
from tests.support.engine_shape import environment

from firesteel.cli.options import Given
from firesteel.client.discovery import connect
from firesteel.client.sessions import find_session, open_session, session_graph
from firesteel.config import load_configuration
from firesteel.errors import EnvironmentNotReadyError
from firesteel.notebook import connect_to
from firesteel.status import JobStatus

pytestmark = pytest.mark.spark

FIRST = """
import os, signal
import firesteel
session = firesteel.spark("{name}", idle_timeout="{idle}")
session.read.text("numbers.txt").createOrReplaceTempView("numbers")
print(session.sql("SELECT count(*) AS n FROM numbers").first().n, flush=True)
os.kill(os.getpid(), signal.SIGKILL)
"""

SECOND = """
import firesteel
session = firesteel.spark("{name}")
print(session.sql("SELECT count(*) AS n FROM numbers").first().n)
session.stop()
"""


@pytest.fixture
def shell(cluster: Cluster) -> Iterator[Firesteel]:
    """The command, on the cluster that is shared by the test run."""
    cluster.engine()
    with commands(cluster.configuration.data.dir) as made:
        yield made


def python(program: str, cluster: Cluster, cwd: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-c", program],
        capture_output=True,
        text=True,
        env=environment(cluster.configuration.data.dir),
        cwd=cwd,
        timeout=120,
        check=False,
    )


def given(cluster: Cluster) -> Given:
    overrides = {"data.dir": str(cluster.configuration.data.dir), "engine.master": "local[2]"}
    return Given(load_configuration(overrides=overrides, environ={"HOME": "/"}), overrides, {}, None)


def test_session_outlives_its_notebook_is_found_by_its_name_and_ends_with_stop(
    cluster: Cluster,
    shell: Firesteel,
    tmp_path: Path,
) -> None:
    (tmp_path / "numbers.txt").write_text("1\n2\n3\n")
    first = python(FIRST.format(name="notes", idle="1 h"), cluster, tmp_path)
    assert (first.returncode, first.stdout) == (-9, "3\n"), first.stderr
    with connect(given(cluster).configuration) as client:
        job = find_session(client, "notes")
        assert job is not None
        assert find_session(client, "other") is None
        second = python(SECOND.format(name="notes"), cluster, tmp_path)
        assert (second.returncode, second.stdout) == (0, "3\n"), second.stderr
        assert job.wait(30).status is JobStatus.FINISHED
        assert find_session(client, "notes") is None


@pytest.mark.slow
def test_session_that_nobody_uses_ends_by_itself_and_one_that_is_cancelled_at_once(
    cluster: Cluster, shell: Firesteel
) -> None:
    kept = finish(shell("shell", "--name", "kept", "--keep", "-e", "print(spark.range(5).count())"))
    assert kept[0] == 0, kept
    assert kept[1].splitlines()[0] == "5"
    with connect(given(cluster).configuration) as client:
        forgotten = open_session(client, session_graph("forgotten", "1 s", {}))
        assert forgotten.job.wait(30).status is JobStatus.FINISHED
        job = find_session(client, "kept")
        assert job is not None
        job.cancel()
        assert job.wait(30).status is JobStatus.CANCELED


def test_engine_that_cannot_be_reached_is_said_with_what_to_do() -> None:
    with pytest.raises(EnvironmentNotReadyError, match="forward that port"):
        connect_to("sc://localhost:9/;token=secret", relative_to=None)
