"""`firesteel engine train` on a machine that is too busy: told in words, and nothing is left behind."""

from __future__ import annotations

import tempfile
from concurrent.futures import Future
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from firesteel.cli import training
from firesteel.cli.main import cli, main
from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineDirectory
from firesteel.errors import EngineStartError


class PoolWithoutEnd:
    """Its drivers never end."""

    def __init__(self, **_: Any) -> None: ...

    def __enter__(self) -> PoolWithoutEnd:
        return self

    def __exit__(self, *_: object) -> None: ...

    def spawn(self, *_: Any, **__: Any) -> Any:
        return SimpleNamespace(exited=Future())


def test_tour_that_does_not_end_is_told_and_its_engine_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ended: list[object] = []
    removed: list[str] = []
    scratch = tmp_path / "scratch"
    monkeypatch.setattr(training, "TOUR_SECONDS", 0.01)
    monkeypatch.setattr(training, "DriverPool", PoolWithoutEnd)
    monkeypatch.setattr(training, "current_archive", lambda _options: tmp_path / "cache" / "archive.jsa")
    monkeypatch.setattr(
        training, "start_engine", lambda *_, **__: SimpleNamespace(engine_id="e" * 16, process="process of the engine")
    )
    monkeypatch.setattr(training, "end", lambda process, grace: ended.append(process))
    monkeypatch.setattr(training, "remove", lambda _directory, engine_id: removed.append(engine_id))
    monkeypatch.setattr(tempfile, "mkdtemp", lambda prefix: scratch.mkdir() or str(scratch))  # type: ignore[func-returns-value]
    with pytest.raises(EngineStartError, match=r"the tour of Spark did not end within 0.01 s; try again when"):
        training.train(EngineDirectory(tmp_path / "engines"), LaunchOptions(cache_dir=tmp_path / "cache"))
    assert ended == ["process of the engine"]
    assert removed == ["e" * 16]
    assert not scratch.exists()


def test_error_of_the_system_without_a_text_has_its_name(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def late(**_: Any) -> None:
        raise TimeoutError

    monkeypatch.setattr(cli, "main", late)
    with pytest.raises(SystemExit) as ended:
        main(["list"])
    assert ended.value.code == 1
    assert capsys.readouterr().err == "error: TimeoutError\n"
