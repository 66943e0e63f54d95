"""Records that an earlier Firesteel wrote are read as they are, and written as it wrote them.

The bytes were recorded once. A change that needs others is a new version of the record.
"""

from __future__ import annotations

import asyncio
import json

import pytest
from tests.stores.store_doubles import EPOCH, FaultyStore

from firesteel.attempts.committed import Committed, CommittedBatch, Origin
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.failure import Failure, FailureKind
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.machine import ExceptionEntry
from firesteel.jobmaster.past import Past, PastAttempt
from firesteel.jobmaster.story import Chapter, Story
from firesteel.processes import ProcessIdentity
from firesteel.records import from_json, to_json
from firesteel.status import JobStatus
from firesteel.stores.job_graphs import JobGraphStore, Submission
from firesteel.stores.job_results import JobResult, JobResultStore
from firesteel.stores.operations import Operation, OperationKind, OperationStatus, OperationStore
from firesteel.stores.parked import ParkedJob, ParkedStore
from firesteel.stores.uploads import Upload, UploadStore
from firesteel.types import JobID

JOB = JobID("0123456789abcdef" * 2)
OLD_NAME = b"caf\xe9".decode(errors="surrogateescape")
"""Text that is no Unicode, as a message may quote it."""

FAILURE = Failure(FailureKind.EXIT_CODE, f"no {OLD_NAME}", "sink", "SystemExit", "File 'a.py'", 3)
RESULT = JobResult(
    JOB,
    "nightly",
    JobStatus.FAILED,
    FAILURE,
    submitted_at=1700000000.25,
    started_at=1700000001.5,
    ended_at=1700000002.0,
    attempts=2,
    restarts=1,
    digest="sha256:ab",
    stopped=True,
    note="twice",
    owner="ann",
    mode="streaming",
    vertices=3,
    checkpoint="/data/c",
    resumes="f" * 32,
    files=("k1", "k2"),
    kind="streaming",
    given_up=1,
)
SUBMISSION = Submission(
    JOB,
    JobGraph.model_validate(
        {
            "name": "nightly",
            "mode": "batch",
            "vertices": [
                {"name": "in", "kind": "source", "format": "csv", "path": "/in"},
                {"name": "out", "kind": "sink", "input": "in", "format": "parquet", "path": "/out"},
            ],
        }
    ),
    submitted_at=1700000000.25,
    digest="sha256:ab",
    priority=7,
    initial_client_heartbeat_timeout=30.0,
    owner="ann",
    restricted=True,
    resumes="f" * 32,
)
PARKED = ParkedJob(JOB, f"graphs/{JOB}", b"\x00torn\xff", "it is not JSON", 1700000000.25)
UPLOAD = Upload("00000000-0000-4000-8000-000000000000_a.py", "a.py", "k1", 17, 1700000000.25, "ann", "__main__")
OPERATION = Operation(
    JOB,
    "t-1",
    OperationKind.SAVEPOINT,
    1700000000.25,
    asked={"target": None, "n": [1, 2.5]},
    location="/s/1",
    status=OperationStatus.COMPLETED,
    ended_at=1700000001.0,
    result={"location": "/s/1", "batches": {"out": 4}},
    error="",
)
EXCEPTION = ExceptionEntry(FAILURE, 1700000001.0, 2, {"team": "data"})
STORY = Story((Chapter(1700000000.25, JobStatus.CREATED, "submitted", 0, 5),), 12)
PAST = Past(
    (PastAttempt(1, 1700000000.25, 1700000001.0, "engine-1", "localhost:15002"),),
    1,
    {"out": {"rows": 7, "reads": {"in": 9}}},
    {"in": 9},
    {"out": Committed(3, 5, 2, Origin(3, 1.5, "/s/1", "t-1"), (CommittedBatch(5, 2.5, 40),))},
)
ENGINE = EngineRecord(
    "engine-1",
    EngineSpec("local[2]", "2g", (("spark.a", "b"),), ("-Xss4m",), "ann"),
    "localhost",
    15002,
    token="t",
    ui_port=4040,
    ui_secret="s",
    cores=2,
    process=ProcessIdentity(123, "456"),
    started_at=1700000000.25,
    tls=True,
    shared=True,
)

