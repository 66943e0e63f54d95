"""The rows that `firesteel run --show` prints, while what the job staged is being removed."""

from __future__ import annotations

import errno
import os
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow
import pyarrow.parquet as pq
import pytest

from firesteel.cli.display import Display, Quiet, TextDisplay
from firesteel.cli.preview import preview
from firesteel.jobgraph.model import JobGraph, Sink


def sink(path: Path) -> Sink:
    return Sink(name="o", input="a", format="parquet", path=str(path))


def test_rows_are_shown_though_a_staged_file_vanishes(tmp_path: Path) -> None:
    pq.write_table(pyarrow.table({"id": [1, 2, 3]}), tmp_path / "part-0.parquet")
    (tmp_path / "_staging").mkdir()
    for gone in (tmp_path / "_staging" / "part-1.parquet", tmp_path / "part-2.parquet"):
        gone.symlink_to(tmp_path / "gone")  # listed, and not there any more when it is looked at
    assert preview(sink(tmp_path), 2) == (["id"], [[1], [2]])


def test_output_that_goes_while_it_is_read_is_not_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def gone(*_: object, **__: object) -> None:
        raise FileNotFoundError(errno.ENOENT, "part-0.parquet")

    pq.write_table(pyarrow.table({"id": [1]}), tmp_path / "part-0.parquet")
    monkeypatch.setattr("pyarrow.dataset.dataset", gone)
    assert preview(sink(tmp_path), 2) == ([], [])


def display(error: OSError) -> tuple[Quiet, list[str]]:
    said: list[str] = []

    def show_outputs(*_: Any) -> None:
        raise error

    return Quiet(cast(Display, SimpleNamespace(show_outputs=show_outputs, note=said.append))), said


def test_command_whose_reader_has_gone_says_nothing_more(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("os.dup2", lambda *_: None)
    quiet, said = display(BrokenPipeError(errno.EPIPE, "Broken pipe"))
    quiet.show_outputs(cast(JobGraph, None), 1)
    quiet.note("FINISHED")
    assert said == []


def test_text_to_a_reader_that_has_gone_does_not_end_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    """`firesteel run … | head -1` ended with 0 while its job ran, and failed, unseen."""
    reading, writing = os.pipe()
    os.close(reading)
    with os.fdopen(writing, "w", buffering=1) as pipe, monkeypatch.context() as patched:
        patched.setattr("sys.stdout", pipe)
        quiet = Quiet(TextDisplay(cast(JobGraph, SimpleNamespace(sinks=())), "0" * 32))
        quiet.note("RUNNING")
        quiet.note("FINISHED")


def test_error_of_a_file_does_not_silence_the_command() -> None:
    quiet, said = display(FileNotFoundError(errno.ENOENT, "part-0.parquet"))
    with pytest.raises(FileNotFoundError):
        quiet.show_outputs(cast(JobGraph, None), 1)
    quiet.note("FINISHED")
    assert said == ["FINISHED"]
