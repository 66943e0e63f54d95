from __future__ import annotations

import asyncio
import hashlib
import json
from dataclasses import replace

import pytest
from tests.stores.store_doubles import EPOCH, OLD, FaultyStore, job, threads_used

from firesteel.errors import FencingError, StoreUnavailableError, VersionConflictError
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import FixedDelayRestart, JobGraph, Mode, NoRestart, Python, Settings, Sink, Source, Sql
from firesteel.stores.codec import UnreadableRecordError
from firesteel.stores.job_graphs import JobGraphStore, Submission


def graph(name: str = "orders", vertices: int = 1, **options: str) -> JobGraph:
    return JobGraph(
        name=name,
        mode=Mode.STREAMING,
        settings=Settings(restart=FixedDelayRestart(attempts=2), checkpoint_interval="10 s"),
        vertices=(
            Source(name="orders", format="json", path="/in", schema_="id BIGINT, käse STRING", options=options),
            *(Sql(name=f"q{i}", query="SELECT * FROM orders", inputs=("orders",)) for i in range(vertices)),
            Python(name="py", function="m:f", inputs=("q0",), args={"limit": None, "deep": [1, {"a": 2.5}]}),
            Sink(name="out", input="py", format="parquet", path="/out", partition_by=("id",)),
        ),
    )


def submission(number: int, at: float = 5.0, priority: int = 0) -> Submission:
    g = graph()
    digest = digest_of(g, priority=priority)
    return Submission(job_id=job(number), graph=g, submitted_at=at, digest=digest, priority=priority)


def test_a_submission_comes_back_from_json_as_it_was() -> None:
    g = graph(header="true")
    whole = Submission(
        job_id=job(1),
        graph=g,
        submitted_at=17.25,
        digest=digest_of(g, priority=3),
        priority=3,
        initial_client_heartbeat_timeout=30.0,
    )
    for one in (whole, submission(2)):
        assert Submission.from_bytes(f"graphs/{one.job_id}", one.to_bytes()) == one


def test_the_digest_tells_another_submission_from_a_retry() -> None:
    one = digest_of(graph(a="1", b="2"))
    assert len(one) == 64
    assert digest_of(graph(b="2", a="1")) == one
    others = [
        digest_of(graph(a="1", b="3")),
        digest_of(graph("other", a="1", b="2")),
        digest_of(graph(a="1", b="2"), priority=1),
        digest_of(graph(a="1", b="2"), initial_client_heartbeat_timeout=10.0),
        digest_of(graph(a="1", b="2", vertices=2)),
    ]
    assert len({one, *others}) == 6


def test_the_digest_is_of_the_bytes_that_are_stored() -> None:
    whole = replace(submission(1, priority=3), initial_client_heartbeat_timeout=30.0)
    digest = digest_of(whole.graph, priority=3, initial_client_heartbeat_timeout=30.0)
    stored = whole.to_bytes()
    assert stored.endswith(b',"graph":%b}' % whole.graph.canonical)
    assert hashlib.sha256(b"[%b,3,30.0]" % whole.graph.canonical).hexdigest() == digest
    assert stored.count(b'"vertices"') == 1


def test_submission_of_the_version_before_is_read_and_known_by_its_digest() -> None:
    """It wrote the graph in the order of its fields, and took the digest of a form of its own."""
    plain = graph(b="2", a="1").model_dump(mode="json", by_alias=True, exclude_none=True)
    parts = json.dumps([plain, 0, None], sort_keys=True, separators=(",", ":"))
    before = hashlib.sha256(parts.encode("ascii")).hexdigest()
    record = {"v": 1, "job_id": job(1), "submitted_at": 5.0, "digest": before, "priority": 0, "graph": plain}
    read = Submission.from_bytes(f"graphs/{job(1)}", json.dumps(record).encode())
    assert digest_of(read.graph) == read.digest == before


def test_a_changed_copy_of_a_graph_is_written_anew() -> None:
    one = graph(a="1")
    assert b'"name":"orders"' in one.canonical
    for other in (one.with_(name="other"), one.model_copy(update={"name": "other"})):
        assert b'"name":"other"' in other.canonical
        assert digest_of(other) != digest_of(one)