RECORDED = {
    f"results/{JOB}": (
        b'{"v":1,"dirty":true,"job_id":"0123456789abcdef0123456789abcdef","name":"nightly","status":"FAILED",'
        b'"failure":{"kind":"exit code","message":"no caf\\udce9","vertex":"sink","error_class":"SystemExit",'
        b'"traceback":"File \'a.py\'","exit_code":3},"submitted_at":1700000000.25,"started_at":1700000001.5,'
        b'"ended_at":1700000002.0,"attempts":2,"restarts":1,"digest":"sha256:ab","stopped":true,"note":"twice",'
        b'"owner":"ann","mode":"streaming","vertices":3,"checkpoint":"/data/c",'
        b'"resumes":"ffffffffffffffffffffffffffffffff","files":["k1","k2"],"kind":"streaming","given_up":1}'
    ),
    f"graphs/{JOB}": (
        b'{"v":1,"job_id":"0123456789abcdef0123456789abcdef","submitted_at":1700000000.25,"digest":"sha256:ab",'
        b'"priority":7,"initial_client_heartbeat_timeout":30.0,"owner":"ann","restricted":true,'
        b'"resumes":"ffffffffffffffffffffffffffffffff","graph":{"description":"","mode":"batch","name":"nightly",'
        b'"settings":{"artifacts":{"archives":[],"files":[],"jars":[],"py_files":[]},"restart":{"type":"none"},'
        b'"row_metrics":"operators","spark":{}},"version":1,"vertices":[{"cache":false,"description":"",'
        b'"format":"csv","kind":"source","name":"in","options":{},"path":"/in","static":false},'
        b'{"delivery":"exactly-once","description":"","format":"parquet","input":"in","keys":[],"kind":"sink",'
        b'"name":"out","options":{},"partition_by":[],"path":"/out"}]}}'
    ),
    f"parked/{JOB}/graphs": (
        b'{"v":1,"job_id":"0123456789abcdef0123456789abcdef","path":"graphs/0123456789abcdef0123456789abcdef",'
        b'"raw":"AHRvcm7/","reason":"it is not JSON","parked_at":1700000000.25}'
    ),
    f"uploads/{UPLOAD.upload_id}": (
        b'{"v":1,"id":"00000000-0000-4000-8000-000000000000_a.py","name":"a.py","key":"k1","size":17,'
        b'"uploaded":1700000000.25,"owner":"ann","entry":"__main__"}'
    ),
    f"operations/{JOB}/t-1": (
        b'{"v":1,"job_id":"0123456789abcdef0123456789abcdef","trigger_id":"t-1","kind":"SAVEPOINT",'
        b'"started_at":1700000000.25,"asked":{"target":null,"n":[1,2.5]},"location":"/s/1","status":"COMPLETED",'
        b'"ended_at":1700000001.0,"result":{"location":"/s/1","batches":{"out":4}},"error":""}'
    ),
}

PARTS = [
    (
        EXCEPTION,
        (
            '{"failure": {"kind": "exit code", "message": "no caf\\udce9", "vertex": "sink", "error_class": "SystemExit", '
            '"traceback": "File \'a.py\'", "exit_code": 3}, "at": 1700000001.0, "attempt": 2, "labels": {"team": "data"}}'
        ),
    ),
    (
        STORY,
        (
            '{"chapters": [{"at": 1700000000.25, "status": "CREATED", "cause": "submitted", "attempt": 0, "epoch": 5}], '
            '"left_out": 12}'
        ),
    ),
    (
        ENGINE,
        (
            '{"engine_id": "engine-1", "spec": {"master": "local[2]", "memory": "2g", "spark": [["spark.a", "b"]], '
            '"jvm_options": ["-Xss4m"], "owner": "ann"}, "host": "localhost", "port": 15002, "token": "t", '
            '"ui_port": 4040, "ui_secret": "s", "cores": 2, "process": {"pid": 123, "started": "456"}, '
            '"started_at": 1700000000.25, "tls": true, "shared": true}'
        ),
    ),
]
PAST_RECORDED = (
    '{"attempts": [{"number": 1, "started_at": 1700000000.25, "ended_at": 1700000001.0, "engine_id": "engine-1", '
    '"endpoint": "localhost:15002", "worker": ""}], "until": 1, "sinks": {"out": {"rows": 7, "reads": {"in": 9}}}, '
    '"vertices": {"in": 9}, "checkpoints": {"out": {"before": 3, "last": 5, "restores": 2, "restored": '
    '{"batch": 3, "at": 1.5, "savepoint": "/s/1", "trigger": "t-1"}, "recent": [[5, 2.5, 40]]}}}'
)


def test_records_of_the_store_are_read() -> None:
    async def main() -> None:
        store = FaultyStore()
        for path, raw in RECORDED.items():
            await store.damage(path, raw)
        results = JobResultStore(store, retention=10)
        assert await results.load() == {}
        assert await results.read(JOB) == RESULT
        assert results.is_dirty(JOB)
        assert await JobGraphStore(store).recover() == ([SUBMISSION], {})
        assert await ParkedStore(store).list() == [PARKED]
        assert await UploadStore(store).list() == [UPLOAD]
        operations = OperationStore(store)
        await operations.load()
        assert operations.of_job(JOB) == [OPERATION]

    asyncio.run(main())


def test_records_of_the_store_are_written() -> None:
    async def main() -> None:
        store = FaultyStore()
        await JobResultStore(store, retention=10).put_dirty(RESULT, epoch=EPOCH)
        await JobGraphStore(store).put(SUBMISSION, epoch=EPOCH)
        await ParkedStore(store).put(PARKED, epoch=EPOCH)
        await UploadStore(store).put(UPLOAD, epoch=EPOCH)
        await OperationStore(store).begin(OPERATION, epoch=EPOCH)
        assert {path: await store.value(path) for path in RECORDED} == RECORDED

    asyncio.run(main())


def test_results_of_0_1_are_read() -> None:
    recorded = json.loads(RECORDED[f"results/{JOB}"])
    for field in ("owner", "mode", "vertices", "checkpoint", "resumes", "files", "kind", "given_up"):
        del recorded[field]
    result = from_json(recorded, JobResult)
    assert (result.owner, result.mode, result.vertices, result.checkpoint, result.files) == ("", "batch", 0, "", ())


@pytest.mark.parametrize(("part", "recorded"), PARTS)
def test_parts_of_records_are_read_and_written(part: object, recorded: str) -> None:
    assert from_json(json.loads(recorded), type(part)) == part
    written = part.as_json() if isinstance(part, EngineRecord) else to_json(part)
    assert json.dumps(written) == recorded


def test_past_of_a_job_is_read_and_written() -> None:
    assert Past.from_json(json.loads(PAST_RECORDED)) == PAST
    assert json.dumps(PAST.to_json()) == PAST_RECORDED
