"""The commands on the pages of the examples, as they are written, and then once more."""

from __future__ import annotations

import re
import shlex
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from tests.cli.test_cli_run import Firesteel, commands, finish

if TYPE_CHECKING:
    from tests.conftest import Cluster
    from tests.examples.example_files import EXAMPLES, FOLDERS
else:
    from example_files import EXAMPLES, FOLDERS

pytestmark = [pytest.mark.spark, pytest.mark.slow]

SAMPLE = "orders"

ENDLESS = "clicks_live"


@pytest.fixture
def firesteel(cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Firesteel]:
    """The command, called from the root of a project that has the examples, none of which has run yet."""
    shutil.copytree(EXAMPLES, tmp_path / "examples", ignore=shutil.ignore_patterns("out", "__pycache__"))
    monkeypatch.chdir(tmp_path)
    with commands(cluster.configuration.data.dir) as made:
        yield made


def lines_of(folder: Path) -> list[list[str]]:
    page = (folder / "README.md").read_text("utf-8")
    return [shlex.split(line) for line in re.findall(r"^    ((?:firesteel|python) .+)$", page, re.MULTILINE)]


@pytest.mark.parametrize(
    "folder",
    [pytest.param(f, id=f.name, marks=[pytest.mark.sample] * (f.name == SAMPLE)) for f in FOLDERS if f.name != ENDLESS],
)
def test_commands_of_an_example_work_twice(firesteel: Firesteel, folder: Path) -> None:
    lines = lines_of(folder)
    assert any(program == "firesteel" for program, *_ in lines)
    for program, *args in [*lines, *lines]:
        if program == "python":
            subprocess.run([sys.executable, *args], check=True, timeout=60)
            continue
        code, out, err = finish(firesteel(*args), timeout=180)
        assert code == 0, f"firesteel {shlex.join(args)}\n{out}\n{err}"
        assert args[0] != "run" or "FINISHED" in out


def test_demo_works_twice(firesteel: Firesteel) -> None:
    """`make demo` as the Makefile has it, but for the class archive and the cluster of the demo."""
    recipe = subprocess.run(["make", "-n", "demo"], cwd=EXAMPLES.parent, check=True, capture_output=True, text=True)
    lines = [line for line in recipe.stdout.splitlines() if " examples/" in line]
    assert sum(" run examples/" in line for line in lines) == 2
    for line in [*lines, *lines]:
        before, _, args = line.partition("firesteel ")
        if not args:
            subprocess.run(before.replace(".venv/bin/python", sys.executable), shell=True, check=True, timeout=60)
            continue
        code, out, err = finish(firesteel(*shlex.split(args)), timeout=180)
        assert code == 0, f"{line}\n{out}\n{err}"
        assert "FINISHED" in out


def test_example_that_runs_until_ctrl_c_goes_on_when_it_is_run_again(firesteel: Firesteel) -> None:
    _, *args = lines_of(EXAMPLES / ENDLESS)[0]
    batches: list[int] = []
    for _ in range(2):
        child = firesteel(*args)
        assert child.stdout is not None
        batch = next((m for line in child.stdout if (m := re.search(r"all_clicks: batch (\d+)", line))), None)
        child.send_signal(signal.SIGINT)
        code, out, err = finish(child, timeout=180)
        assert batch is not None, f"{out}\n{err}"
        assert code in (0, 130), f"{out}\n{err}"
        batches.append(int(batch[1]))
    assert batches[1] > batches[0]
