"""Packages that an engine fetches within its sandbox."""

from __future__ import annotations

from pathlib import Path

from firesteel.engines.packages import IVY, ivy_settings

KAFKA = {"spark.jars.packages": "org.apache.spark:spark-sql-kafka-0-10_2.13:4.3.0"}


def test_directory_of_the_user_is_made_before_the_engine_is_confined(tmp_path: Path) -> None:
    assert ivy_settings(KAFKA, trusted=True, home=tmp_path, work=tmp_path / "work") == {}
    assert (tmp_path / IVY).is_dir()
    assert ivy_settings(KAFKA, trusted=True, home=tmp_path, work=tmp_path / "work") == {}


def test_engine_of_another_owner_has_one_of_its_own(tmp_path: Path) -> None:
    made = ivy_settings(KAFKA, trusted=False, home=tmp_path, work=tmp_path / "work")
    assert made == {"spark.jars.ivy": str(tmp_path / "work" / "ivy")}
    assert not (tmp_path / IVY).exists()


def test_without_packages_or_with_a_place_that_somebody_chose_nothing_is_done(tmp_path: Path) -> None:
    for settings in ({}, {**KAFKA, "spark.jars.ivy": "/ivy"}):
        assert ivy_settings(settings, trusted=False, home=tmp_path, work=tmp_path) == {}
    assert list(tmp_path.iterdir()) == []


def test_home_that_cannot_be_written_is_left_to_spark(tmp_path: Path) -> None:
    (tmp_path / IVY).write_text("a file")
    assert ivy_settings(KAFKA, trusted=True, home=tmp_path, work=tmp_path) == {}
