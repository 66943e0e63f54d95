"""What counts as left behind, what never does, and the command that removes it."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from tests.support.sleeper import sleeper

from firesteel.cli import exit_codes
from firesteel.cli.cluster import cluster
from firesteel.config import Configuration, load_configuration
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.errors import InvalidConfigError
from firesteel.fs.files import private_dir, write_json
from firesteel.ha.identity import claim
from firesteel.ha.protocols import Epoch
from firesteel.ha.services import open_high_availability
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.gc import ClusterPlaces, JobsKnown, LeftoverKind, find_leftovers, remove
from firesteel.sandbox.owners import below
from firesteel.types import new_job_id

LIVE, ENDED, GONE = (new_job_id() for _ in range(3))


@pytest.fixture
def process() -> Iterator[ProcessIdentity]:
    """Something that runs, as an engine does."""
    with sleeper() as found:
        yield found


@pytest.fixture
def places(tmp_path: Path) -> ClusterPlaces:
    data = private_dir(tmp_path / "data")
    return ClusterPlaces(data, private_dir(data / "clusters" / "default"), str(data / "checkpoints"))


def known(**more: Any) -> JobsKnown:
    made = JobsKnown(live=frozenset({LIVE}), retained=frozenset({ENDED}), asked_at=time.time() + 1)
    return dataclasses.replace(made, **more)


def note_engine(root: Path, engine_id: str, process: ProcessIdentity | None, **more: Any) -> None:
    record = EngineRecord(engine_id, EngineSpec("local[1]"), "localhost", 1, process=process, started_at=1.0, **more)
    EngineDirectory(root).save(record)


def found(places: ClusterPlaces, known: JobsKnown, **more: Any) -> set[tuple[LeftoverKind, str]]:
    more.setdefault("older_than", 0.0)
    return {(x.kind, Path(x.what).name) for x in find_leftovers(places, known, **more)}


DEAD = ProcessIdentity(1, "never")


def test_record_whose_process_is_gone_is_left_behind_whoever_made_it(places: ClusterPlaces) -> None:
    note_engine(places.data_dir, "a", DEAD)
    note_engine(places.data_dir, "b", None, shared=True)
    note_engine(places.cluster_dir, "c", DEAD)
    (places.cluster_dir / "engines" / "d").mkdir()
    records = {(LeftoverKind.ENGINE_RECORD, name) for name in "abcd"}
    assert found(places, known(cluster_live=True, unsettled=True)) == records
    for leftover in find_leftovers(places, known(), older_than=0):
        remove(leftover, places)
    assert found(places, known()) == set()


@pytest.mark.parametrize(
    ("more", "left"),
    [
        ({}, {"run", "cluster"}),
        ({"unsettled": True}, {"cluster"}),
        ({"cluster_live": True}, {"run"}),
        ({"cluster_known": False}, {"run"}),
    ],
)
def test_running_engine_is_left_behind_when_nobody_can_need_it(
    places: ClusterPlaces, process: ProcessIdentity, more: dict[str, Any], left: set[str]
) -> None:
    note_engine(places.data_dir, "run", process)
    note_engine(places.data_dir, "users", process, shared=True)
    note_engine(places.cluster_dir, "cluster", process)
    assert found(places, known(**more)) == {(LeftoverKind.ENGINE, name) for name in left}
    assert found(places, known(**more), older_than=1e12) == set()


def test_removing_an_engine_ends_it(places: ClusterPlaces, process: ProcessIdentity) -> None:
    note_engine(places.cluster_dir, "e", process)
    [leftover] = find_leftovers(places, known(), older_than=0)
    remove(leftover, places, grace=5)
    assert not process.alive
    assert EngineDirectory(places.cluster_dir).all() == []
    remove(leftover, places)  # gone already


def test_files_and_checkpoints_of_live_and_retained_jobs_stay(places: ClusterPlaces) -> None:
    roots = [places.cluster_dir / "jobs", places.data_dir / "jobs", Path(places.checkpoints)]
    for root in roots:
        for name in (LIVE, ENDED, GONE, "somebody-elses"):
            (root / name).mkdir(parents=True)
            (root / name / "file").write_text("x")
    assert found(places, known()) == {(LeftoverKind.JOB_FILES, GONE), (LeftoverKind.CHECKPOINTS, GONE)}
    for leftover in find_leftovers(places, known(), older_than=0):
        remove(leftover, places)
    for root in roots:
        assert {p.name for p in root.iterdir()} == {LIVE, ENDED, "somebody-elses"}


def test_young_things_stay(places: ClusterPlaces) -> None:
    home = places.cluster_dir / "jobs" / GONE
    home.mkdir(parents=True)
    (home / "file").write_text("x")
    os.utime(home, (1, 1))  # an old directory, with a file that somebody writes now
    assert found(places, known(), older_than=600) == set()
    assert found(places, known(asked_at=time.time() - 60)) == set()
    os.utime(home / "file", (1, 1))
    assert found(places, known(), older_than=600) == {(LeftoverKind.JOB_FILES, GONE)}


def test_job_whose_driver_runs_is_alive_whatever_is_known(places: ClusterPlaces, process: ProcessIdentity) -> None:
    attempt = places.cluster_dir / "jobs" / GONE / "attempts" / "1"
    attempt.mkdir(parents=True)
    write_json(attempt / "driver.json", {"pid": process.pid, "started": process.started})
    (Path(places.checkpoints) / GONE).mkdir(parents=True)
    note_engine(places.cluster_dir, "e", process)
    assert found(places, known()) == set()
    write_json(attempt / "driver.json", {"pid": DEAD.pid, "started": DEAD.started})
    kinds = {(LeftoverKind.JOB_FILES, GONE), (LeftoverKind.CHECKPOINTS, GONE), (LeftoverKind.ENGINE, "e")}
    assert found(places, known()) == kinds


def test_checkpoints_of_other_clusters_stay(places: ClusterPlaces) -> None:
    (places.data_dir / "clusters" / "other" / "jobs" / GONE).mkdir(parents=True)
    (Path(places.checkpoints) / GONE).mkdir(parents=True)
    assert found(places, known()) == set()


def test_without_a_store_nothing_of_a_cluster_is_judged(places: ClusterPlaces) -> None:
    (places.cluster_dir / "jobs" / GONE).mkdir(parents=True)
    (Path(places.checkpoints) / GONE).mkdir(parents=True)
    assert found(places, known(cluster_known=False)) == set()


def test_remote_checkpoints_are_listed_and_removed(places: ClusterPlaces) -> None:
    import fsspec

    memory = fsspec.filesystem("memory")
    root = f"/checkpoints-{new_job_id()}"
    for name in (LIVE, GONE):
        memory.pipe(f"{root}/{name}/offsets/0", b"x")
    remote = dataclasses.replace(places, checkpoints=f"memory:/{root}/")
    assert found(remote, known(), older_than=600) == set()
    assert found(remote, known()) == {(LeftoverKind.CHECKPOINTS, GONE)}
    [leftover] = find_leftovers(remote, known(), older_than=0)
    remove(leftover, remote)
    assert [Path(p).name for p in memory.ls(root, detail=False)] == [LIVE]
    assert found(dataclasses.replace(places, checkpoints="memory://no-such-place"), known()) == set()
    memory.rm(root, recursive=True)


# -- the command --------------------------------------------------------------------------------------------------


def configuration(places: ClusterPlaces) -> Configuration:
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    return load_configuration(overrides={"data.dir": str(places.data_dir)}, environ=environ, cwd=places.data_dir)


def run(places: ClusterPlaces, *args: str) -> Result:
    result = CliRunner().invoke(
        cluster,
        ["gc", f"-Ddata.dir={places.data_dir}", "--older-than", "0 s", *args],
        env={k: None for k in os.environ if k.startswith("FIRESTEEL_")},
        standalone_mode=False,
    )
    if result.exception is not None:
        raise result.exception
    return result


def store(places: ClusterPlaces, *paths: str) -> None:
    """Write into the cluster's store as a leader would."""

    class Leader:
        def __init__(self) -> None:
            self.epoch: asyncio.Future[Epoch] = asyncio.get_running_loop().create_future()

        def on_grant(self, epoch: Epoch) -> None:
            self.epoch.set_result(epoch)

        def on_revoke(self) -> None: ...

        def on_error(self, error: Exception) -> None:
            self.epoch.set_exception(error)

    async def write() -> None:
        services = await open_high_availability(configuration(places))
        leader = Leader()
        await services.election("test").start(leader)
        epoch = await asyncio.wait_for(leader.epoch, 10)
        for path in paths:
            await services.store.put(path, b"{}", epoch=epoch)
        await services.close()

    asyncio.run(write())


