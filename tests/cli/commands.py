"""Calling `firesteel`, here or in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from firesteel.cli.main import main


def isolated(monkeypatch: pytest.MonkeyPatch, data_dir: Path) -> None:
    """No settings of this machine, and a data directory that nobody else uses."""
    for name in [n for n in os.environ if n.startswith("FIRESTEEL_")]:
        monkeypatch.delenv(name)
    data_dir.mkdir()
    monkeypatch.setenv("FIRESTEEL_DATA_DIR", str(data_dir))
    monkeypatch.setenv("TZ", "UTC")
    monkeypatch.chdir(data_dir)


@dataclass(frozen=True)
class Said:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        assert self.code == 0, self.err
        return json.loads(self.out)

    @property
    def lines(self) -> list[Any]:
        """Of output that is an object a line."""
        return [json.loads(line) for line in self.out.splitlines()]

    @property
    def rows(self) -> list[list[str]]:
        """Of a table: the words of each line below its head."""
        return [line.split() for line in self.out.splitlines()[1:]]


class Command:
    """`firesteel`, as far as exit codes and streams."""

    def __init__(self, captured: pytest.CaptureFixture[str]) -> None:
        self._captured = captured

    def __call__(self, *args: str) -> Said:
        self._captured.readouterr()
        with pytest.raises(SystemExit) as ended:
            main(args)
        out, err = self._captured.readouterr()
        assert isinstance(ended.value.code, int)
        return Said(ended.value.code, out, err)


def started(*args: str) -> subprocess.Popen[str]:
    """The command in a process of its own, for what needs one: signals, and pipes that break."""
    # Unbuffered, a write of which a broken pipe took a part only counts as done.
    environment = {k: v for k, v in os.environ.items() if k != "PYTHONUNBUFFERED"}
    return subprocess.Popen(
        [sys.executable, "-c", "from firesteel.cli.main import main; main()", *args],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment,
    )


def overview(
    job_id: str, name: str = "etl", state: str = "RUNNING", start: int = 1_000_000, **more: Any
) -> dict[str, Any]:
    """A line of `/jobs/list`."""
    row = {"id": job_id, "name": name, "mode": "batch", "kind": "batch", "status": state, "owner": "", "ended": None}
    return {**row, "submitted": start, "changed": start, "duration": 1000, "attempt": 1, "restarts": 0, **more}
