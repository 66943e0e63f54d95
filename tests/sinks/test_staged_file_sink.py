"""What a sink does when nothing dies: names, modes, neighbours, paths, and the errors that it gives."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from firesteel.errors import CommitConflictError, EnvironmentNotReadyError, InvalidPipelineError
from firesteel.fs.local import LocalStore
from firesteel.fs.store import FileLocation, locate
from firesteel.jobgraph.model import SaveMode
from firesteel.sinks import Begin, StagedFileSink
from firesteel.types import JobID

if TYPE_CHECKING:
    from tests.sinks import sink_model as model
    from tests.sinks.sink_model import World
else:
    import sink_model as model

    World = model.World

JOB, VERTEX = model.JOB, model.VERTEX
PRIVATE = f"_firesteel/{JOB}-{VERTEX}"


def seed(world: World) -> None:
    for name, text in model.OLD.items():
        world.put(name, text)


@pytest.mark.parametrize("mode", ["append", "overwrite", "dynamic"])
def test_commit_puts_new_rows_beside_or_in_place_of_old_ones(world: World, mode: str) -> None:
    seed(world)
    sink = model.sink_of(world, mode)
    model.run(world, sink)
    assert model.rows_of(world) == model.expected(mode)
    assert ("_metadata" in world.files()) == (mode != "overwrite")
    assert world.files()[".keep"] == model.OLD[".keep"]
    assert world.files()["_SUCCESS"] == ""
    sink.cleanup()
    assert model.ours(world) == set()


def test_final_names_carry_job_vertex_attempt_and_sparks_extension(world: World) -> None:
    sink = model.sink_of(world)
    rows = {
        "part-00001-{w}-c000.csv.gz": "b",
        "part-00000-{w}-c001.csv.gz": "a1",
        "part-00000-{w}-c000.csv.gz": "a0",
        "k=a%3Ab ü/part-00000-{w}.c000.snappy.parquet": "p",
        "part-100000-{w}-c000.csv.gz": "z",
    }
    model.run(world, sink, attempt=7, rows=rows)
    sink.cleanup()
    tail = f"{JOB}-{VERTEX}-7"
    assert world.files() == {
        f"part-00000-{tail}.csv.gz": "a0",
        f"part-00001-{tail}.csv.gz": "a1",
        f"part-00002-{tail}.csv.gz": "b",
        f"part-00003-{tail}.csv.gz": "z",
        f"k=a%3Ab ü/part-00004-{tail}.snappy.parquet": "p",
        "_SUCCESS": "",
    }


def test_commit_reports_what_it_did_and_whose_rows_won(world: World) -> None:
    seed(world)
    sink = model.sink_of(world, "overwrite")
    model.run(world, sink, attempt=2)
    report = sink.commit(3)  # a zombie, late
    assert (report.attempt, report.files, report.bytes) == (2, 4, sum(map(len, model.NEW.values())))
    assert report.removed == 4  # two data files, a checksum, a summary
    assert sink.begin(3) is Begin.ALREADY_COMMITTED
    assert sink.abandon() == report


def test_staging_is_invisible_and_old_rows_stay_until_the_commit(world: World) -> None:
    seed(world)
    sink = model.sink_of(world, "overwrite")
    assert sink.begin(1) is Begin.RUN
    model.spark_writes(world, sink.staging_path(1))
    assert model.rows_of(world) == model.rows_in(model.OLD)
    sink.commit(1)
    assert model.rows_of(world) == model.rows_in(model.NEW)


def test_begin_leaves_the_staging_of_other_attempts_alone(world: World) -> None:
    sink = model.sink_of(world)
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1))
    before = world.files()
    assert sink.begin(2) is Begin.RUN
    assert before.items() <= world.files().items()


def test_same_attempt_run_again_replaces_its_half_written_staging(world: World) -> None:
    sink = model.sink_of(world)
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1), finishes=False)
    model.run(world, sink)
    assert model.rows_of(world) == model.rows_in(model.NEW)


def test_static_overwrite_with_no_rows_empties_the_target(world: World) -> None:
    seed(world)
    model.run(world, model.sink_of(world, "overwrite"), rows={})
    assert model.rows_of(world) == []
    assert not {d for d in world.directories() if d.startswith("k=")}


def test_dynamic_overwrite_with_no_rows_changes_nothing(world: World) -> None:
    seed(world)
    model.run(world, model.sink_of(world, "dynamic"), rows={})
    assert model.rows_of(world) == model.rows_in(model.OLD)


def test_dynamic_overwrite_without_partitions_replaces_everything(world: World) -> None:
    seed(world)
    model.run(world, model.sink_of(world, "dynamic"), rows={"part-00000-{w}-c000.csv": "n\n"})
    assert model.rows_of(world) == [": n"]


def test_overwrite_spares_staging_and_hidden_files_of_others(world: World) -> None:
    other = model.sink_of(world, job_id=model.OTHER_JOB)
    other.begin(1)
    model.spark_writes(world, other.staging_path(1), model.OTHER)
    world.put("_temporary/0/x", "another Spark job")
    model.run(world, model.sink_of(world, "overwrite"))
    other.commit(1)
    assert model.rows_of(world) == sorted(model.rows_in(model.NEW) + model.rows_in(model.OTHER))
    assert world.files()["_temporary/0/x"] == "another Spark job"


def test_appends_of_two_jobs_and_two_sinks_to_one_path_are_all_complete(world: World) -> None:
    sinks = [
        model.sink_of(world),
        model.sink_of(world, vertex="out_12"),
        model.sink_of(world, job_id=model.OTHER_JOB),
    ]
    for sink in sinks:
        sink.begin(1)
        model.spark_writes(world, sink.staging_path(1))
    for sink in sinks:
        sink.commit(1)
    for sink in sinks:
        sink.cleanup()
    assert model.rows_of(world) == sorted(3 * model.rows_in(model.NEW))
    assert model.ours(world) == set()


def test_commit_before_spark_finished_says_so_and_changes_nothing(world: World) -> None:
    sink = model.sink_of(world)
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1), finishes=False)
    before = world.files()
    with pytest.raises(CommitConflictError, match="has no _SUCCESS — let Spark's write finish"):
        sink.commit(1)
    assert world.files() == before


def test_commit_of_an_attempt_that_was_not_begun_is_refused(world: World) -> None:
    sink = model.sink_of(world)
    model.spark_writes(world, sink.staging_path(1))
    with pytest.raises(CommitConflictError, match=r"call begin\(1\)"):
        sink.commit(1)


def test_commit_of_two_spark_writes_in_one_staging_is_refused(world: World) -> None:
    sink = model.sink_of(world)
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1))
    world.put(f"{PRIVATE}/attempt-1/k=2/part-00000-00000000-0000-4000-8000-000000000000.c000.snappy.parquet", "n1\n")
    with pytest.raises(CommitConflictError, match="2 Spark writes"):
        sink.commit(1)
    assert model.rows_of(world) == []


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        (lambda t: t[: len(t) // 2], "damaged"),
        (lambda t: "", "damaged"),
        (lambda t: "[1]", "damaged"),
        (lambda t: t.replace("k=2/", "k=1/", 1), "checksum"),
        (lambda t: t.replace('"version": 1', '"version": 2'), "version 2, this Firesteel reads up to 1"),
    ],
    ids=["torn", "empty", "not a record", "altered", "newer"],
)
@pytest.mark.parametrize("call", ["begin", "commit", "abandon", "cleanup"])
def test_record_that_cannot_be_read_stops_everything_and_destroys_nothing(
    world: World, damage: Callable[[str], str], message: str, call: str
) -> None:
    seed(world)
    sink = model.sink_of(world, "overwrite")
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1))
    spoil_record(world, sink, damage)
    before = world.files()
    with pytest.raises(CommitConflictError, match=message):
        getattr(sink, call)(*([1] if call in ("begin", "commit") else []))
    assert world.files() == before


def spoil_record(world: World, sink: StagedFileSink, damage: Callable[[str], str]) -> None:
    """Let the sink die right after its decision, then change what it wrote."""

    def die(record: Any) -> None:
        raise model.Crash

    log: Any = sink._log
    log.apply = die
    with pytest.raises(model.Crash):
        sink.commit(1)
    del log.apply
    world.put(f"{PRIVATE}/commit.json", damage(world.files()[f"{PRIVATE}/commit.json"]))


def test_record_that_leads_out_of_the_target_is_refused() -> None:
    from firesteel.sinks.record import CommitRecord, Decision, decode, encode

    data = encode(CommitRecord(Decision.COMMIT, JOB, VERTEX, 1, (), ("../other/file",)))
    with pytest.raises(CommitConflictError, match="leads out of the target"):
        decode(data, "commit.json")
    assert json.loads(data)["version"] == 1


def test_record_in_the_directory_of_another_job_is_refused(world: World) -> None:
    sink = model.sink_of(world)
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1))
    spoil_record(world, sink, lambda text: text)
    record = world.files()[f"{PRIVATE}/commit.json"]
    world.put(f"_firesteel/{model.OTHER_JOB}-{VERTEX}/commit.json", record)
    with pytest.raises(CommitConflictError, match="is the record of"):
        model.sink_of(world, job_id=model.OTHER_JOB).begin(1)


def test_staged_file_lost_after_the_decision_is_loud_and_keeps_old_rows(world: World) -> None:
    seed(world)
    sink = model.sink_of(world, "overwrite")
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1))
    spoil_record(world, sink, lambda text: text)
    world.delete_tree(f"{PRIVATE}/attempt-1/k=2")
    with pytest.raises(CommitConflictError, match=r"is gone and .* does not exist"):
        sink.begin(2)
    assert model.rows_of(world) == model.rows_in(model.OLD)


def test_staging_rewritten_after_the_decision_is_loud(world: World) -> None:
    sink = model.sink_of(world)
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1))
    spoil_record(world, sink, lambda text: text)
    staged = next(name for name in world.files() if "/attempt-1/k=2/part-00000" in name)
    world.put(staged, "other rows, other size\n")
    with pytest.raises(CommitConflictError, match="written again after its commit"):
        sink.begin(2)
    assert model.rows_of(world) == []


def test_overwrite_goes_on_over_a_commit_of_another_job_that_can_never_finish(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    other = model.sink_of(world, job_id=model.OTHER_JOB)
    other.begin(1)
    world.put(f"_firesteel/{model.OTHER_JOB}-{VERTEX}/commit.json", "{")
    model.run(world, model.sink_of(world, "overwrite"))
    assert model.rows_of(world) == model.rows_in(model.NEW)
    assert "replaces an unfinished commit" in caplog.text
    assert f"_firesteel/{model.OTHER_JOB}-{VERTEX}/commit.json" in world.files()


def test_abandon_removes_staging_and_refuses_nothing_twice(world: World) -> None:
    seed(world)
    sink = model.sink_of(world, "overwrite")
    sink.begin(1)
    model.spark_writes(world, sink.staging_path(1))
    assert sink.abandon() is None
    assert sink.abandon() is None
    sink.cleanup()
    assert model.rows_of(world) == model.rows_in(model.OLD)
    assert model.ours(world) == set()


def test_abandon_and_cleanup_of_a_sink_that_never_began_make_nothing(world: World) -> None:
    sink = model.sink_of(world)
    assert sink.abandon() is None
    sink.cleanup()
    assert world.files() == {}
    assert world.directories() == set()


def test_target_that_is_a_file_is_refused_with_vertex_and_field(tmp_path: Path) -> None:
    file = tmp_path / "data.csv"
    file.write_text("x")
    sink = StagedFileSink(str(file), JOB, VERTEX, mode=SaveMode.OVERWRITE)
    with pytest.raises(InvalidPipelineError, match=r"vertex 'out_1', field 'path': '.*data.csv' is a file — give a"):
        sink.begin(1)
    assert file.read_text() == "x"


@pytest.mark.parametrize(
    "path", ["/data/out", "/data/a b/100%/k=v/", "file:///data/out", "hdfs://nn:8020/out", "s3a://bucket/key/out"]
)
def test_staging_path_keeps_the_spelling_of_the_user(path: str) -> None:
    sink = StagedFileSink(path, JOB, VERTEX, mode=SaveMode.APPEND, store=LocalStore())
    assert sink.staging_path(3) == f"{path.rstrip('/')}/{PRIVATE}/attempt-3"


@pytest.mark.parametrize(
    ("path", "protocol", "options", "inside"),
    [
        ("s3a://bucket/a b/k=1%25/", "s3", {}, "bucket/a b/k=1%25"),
        ("gs://bucket", "gs", {}, "bucket"),
        ("abfss://box@acct.dfs.core.windows.net/x/y", "abfs", {"account_name": "acct"}, "box/x/y"),
        ("hdfs://me@nn:8020/x#y/z?q", "hdfs", {"host": "nn", "port": 8020, "user": "me"}, "/x#y/z?q"),
        ("hdfs:///x", "hdfs", {}, "/x"),
        ("webhdfs://nn:9870/x", "webhdfs", {"host": "nn", "port": 9870}, "/x"),
    ],
)
def test_locate_maps_sparks_schemes_to_fsspec(path: str, protocol: str, options: dict[str, Any], inside: str) -> None:
    assert locate(path, VERTEX, {"key": "v"}) == FileLocation(protocol, inside, {**options, "key": "v"})


def test_hdfs_through_webhdfs_takes_the_host_and_not_the_rpc_port() -> None:
    location = locate("hdfs://nn:8020/x", VERTEX, {"protocol": "webhdfs", "port": 9870})
    assert location == FileLocation("webhdfs", "/x", {"host": "nn", "port": 9870})


@pytest.mark.parametrize(
    ("path", "message"), [("out/dir", "is not absolute"), ("ftp://host/x", "exactly-once delivery is not supported")]
)
def test_path_that_cannot_be_committed_to_is_refused(path: str, message: str) -> None:
    with pytest.raises(InvalidPipelineError, match=message):
        StagedFileSink(path, JOB, VERTEX, mode=SaveMode.APPEND)


def test_missing_client_package_names_what_to_install() -> None:
    with pytest.raises(EnvironmentNotReadyError, match="pip install s3fs"):
        StagedFileSink("s3a://bucket/x", JOB, VERTEX, mode=SaveMode.APPEND)


@pytest.mark.parametrize(("job", "vertex"), [("../x", "out"), (JOB, "a/b"), (JOB, "k=v")])
def test_job_and_vertex_that_are_no_file_names_are_refused(job: str, vertex: str) -> None:
    with pytest.raises(ValueError, match="not"):
        StagedFileSink("/x", JobID(job), vertex, mode=SaveMode.APPEND)


def test_file_uri_and_plain_path_mean_the_same_directory(tmp_path: Path) -> None:
    for path in (f"file://{tmp_path}/x/", f"file:{tmp_path}/x", f"{tmp_path}/x//"):
        assert locate(path, VERTEX, {}).root == f"{tmp_path}/x"


def test_local_store_without_hard_links_still_creates_exclusively(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import errno

    from firesteel.fs import local

    def no_links(*_: Any) -> None:
        raise OSError(errno.EPERM, "not here")

    monkeypatch.setattr(local.os, "link", no_links)  # type: ignore[attr-defined]
    files = LocalStore()
    path = str(tmp_path / "commit.json")
    assert files.create(path, b"one")
    assert not files.create(path, b"two")
    assert Path(path).read_bytes() == b"one"
    assert [p.name for p in tmp_path.iterdir()] == ["commit.json"]


def test_overwrite_removes_a_link_to_a_directory_and_not_what_it_points_to(tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (elsewhere / "precious.csv").write_text("p")
    world = model.LocalWorld(tmp_path)
    seed(world)
    (Path(world.uri) / "k=9").symlink_to(elsewhere)
    model.run(world, model.sink_of(world, "overwrite"))
    assert (elsewhere / "precious.csv").read_text() == "p"
    assert not (Path(world.uri) / "k=9").is_symlink()


def test_ten_thousand_local_files_commit_in_seconds(tmp_path: Path) -> None:
    sink = StagedFileSink(str(tmp_path), JOB, VERTEX, mode=SaveMode.OVERWRITE)
    sink.begin(1)
    staging = Path(sink.staging_path(1))
    write = "00000000-0000-4000-8000-000000000000"
    for partition in range(100):
        (staging / f"k={partition}").mkdir(parents=True)
        for i in range(100):
            (staging / f"k={partition}/part-{i:05d}-{write}.c000.csv").write_text("row\n")
    (staging / "_SUCCESS").touch()
    started = time.process_time()
    assert sink.commit(1).files == 10_000
    assert time.process_time() - started < 5  # measured: 0.4 s of CPU; the bound is for busy machines
    assert len(list(tmp_path.glob("k=*/*.csv"))) == 10_000


def test_output_below_a_file_leaves_nothing_to_clean_up(tmp_path: Path) -> None:
    """The job that was to write there failed, and its clean-up was tried again for ever (I12)."""
    (tmp_path / "file").write_text("x")
    for path in (tmp_path / "file" / "out", tmp_path / "file" / "a" / "b", tmp_path / "file"):
        sink = StagedFileSink(str(path), JOB, VERTEX, mode=SaveMode.APPEND)
        assert sink.abandon() is None
        sink.cleanup()
    assert (tmp_path / "file").read_text() == "x"
