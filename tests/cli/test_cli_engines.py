"""`firesteel engine list`: whatever runs from the data directory, the engines of the cluster too."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from tests.cli.commands import Command, isolated
from tests.support.sleeper import sleeper

from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec

COLUMNS = ("id", "state", "use", "owner")


@pytest.fixture
def command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Command:
    isolated(monkeypatch, tmp_path / "data")
    return Command(capsys)


def test_engines_of_the_cluster_are_listed_beside_those_of_users(command: Command, tmp_path: Path) -> None:
    data = tmp_path / "data"
    with sleeper() as process:
        record = EngineRecord("of-ann", EngineSpec("local[2]", owner="ann"), "localhost", 1, process=process)
        EngineDirectory(data / "clusters" / "default").save(record)
        shared = dataclasses.replace(record, engine_id="of-users", spec=EngineSpec("local[2]"), shared=True)
        EngineDirectory(data).save(shared)
        listed = command("engine", "list", "--json").json
        assert [tuple(row[c] for c in COLUMNS) for row in listed] == [
            ("of-users", "starting or stuck", "all runs", None),
            ("of-ann", "starting or stuck", "cluster default", "ann"),
        ]
        rows = command("engine", "list").rows
        assert [row[0] for row in rows] == ["of-users", "of-ann"]
        assert rows[1][-1] == "ann"


def test_no_engine_at_all(command: Command) -> None:
    said = command("engine", "list")
    assert (said.code, said.out.startswith("No engines.")) == (0, True)
