"""Files of attempts on workers, copied to the leader: as they grow, and nothing but what was asked for."""

from __future__ import annotations

import asyncio
import base64
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.errors import NotLeadingError
from firesteel.fleet import mirror
from firesteel.fleet.mirror import LogMirror
from firesteel.fs.files import private_dir
from firesteel.layout import attempt_directory
from firesteel.rest.logs import JobLogs
from firesteel.types import AttemptId, JobID
from firesteel.worker.held import HeldOnDisk

JOB = JobID("a" * 32)
ATTEMPT = AttemptId(JOB, 1)
STDOUT = "output/stdout.log"


class OneWorker:
    """A worker whose attempts are in `jobs`; `lies` are answered instead."""

    heartbeat = 1.0

    def __init__(self, jobs: Path) -> None:
        self.held = HeldOnDisk(jobs)
        self.lies: list[list[dict[str, Any]]] = []

    def attempts_of(self, job_id: JobID) -> list[tuple[str, AttemptId]]:
        return [("w1", ATTEMPT)]

    async def call(self, _worker: str, method: str, args: Mapping[str, Any]) -> Any:
        assert method == "read_files"
        return self.lies.pop(0) if self.lies else self.held.read(ATTEMPT, args["have"])


def written(jobs: Path, text: str) -> None:
    directory = AttemptDirectory(private_dir(attempt_directory(jobs, ATTEMPT)))
    private_dir(directory.output)
    (directory.root / STDOUT).write_text(text)


def copied(tmp_path: Path, worker: OneWorker, *, times: int = 1) -> LogMirror:
    made = LogMirror(tmp_path / "mirror", lambda: worker)  # type: ignore[arg-type, return-value]

    async def main() -> None:
        for _ in range(times):
            made._copied.clear()
            await made.copy(JOB)

    asyncio.run(main())
    return made


def test_a_log_of_another_host_is_read_as_one_of_this(tmp_path: Path) -> None:
    there, here = tmp_path / "there", tmp_path / "here"
    written(there, "one\n")
    worker = OneWorker(there)
    made = copied(tmp_path, worker)
    logs = JobLogs(here, made.root)
    path = logs.path(JOB, 1, "stdout")
    assert path is not None
    assert path.read_text() == "one\n"
    written(there, "one\ntwo\n")
    copied(tmp_path, worker)
    assert path.read_text() == "one\ntwo\n"
    written(there, "new\n")  # begun anew
    copied(tmp_path, worker)
    assert path.read_text() == "new\n"
    assert logs.attempt_numbers(JOB) == [1]


def test_a_log_that_is_larger_than_one_answer_is_copied_whole(tmp_path: Path) -> None:
    there = tmp_path / "there"
    text = "x" * (5 << 19)
    written(there, text)
    made = copied(tmp_path, OneWorker(there))
    assert (attempt_directory(made.root, ATTEMPT) / STDOUT).read_text() == text


def test_what_was_not_asked_for_is_not_written(tmp_path: Path) -> None:
    """S47"""
    there = tmp_path / "there"
    written(there, "")
    worker = OneWorker(there)
    data = base64.b64encode(b"x").decode()
    worker.lies = [
        [
            {"file": "../../../../escaped", "offset": 0, "data": data},
            {"file": STDOUT, "offset": 1 << 50, "data": data},
            {"file": STDOUT, "offset": -1, "data": data},
        ]
    ]
    made = copied(tmp_path, worker)
    assert not list(tmp_path.rglob("escaped"))
    assert (attempt_directory(made.root, ATTEMPT) / STDOUT).read_bytes() == b""


def test_a_node_that_does_not_lead_copies_nothing(tmp_path: Path) -> None:
    def nobody() -> Any:
        raise NotLeadingError("another node leads")

    asyncio.run(LogMirror(tmp_path / "mirror", nobody).copy(JOB))
    assert not (tmp_path / "mirror").exists()


def test_a_worker_that_does_not_answer_keeps_no_reader_waiting(tmp_path: Path, monkeypatch: Any) -> None:
    monkeypatch.setattr(mirror, "COPY_SECONDS", 0.05)

    class Silent(OneWorker):
        async def call(self, _worker: str, method: str, args: Mapping[str, Any]) -> Any:
            await asyncio.Event().wait()

    copied(tmp_path, Silent(tmp_path / "there"))