def test_the_digest_tells_apart_what_has_only_defaults() -> None:
    plain = graph()
    restarting = plain.model_copy(update={"settings": Settings(restart=NoRestart())})
    fixed = plain.model_copy(update={"settings": Settings(restart=FixedDelayRestart())})
    assert digest_of(restarting) != digest_of(fixed)


def test_a_job_is_accepted_once() -> None:
    async def run() -> None:
        store = JobGraphStore(FaultyStore())
        await store.put(submission(1), epoch=EPOCH)
        with pytest.raises(VersionConflictError):
            await store.put(submission(1, at=6), epoch=EPOCH)
        assert await store.get(job(1)) == submission(1)
        assert await store.get(job(2)) is None
        assert await store.job_ids() == [job(1)]

    asyncio.run(run())


def test_a_leader_of_old_accepts_nothing() -> None:
    async def run() -> None:
        store = JobGraphStore(FaultyStore())
        with pytest.raises(FencingError):
            await store.put(submission(1), epoch=OLD)
        assert await store.job_ids() == []

    asyncio.run(run())


def test_a_job_whose_acceptance_was_not_answered_can_be_found() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobGraphStore(faulty)
        faulty.lose_answer()
        with pytest.raises(StoreUnavailableError):
            await store.put(submission(1), epoch=EPOCH)
        found = await store.get(job(1))
        assert found is not None
        assert found.digest == submission(1).digest

    asyncio.run(run())


def test_recovery_keeps_the_order_of_acceptance() -> None:
    async def run() -> None:
        store = JobGraphStore(FaultyStore())
        for number, at in ((1, 30.0), (2, 10.0), (3, 20.0), (4, 10.0)):
            await store.put(submission(number, at), epoch=EPOCH)
        good, bad = await store.recover()
        assert [s.job_id for s in good] == [job(2), job(4), job(3), job(1)]
        assert bad == {}

    asyncio.run(run())


def test_recovery_goes_on_past_unreadable_graphs_and_says_why() -> None:
    async def run() -> None:
        faulty = FaultyStore()
        store = JobGraphStore(faulty)
        for number in range(1, 7):
            await store.put(submission(number), epoch=EPOCH)
        good = json.loads(await faulty.value(f"graphs/{job(1)}"))
        await faulty.damage(f"graphs/{job(2)}", b'{"v": 1, "job')
        await faulty.damage(f"graphs/{job(3)}", json.dumps({**good, "v": 7, "job_id": job(3)}).encode())
        broken = {**good, "job_id": job(4), "graph": {**good["graph"], "vertices": []}}
        await faulty.damage(f"graphs/{job(4)}", json.dumps(broken).encode())
        await faulty.damage(f"graphs/{job(5)}", await faulty.value(f"graphs/{job(1)}"))
        readable, bad = await store.recover()
        assert [s.job_id for s in readable] == [job(1), job(6)]
        assert set(bad) == {job(2), job(3), job(4), job(5)}
        assert "not JSON" in bad[job(2)]
        assert "version 7" in bad[job(3)]
        assert "graph.vertices" in bad[job(4)]
        assert f"record of job {job(1)}" in bad[job(5)]
        with pytest.raises(UnreadableRecordError, match=f"graphs/{job(4)}"):
            await store.get(job(4))
        assert await store.raw(job(2)) == b'{"v": 1, "job'
        assert await store.raw(job(9)) is None
        assert await store.delete(job(2), epoch=EPOCH)
        assert not await store.delete(job(2), epoch=EPOCH)
        assert set((await store.recover())[1]) == {job(3), job(4), job(5)}

    asyncio.run(run())


def test_recovery_of_a_thousand_graphs_does_not_block_the_loop() -> None:
    async def run() -> int:
        store = JobGraphStore(FaultyStore())
        big = graph(vertices=100)
        digest = digest_of(big)
        for number in range(1000):
            await store.put(Submission(job(number), big, float(number), digest), epoch=EPOCH)
        recovered: list[Submission] = []

        async def recover() -> None:
            recovered.extend((await store.recover())[0])

        threads = await threads_used(recover())
        assert len(recovered) == 1000
        return threads

    assert asyncio.run(run()), "the loop did it itself"
