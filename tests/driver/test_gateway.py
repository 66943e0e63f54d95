"""The JVM of a classic driver lives as long as somebody holds its input, and no longer."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.attempts.gateway_home import connection
from firesteel.config import Configuration
from firesteel.engines.record import EngineSpec
from firesteel.errors import EngineStartError
from firesteel.processes import ProcessIdentity
from firesteel.worker.gateway import start_gateway
from firesteel.worker.launch_options import launch_options

pytestmark = [pytest.mark.spark, pytest.mark.slow]

KEEPER = """
import sys
from pathlib import Path
from firesteel.worker.gateway import start_gateway
from firesteel.engines.launcher import LaunchOptions
from firesteel.engines.record import EngineSpec
made = start_gateway(Path(sys.argv[1]), EngineSpec("local[1]"), LaunchOptions(Path(sys.argv[2])), app_name="x")
print(made.process.pid, flush=True)
import time; time.sleep(600)
"""


@pytest.mark.parametrize("when", ["at once", "once it waits"])
def test_waiting_jvm_goes_when_its_keeper_is_killed(configuration: Configuration, tmp_path: Path, when: str) -> None:
    home = tmp_path / "jvm"
    keeper = subprocess.Popen(
        [sys.executable, "-c", KEEPER, str(home), str(configuration.data.cache_dir)], stdout=subprocess.PIPE, text=True
    )
    assert keeper.stdout is not None
    jvm = ProcessIdentity.of(int(keeper.stdout.readline()))
    assert jvm is not None
    if when != "at once":
        connection(home, jvm, 60)
    keeper.kill()
    keeper.wait()
    keeper.stdout.close()
    assert jvm.wait(30)


def test_jvm_that_cannot_start_says_why(configuration: Configuration, tmp_path: Path) -> None:
    spec = EngineSpec("local[1]", jvm_options=("-XX:NoSuchOption",))

    def connect() -> None:
        made = start_gateway(tmp_path / "jvm", spec, launch_options(configuration), app_name="x")
        try:
            connection(made.home, made.process, 30)
        finally:
            made.stop(grace=5)

    # By the start itself, when the JVM has ended already.
    with pytest.raises(EngineStartError, match="NoSuchOption"):
        connect()
