"""What an attached run shows of a failure: each thing once."""

from __future__ import annotations

from typing import Any

import pytest

from firesteel.cli.display import TextDisplay
from firesteel.client.events import JobEvent
from firesteel.client.model import JobResult
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import JobGraph
from firesteel.status import JobStatus
from firesteel.types import JobID

JOB = JobID("a" * 32)
GRAPH = JobGraph.model_validate({"name": "s", "vertices": [{"kind": "script", "name": "script", "file": "/s.py"}]})
TRACE = 'Traceback (most recent call last):\n  File "/s.py", line 2, in f\n    g()\nSparkError: no such\ncolumn x\n'
FAILURE = Failure(FailureKind.USER_CODE, "SparkError: no such\ncolumn x", traceback=TRACE)


def shown(capsys: pytest.CaptureFixture[str], *events: dict[str, Any], failure: Failure = FAILURE) -> str:
    result = JobResult(JOB, "s", JobStatus.FAILED, failure, 1.0, 2.0, duration=1.0, attempts=1, restarts=0)
    with TextDisplay(GRAPH, JOB) as display:
        for data in events:
            display.event(JobEvent(data.pop("type"), JOB, 1.0, data))
    display.summary(result, {})
    return capsys.readouterr().out


@pytest.mark.parametrize(
    ("starting", "told"), [(0.0, "FINISHED in 3.1 s\n"), (24.9, "(28.0 s with starting the cluster)\n")]
)
def test_time_that_the_start_of_the_cluster_took_is_told(
    capsys: pytest.CaptureFixture[str], starting: float, told: str
) -> None:
    result = JobResult(JOB, "s", JobStatus.FINISHED, None, 1.0, 4.1, duration=3.1, attempts=1, restarts=0)
    with TextDisplay(GRAPH, JOB, starting=starting) as display:
        pass
    display.summary(result, {})
    assert capsys.readouterr().out.endswith(told)


def status(status: JobStatus) -> dict[str, Any]:
    return {"type": "state", "status": status.value, "failure": FAILURE.to_json()}


def log(text: str) -> dict[str, Any]:
    return {"type": "log", "stream": "stderr", "lines": text.splitlines()}


def test_traceback_that_the_job_has_written_is_not_shown_again(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, log(TRACE), status(JobStatus.FAILING), status(JobStatus.FAILED))
    assert out.count("line 2, in f") == 1
    assert out.count("column x") == 1
    assert "user code: SparkError: no such\n" in out


def test_traceback_that_was_not_seen_is_shown_once(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, status(JobStatus.FAILING), status(JobStatus.FAILED))
    assert out.count("line 2, in f") == 1
    assert out.count("column x") == 1


def test_error_in_a_python_worker_is_summed_up_by_what_was_raised(capsys: pytest.CaptureFixture[str]) -> None:
    message = (
        "An exception was thrown from the Python worker. Please see the stack trace below.\n[PYTHON_EXCEPTION] An exception "
        'was thrown from the Python worker: Traceback (most recent call last):\n  File "/s.py", line 4, in f\n    raise X\n'
        "ValueError: bad luck\n SQLSTATE: 38000"
    )
    out = shown(capsys, failure=Failure(FailureKind.USER_CODE, message, traceback=TRACE))
    assert "user code: ValueError: bad luck\n" in out


def test_message_without_traceback_is_shown_once_and_whole(capsys: pytest.CaptureFixture[str]) -> None:
    failure = Failure(FailureKind.DATA, "row 7\nis broken", "a")
    out = shown(capsys, status(JobStatus.FAILING), status(JobStatus.FAILED), failure=failure)
    assert out.count("data error in vertex 'a': row 7\nis broken") == 1


def test_failure_after_which_the_job_goes_on_is_noted(capsys: pytest.CaptureFixture[str]) -> None:
    out = shown(capsys, status(JobStatus.FAILING), status(JobStatus.RESTARTING))
    assert out.index("failed: SparkError") < out.index("restarting")
