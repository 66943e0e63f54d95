"""`firesteel savepoint check`: a verdict before anything is stopped or started, and no cluster for it."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from tests.cli.commands import Command
from tests.savepoint.saved_counts import OTHER, counts, savepoint

from firesteel.cli import exit_codes


@pytest.fixture
def path(tmp_path: Path) -> str:
    return savepoint(tmp_path / "savepoint", "1" * 32)


def written(tmp_path: Path, query: str | None = None) -> str:
    file = tmp_path / "new.json"
    file.write_text(json.dumps(counts(query) if query else counts()))
    return str(file)


def test_same_pipeline_is_compatible(command: Command, path: str, tmp_path: Path) -> None:
    said = command("savepoint", "check", path, written(tmp_path))
    assert (said.code, said.out) == (exit_codes.OK, "compatible\n")


def test_changed_key_is_not_compatible_and_the_code_says_so(command: Command, path: str, tmp_path: Path) -> None:
    said = command("savepoint", "check", path, written(tmp_path, OTHER))
    assert said.code == exit_codes.FAILED
    first, reason = said.out.splitlines()
    assert first == "not compatible"
    assert reason.startswith("  not compatible: counts: it goes by window(ts, '1 minute'), user")
    answer = json.loads(command("savepoint", "check", path, written(tmp_path, OTHER), "--json").out)
    assert answer["verdict"] == "not compatible"
    assert answer["findings"][0]["vertex"] == "counts"


def test_place_without_a_savepoint_is_an_error(command: Command, tmp_path: Path) -> None:
    said = command("savepoint", "check", str(tmp_path / "nowhere"), written(tmp_path))
    assert said.code == exit_codes.FAILED
    assert "nowhere" in said.err
