"""Pure parts of the engines: settings, properties files, command lines, records."""

from __future__ import annotations

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from firesteel.engines import command
from firesteel.engines.java import find_java
from firesteel.engines.launcher import attach, engine_environment
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.processes import ProcessIdentity

RECORD = EngineRecord(
    "e1", EngineSpec("local[2]", spark=(("spark.a", "1"),)), "localhost", 15002, "tok", 4040, "c2VjcmV0"
)


@pytest.mark.parametrize(
    ("master", "cores"), [("local", 1), ("local[3]", 3), ("local[2, 4]", 2), ("spark://h:7077", 0), ("yarn", 0)]
)
def test_local_cores(master: str, cores: int) -> None:
    assert command.local_cores(master) == cores


def test_what_must_hold_wins_over_the_users_settings_which_win_over_ours() -> None:
    spec = EngineSpec(
        "local[2]", spark=(("spark.scheduler.mode", "FIFO"), ("spark.connect.grpc.binding.address", "0.0.0.0"))
    )
    made = command.engine_settings(replace(RECORD, spec=spec), work_dir=Path("/w"), python="py", ui=True)
    assert made["spark.scheduler.mode"] == "FIFO"
    assert made["spark.connect.grpc.binding.address"] == "127.0.0.1"
    assert made["spark.sql.streaming.stopActiveRunOnRestart"] == "false"


def test_secrets_are_in_the_private_file_never_in_argv() -> None:
    """S27."""
    argv = command.submit_command(
        java=Path("/j/bin/java"),
        module_options=[],
        class_path=[Path("/s/a.jar")],
        spec=replace(RECORD.spec, jvm_options=("-Dpassword=canary",)),
        main=command.CONNECT_SERVER,
        properties_file=Path("/w/spark.properties"),
        log4j_file=Path("/w/log4j2.properties"),
        options_file=Path("/w/jvm.options"),
        archive_options=[],
        temporary=Path("/w/work/tmp"),
    )
    assert not any(RECORD.token in a or RECORD.ui_secret in a for a in argv)
    assert "@/w/jvm.options" in argv
    assert not any("canary" in a for a in argv)
    assert RECORD.token not in repr(RECORD)
    assert RECORD.ui_secret not in repr(RECORD)


def test_properties_escape_what_java_would_read_otherwise() -> None:
    text = command.properties({"spark.a b": " x=1\\n", "spark.c": "two\nlines", "spark.d:e": "ü"})
    assert text == "spark.a\\ b=\\ x=1\\\\n\nspark.c=two\\nlines\nspark.d\\:e=ü\n"


def test_a_jvm_reads_its_options_from_a_file_as_they_were_written(tmp_path: Path) -> None:
    """S40: among its arguments they would be there for all to see."""
    written = ["-Da=two words", "-Db=\"quoted\" 'and' #this", "-Dc=back\\slash", "-Dd=line\nbreak", "-De=$HOME @x"]
    (tmp_path / "jvm.options").write_text(command.argument_file(written))
    java = find_java().executable
    asked = [str(java), f"@{tmp_path / 'jvm.options'}", "-XshowSettings:properties", "-version"]
    done = subprocess.run(asked, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=True, timeout=60)
    for line in ("a = two words", "b = \"quoted\" 'and' #this", "c = back\\slash", "e = $HOME @x"):
        assert f"    {line}\n" in done.stdout, done.stdout


def test_environment_drops_what_would_steer_spark() -> None:
    made = engine_environment(
        {"SPARK_HOME": "/s"}, {"SPARK_REMOTE": "sc://x", "PYSPARK_SUBMIT_ARGS": "y", "HOME": "/h"}
    )
    assert made == {"HOME": "/h", "PYTHONHASHSEED": "0", "SPARK_HOME": "/s"}


def test_record_round_trip_and_privacy(tmp_path: Path) -> None:
    directory = EngineDirectory(tmp_path / "data")
    record = replace(RECORD, process=ProcessIdentity(1, "5"), shared=True)
    directory.save(record)
    assert directory.load("e1") == record
    assert directory.all() == [record]
    assert directory.alive() == []
    assert (directory.home("e1") / "engine.json").stat().st_mode & 0o077 == 0
    assert directory.home("e1").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("text", ["", "{", '{"engine_id": 1}', "[]"])
def test_a_torn_record_is_no_engine(tmp_path: Path, text: str) -> None:
    directory = EngineDirectory(tmp_path)
    directory.save(RECORD)
    (directory.home("e1") / "engine.json").write_text(text)
    assert directory.all() == []


def test_attach_takes_a_connect_url() -> None:
    engine = attach("sc://spark.example:15009", token="t")
    assert (engine.host, engine.port, engine.token, engine.spec.attached) == ("spark.example", 15009, "t", True)
    assert engine.remote("s1") == "sc://spark.example:15009/;user_id=firesteel;session_id=s1;token=t"
