"""What is left of earlier attempts: in the record, over leaders, and in what people are shown."""

from __future__ import annotations

import asyncio
import json
from typing import Any

from tests.jobmaster.job_desk import FAILED, Desk, play, running

from firesteel.attempts.committed import Committed, CommittedBatch, Origin
from firesteel.errors import FiresteelError
from firesteel.jobgraph.model import NoRestart
from firesteel.jobmaster.execution_graph import execution_graph, makes_sense
from firesteel.jobmaster.machine import JobState
from firesteel.jobmaster.past import KEPT_ATTEMPTS, Past, PastAttempt
from firesteel.status import JobStatus
from firesteel.stores.job_results import JobResult


def told(batches: range, *, origin: Origin | None = None, rows: int = 10) -> dict[str, Any]:
    log = Committed() if origin is None else Committed().going_on(origin)
    for number in batches:
        log = log.committing(CommittedBatch(number, 100.0 + number, 20))
    sink = {"batch": batches[-1] if batches else None, "rows": rows, "output_rows": rows - 1, "busy_ms": 20 * rows}
    return {"sinks": {"o": sink}, "vertices": {"i": rows}, "checkpoints": {"o": log.to_json()}}


def attempt(number: int) -> PastAttempt:
    return PastAttempt(number, 10.0 * number, 10.0 * number + 9, f"e{number}", f"localhost:{number}")


def test_each_attempt_is_added_once() -> None:
    past = Past().after(attempt(1), told(range(3)))
    assert past.after(attempt(1), told(range(3))) == past
    both = past.after(attempt(2), told(range(3, 5), origin=Origin(2, 20.0)))
    assert both.sinks == {"o": {"rows": 20, "output_rows": 18, "busy_ms": 400}}
    assert both.vertices == {"i": 20}
    assert (both.checkpoints["o"].count, both.checkpoints["o"].restores) == (5, 1)
    assert Past.from_json(json.loads(json.dumps(both.to_json()))) == both


def test_what_an_attempt_committed_without_a_word_is_counted() -> None:
    past = Past().after(attempt(1), {})
    whole = past.with_progress(2, told(range(6, 8), origin=Origin(5, 20.0)))
    assert Committed.from_json(whole["checkpoints"]["o"]).count == 8


def test_only_the_last_attempts_are_kept_and_all_are_counted() -> None:
    past = Past()
    for number in range(1, 41):
        past = past.after(attempt(number), told(range(number - 1, number), origin=Origin(number - 2, 1.0)))
    assert [a.number for a in past.attempts] == list(range(41 - KEPT_ATTEMPTS, 41))
    assert past.checkpoints["o"].count == 40
    assert past.vertices == {"i": 400}


def test_a_record_stays_small_however_many_sinks_there_are() -> None:
    def log(last: int) -> dict[str, Any]:
        found = Committed()
        for number in range(last):
            found = found.committing(CommittedBatch(number, 1_794_726_332.123, 12345))
        return found.to_json()

    logs = {f"sink{n}": log(200 + n % 2) for n in range(500)}
    past = Past().after(attempt(1), {"checkpoints": logs})
    assert len(json.dumps(past.to_json())) < 60_000
    assert sum(bool(c.recent) for c in past.checkpoints.values()) == 1


def test_a_failed_attempt_is_in_the_record_before_the_next_one_starts() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.told[1] = told(range(3))
        await running(desk)
        await asyncio.sleep(7)
        desk.executor.end(1, FAILED)
        await desk.until("watch 2")
        record = await desk.record()
        assert record is not None
        (first,) = record["past"]["attempts"]
        assert (first["number"], first["engine_id"], first["endpoint"]) == (1, "e1", "localhost:1")
        assert first["ended_at"] > first["started_at"] >= 0
        assert (record["endpoint"], record["past"]["until"]) == ("localhost:1", 1)
        assert record["past"]["checkpoints"]["o"]["last"] == 2

    play(main)


def test_another_leader_counts_on() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.told[1] = told(range(3))
        await running(desk)
        desk.executor.end(1, FAILED)
        await desk.until("watch 2")
        await desk.let_go()
        desk.executor.told[2] = told(range(3, 7), origin=Origin(2, 20.0))
        desk.begin(await desk.record())
        await desk.until("watch 2", times=2)
        state = desk.master.state
        shown = execution_graph(desk.submission, state, desk.executor.told[2], now=50.0)
        assert Committed.from_json(shown["checkpoints"]["o"]).count == 7
        assert shown["progress"]["sinks"]["o"]["rows"] == 20
        assert "checkpoints" not in shown["progress"]
        assert [a["number"] for a in shown["attempts"]] == [1]
        # The attempt began before this leader did.
        assert 0 < state.started_at < state.timestamps["RUNNING"]

    play(main)


def test_progress_that_cannot_be_read_delays_no_restart() -> None:
    async def main() -> None:
        desk = Desk()
        desk.executor.progress_errors = [FiresteelError("the disk is gone")]
        await running(desk)
        desk.executor.end(1, FAILED)
        await desk.until("watch 2")
        assert [a.number for a in desk.master.state.past.attempts] == [1]

    play(main)


def test_an_archived_job_keeps_its_attempts_and_checkpoints() -> None:
    async def main() -> None:
        desk = Desk(restarts=1)
        for number, progress in ((1, told(range(3))), (2, told(range(3, 4), origin=Origin(2, 20.0)))):
            desk.executor.told[number] = progress
        await running(desk)
        desk.executor.end(1, FAILED)
        await desk.until("watch 2")
        desk.executor.end(2, FAILED)
        assert (await desk.finish()).status is JobStatus.FAILED
        job = desk.submission
        result = JobResult(job.job_id, "orders", JobStatus.FAILED, None, 0.0, 1.0, 90.0, 2, 1, job.digest)
        archive = execution_graph(job, desk.master.state, desk.executor.told[2], now=91.0, result=result)
        archive = json.loads(json.dumps(archive))
        assert makes_sense(archive, job.job_id)
        assert Committed.from_json(archive["checkpoints"]["o"]).count == 4
        assert archive["progress"]["sinks"]["o"]["rows"] == 20  # each attempt once
        assert [a["number"] for a in archive["attempts"]] == [1, 2]
        damages: list[dict[str, Any]] = [
            {"checkpoints": {"o": 1}},
            {"checkpoints": []},
            {"attempts": [{"number": "1"}]},
        ]
        for damage in damages:
            assert not makes_sense({**archive, **damage}, job.job_id)

    play(main)


def test_records_of_earlier_versions_have_no_past() -> None:
    record = JobState(NoRestart(), attempt=1).record()
    for key in ("past", "endpoint", "started_at"):
        del record[key]
    assert JobState.of_record(NoRestart(), 16, record).past == Past()