def test_command_asks_the_store(places: ClusterPlaces) -> None:
    store(places, f"graphs/{LIVE}", f"results/{ENDED}")
    for job_id in (LIVE, ENDED, GONE):
        (places.cluster_dir / "jobs" / job_id).mkdir(parents=True)
    for job_id in (LIVE, GONE):
        (Path(places.checkpoints) / job_id).mkdir(parents=True)

    listed = json.loads(run(places, "--json").stdout)
    assert {(x["kind"], Path(x["what"]).name, x["removed"]) for x in listed} == {
        ("job files", GONE, False),
        ("checkpoints", GONE, False),
    }
    assert (places.cluster_dir / "jobs" / GONE).exists()

    result = run(places, "--remove")
    assert result.return_value == exit_codes.OK
    assert "1 removed." in result.output
    assert "1 checkpoints were kept" in result.output
    assert not (places.cluster_dir / "jobs" / GONE).exists()
    assert (Path(places.checkpoints) / GONE).exists()

    assert "1 removed." in run(places, "--remove", "--checkpoints").output
    assert [p.name for p in Path(places.checkpoints).iterdir()] == [LIVE]
    assert "Nothing was left behind." in run(places).output


LEADER = """
import asyncio, sys
from pathlib import Path
from firesteel.config import load_configuration
from firesteel.ha.services import open_high_availability

class Leader:
    def on_grant(self, epoch): print("leads", flush=True)
    def on_revoke(self): ...
    def on_error(self, error): print(error, flush=True)

async def main():
    services = await open_high_availability(load_configuration(overrides={"data.dir": sys.argv[1]}))
    await services.election("other").start(Leader())
    await asyncio.sleep(600)

asyncio.run(main())
"""


