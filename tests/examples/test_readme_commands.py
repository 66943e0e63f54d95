"""The quick start of the README, command by command, as it is written: with a job id and a path of this run in the places of
those on the page."""

from __future__ import annotations

import json
import re
import shlex
import signal
import subprocess
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.test_cli_run import Firesteel, commands, finish

if TYPE_CHECKING:
    from tests.conftest import Cluster

pytestmark = [pytest.mark.spark, pytest.mark.slow]

README = (Path(__file__).parents[2] / "README.md").read_text("utf-8")
PIPELINE, BLOCK = re.findall(r"^```(?:yaml|sh)\n(.*?)^```$", README, re.MULTILINE | re.DOTALL)[:2]
LINES = [shlex.split(line, comments=True)[1:] for line in BLOCK.splitlines()]
SHOWN_ID = "954fab10"
FOLLOWING = ("wait", "logs")
"""They end when the job does."""
OTHERWISE = ["run clicks.yaml", f"resume {SHOWN_ID}"]
"""Instead of `run -d`, and instead of `run -s`: two jobs cannot write to one output."""
REPORT = "import argparse\np = argparse.ArgumentParser()\np.add_argument('--day')\nprint('of', p.parse_args().day)\n"


def test_quick_start_works_as_it_is_written(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("clicks.yaml").write_text(PIPELINE)
    Path("report.py").write_text(REPORT)
    Path("data/clicks").mkdir(parents=True)
    Path("data/clicks/1.json").write_text(json.dumps({"user": "ada", "page": "shop", "at": "2026-03-01T10:00:00Z"}))
    assert all(line.split() in LINES for line in OTHERWISE)
    job, savepoint, following = "", "", []
    with commands(cluster.configuration.data.dir) as firesteel:
        for line in LINES:
            if " ".join(line) in OTHERWISE:
                continue
            args = [{SHOWN_ID: job[:8], "PATH": savepoint}.get(word, word) for word in line]
            if args[0] in FOLLOWING:
                following.append(firesteel(*args))
                continue
            if "-s" in args:
                _watched(firesteel, args)
                continue
            code, out, err = finish(firesteel(*args), timeout=180)
            assert code == 0, f"firesteel {shlex.join(args)}\n{out}\n{err}"
            if "-d" in args:
                job = re.findall(r"JobID (\w+)", out)[0]
                _wait_for_a_batch(firesteel, job)
            if args[0] == "stop":
                savepoint = re.findall(r"Path: (\S+)", out)[0]
                ends = [finish(child, timeout=180) for child in following]
                assert [code for code, _, _ in ends] == [0] * len(FOLLOWING), ends
            if args[0] == "run" and "report.py" in args:
                assert "of 2026-03-01" in out
    assert job
    assert savepoint


def _wait_for_a_batch(firesteel: Firesteel, job: str) -> None:
    child = firesteel("events", "-f", job, "--json")
    assert child.stdout is not None
    assert any('"batch"' in line for line in child.stdout)
    child.terminate()
    child.communicate(timeout=60)


def _watched(firesteel: Firesteel, args: list[str]) -> None:
    """A command that stays with its stream: until it runs, then Ctrl-C, which stops it."""
    child: subprocess.Popen[str] = firesteel(*args)
    assert child.stdout is not None
    seen = next((line for line in child.stdout if "running" in line), None)
    child.send_signal(signal.SIGINT)
    code, out, err = finish(child, timeout=180)
    assert seen is not None, f"{out}\n{err}"
    assert code in (0, 130), f"{out}\n{err}"