def test_engines_of_a_cluster_that_is_led_stay_and_go_when_its_leader_was_killed(
    places: ClusterPlaces, process: ProcessIdentity
) -> None:
    note_engine(places.cluster_dir, "e", process)
    environ = {k: v for k, v in os.environ.items() if not k.startswith("FIRESTEEL_")}
    leader = subprocess.Popen(
        [sys.executable, "-c", LEADER, str(places.data_dir)], stdout=subprocess.PIPE, text=True, env=environ
    )
    try:
        assert leader.stdout is not None
        assert leader.stdout.readline() == "leads\n"
        assert json.loads(run(places, "--json").stdout) == []
    finally:
        leader.kill()
        leader.wait()
        assert leader.stdout is not None
        leader.stdout.close()
    [left] = json.loads(run(places, "--json").stdout)
    assert (left["kind"], left["what"]) == ("engine", "e")
    run(places, "--remove")
    assert not process.alive


def test_engine_is_not_kept_for_a_job_that_has_its_result(places: ClusterPlaces, process: ProcessIdentity) -> None:
    """What is left of such a job is its clean-up, which needs no engine; its files stay until then."""
    note_engine(places.cluster_dir, "e", process)
    (places.cluster_dir / "jobs" / LIVE).mkdir(parents=True)
    store(places, f"graphs/{LIVE}")
    assert json.loads(run(places, "--json").stdout) == []
    store(places, f"results/{LIVE}")
    [left] = json.loads(run(places, "--json").stdout)
    assert (left["kind"], left["what"]) == ("engine", "e")


def test_looking_makes_no_database(places: ClusterPlaces) -> None:
    assert "Nothing was left behind." in run(places).output
    assert not list(places.data_dir.glob("*.db"))


def test_cluster_without_a_store_is_said_to_be_left_alone(places: ClusterPlaces) -> None:
    (places.cluster_dir / "jobs" / GONE).mkdir(parents=True)
    result = run(places, "-Dhigh-availability.type=none")
    assert "high-availability.type is none" in result.stderr
    assert "Nothing was left behind." in result.stdout


def test_what_cannot_be_removed_is_an_error(places: ClusterPlaces, monkeypatch: pytest.MonkeyPatch) -> None:
    (places.cluster_dir / "jobs" / GONE).mkdir(parents=True)

    def refuse(*_: object, **__: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr("firesteel.cli.gc.remove", refuse)
    result = run(places, "--remove")
    assert result.return_value == exit_codes.FAILED
    assert "not yours" in result.stderr
    assert "0 removed." in result.stdout


def test_engine_of_another_host_is_nothing_that_was_left_behind(
    places: ClusterPlaces, process: ProcessIdentity
) -> None:
    note_engine(places.cluster_dir, "dead", DEAD)
    note_engine(places.cluster_dir, "elsewhere", DEAD)
    (places.cluster_dir / "engines" / "elsewhere" / "host").write_text("other-host/m2/b2")
    assert found(places, known()) == {(LeftoverKind.ENGINE_RECORD, "dead")}


def test_command_with_another_store_than_the_nodes_had_is_refused_and_removes_nothing(
    places: ClusterPlaces, process: ProcessIdentity, tmp_path: Path
) -> None:
    """Each job and each engine of the cluster would be "not known here"."""
    elsewhere = f"-Dhigh-availability.sql.url=sqlite:///{tmp_path / 'elsewhere.db'}"
    options = {"data.dir": str(places.data_dir), **dict([elsewhere[2:].split("=", 1)])}
    claim(places.cluster_dir, load_configuration(overrides=options, environ={}))
    note_engine(places.cluster_dir, "e", process)
    (places.cluster_dir / "jobs" / LIVE).mkdir(parents=True)
    (Path(places.checkpoints) / LIVE).mkdir(parents=True)
    with pytest.raises(InvalidConfigError, match=r"high-availability\.sql\.url"):
        run(places, "--remove", "--checkpoints", "--older-than", "0 s")
    assert process.alive
    assert (places.cluster_dir / "jobs" / LIVE).exists()
    assert (Path(places.checkpoints) / LIVE).exists()
    assert [x["what"] for x in json.loads(run(places, "--json", elsewhere).stdout) if x["kind"] == "engine"] == ["e"]


def test_checkpoints_in_the_directories_of_owners_are_looked_at(places: ClusterPlaces) -> None:
    owners = Path(below(places.checkpoints, "alice")), Path(below(places.checkpoints, "bob"))
    for directory, job in zip(owners, (LIVE, GONE), strict=True):
        (directory / job).mkdir(parents=True)
    assert found(places, known()) == {(LeftoverKind.CHECKPOINTS, GONE)}
    assert all(owner.is_dir() for owner in owners)
