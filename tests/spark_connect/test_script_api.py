from __future__ import annotations

import zipfile
from pathlib import Path
from textwrap import dedent
from typing import TYPE_CHECKING

import pytest

from firesteel.errors import InvalidPipelineError
from firesteel.spark_connect.script_api import ScriptNeeds, analyse_script

if TYPE_CHECKING:  # mypy sees the folders as packages, pytest puts each of them on the path
    from tests.spark_connect.pyspark_examples import EXAMPLES, PROGRAMS, Example
else:
    from pyspark_examples import EXAMPLES, PROGRAMS, Example


def analyse(directory: Path, source: str, **modules: str) -> ScriptNeeds:
    for name, text in modules.items():
        (directory / f"{name}.py").write_text(dedent(text))
    script = directory / "job.py"
    script.write_text(dedent(source))
    return analyse_script(script)


CONNECT = {
    "session and SQL": """
        from pyspark.sql import SparkSession
        spark = SparkSession.builder.appName("x").getOrCreate()
        spark.range(10).selectExpr("sum(id)").show()
        """,
    "master of the script's own": "SparkSession.builder.master('local[2]').getOrCreate()",
    "words in strings": "query = 'select rdd, sparkContext from SparkContext'",
    "words in comments": "x = 1  # spark.sparkContext.parallelize, df.rdd",
    "words in a docstring": "'''Uses SparkContext and df.rdd.'''",
    "a variable called rdd": "rdd = 3\nprint(rdd)",
    "an import left over": "from pyspark import SparkContext, SparkConf",
    "SparkConf alone": "from pyspark import SparkConf\nconf = SparkConf().set('a', 'b')",
    "annotations": """
        from pyspark import SparkContext, RDD
        def f(sc: SparkContext, *rows: RDD[int]) -> RDD: ...
        x: RDD
        """,
    "imports for the type checker": """
        import typing
        from typing import TYPE_CHECKING
        if TYPE_CHECKING:
            from pyspark.ml import Pipeline
        if typing.TYPE_CHECKING:
            import graphframes
        """,
    "structured streaming": """
        from pyspark.sql.streaming import StreamingQueryListener
        spark.readStream.format("rate").load().writeStream.foreachBatch(lambda df, n: df.show()).start()
        """,
    "pandas on Spark": "import pyspark.pandas as ps\nps.range(3).sum()",
    "functions with familiar names": """
        from pyspark.sql import functions as F
        df.join(F.broadcast(other)).foreach(print)
        df.union(df).checkpoint()
        """,
    "storage level": "from pyspark import StorageLevel, TaskContext\ndf.persist(StorageLevel.DISK_ONLY)",
    "someone else's RDD": "from mylib import RDD, Broadcast, Accumulator\nRDD(), Broadcast(), Accumulator()",
    "a class of the same name": "class SparkContext: ...\nSparkContext()",
    "py4j's exception": "from py4j.protocol import Py4JJavaError",
    "a module with a similar name": "import pyspark_mllib\nimport mllib",
    "an attribute that is only set": "class A:\n    def __init__(self):\n        self._sc = None",
    "sc as any other thing": "sc.score",
    "nothing": "",
}

CLASSIC = {
    "sparkContext": ("sc = spark.sparkContext", 1, "uses SparkContext (spark.sparkContext)"),
    "log level": ("spark.sparkContext.setLogLevel('WARN')", 1, "uses SparkContext (spark.sparkContext)"),
    "SparkContext": ("from pyspark import SparkContext\nSparkContext()", 2, "uses SparkContext (SparkContext)"),
    "renamed": ("from pyspark import SparkContext as SC\nSC.getOrCreate()", 2, "uses SparkContext (SC)"),
    "by module": ("import pyspark\npyspark.SparkContext()", 2, "uses SparkContext (pyspark.SparkContext)"),
    "by renamed module": ("import pyspark as p\np.SparkContext()", 2, "uses SparkContext (p.SparkContext)"),
    "by its own module": (
        "from pyspark.context import SparkContext\nSparkContext()",
        2,
        "uses SparkContext (SparkContext)",
    ),
    "star import": ("from pyspark import *\nclass P(AccumulatorParam): ...", 2, "uses accumulators (AccumulatorParam)"),
    "through a local module": ("from common import *\nSparkContext()", 2, "uses SparkContext (SparkContext)"),
    "rdd": ("df.select('a').rdd.map(f)", 1, "uses RDDs (df.select(...).rdd)"),
    "rdd over lines": ("(df\n  .select('a')\n  .rdd)", 3, "uses RDDs (df.select(...).rdd)"),
    "toJSON": ("df.toJSON().first()", 1, "uses RDDs (df.toJSON)"),
    "inside a function": ("def f(df):\n    return df.rdd", 2, "uses RDDs (df.rdd)"),
    "inside a lambda in an f-string": ("f'{(lambda d: d.rdd)(df)}'", 1, "uses RDDs (d.rdd)"),
    "given an sc": ("def f(sc):\n    return sc.parallelize([1])", 2, "uses SparkContext (sc.parallelize)"),
    "ml": ("from pyspark.ml.feature import Tokenizer", 1, "imports pyspark.ml.feature"),
    "ml from the package": ("from pyspark import ml", 1, "imports pyspark.ml"),
    "mllib": ("import pyspark.mllib.clustering as c", 1, "imports pyspark.mllib.clustering"),
    "DStreams": ("from pyspark.streaming import StreamingContext", 1, "imports pyspark.streaming"),
    "SQLContext": ("from pyspark.sql import SQLContext\nSQLContext(x)", 2, "uses SQLContext (SQLContext)"),
    "HiveContext": ("import pyspark.sql as s\ns.HiveContext(x)", 2, "uses HiveContext (s.HiveContext)"),
    "jvm": ("spark._jvm.java.lang.System.gc()", 1, "uses the driver's JVM (spark._jvm)"),
    "jsc": ("x._jsc.hadoopConfiguration()", 1, "uses the driver's JVM (x._jsc)"),
    "private context": ("spark._sc.addFile('x')", 1, "uses SparkContext (spark._sc)"),
    "gateway": ("from py4j.java_gateway import java_import", 1, "imports py4j.java_gateway"),
    "Hive": ("b.enableHiveSupport().getOrCreate()", 1, "uses Hive support (b.enableHiveSupport)"),
    "a library that needs the JVM": ("from graphframes import GraphFrame", 1, "imports graphframes"),
    "import inside a function": ("def f():\n    import pyspark.ml", 2, "imports pyspark.ml"),
    "not under TYPE_CHECKING": ("if TYPE_CHECKING:\n    pass\nelse:\n    import pyspark.ml", 4, "imports pyspark.ml"),
}


@pytest.mark.parametrize("source", CONNECT.values(), ids=CONNECT)
def test_connect_is_enough(tmp_path: Path, source: str) -> None:
    assert analyse(tmp_path, source) == ScriptNeeds(api="connect", reasons=())


@pytest.mark.parametrize(("source", "line", "what"), CLASSIC.values(), ids=CLASSIC)
def test_classic_is_needed(tmp_path: Path, source: str, line: int, what: str) -> None:
    needs = analyse(tmp_path, source)
    assert needs.api == "classic"
    assert [(reason.line, reason.what) for reason in needs.reasons] == [(line, what)]


def test_reason_reads_like_a_compiler_message(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("jobs").mkdir()
    Path("jobs/pi.py").write_text("\n\nsc = spark.sparkContext\n")
    (reason,) = analyse_script(Path("jobs/pi.py")).reasons
    assert str(reason) == "jobs/pi.py:3: uses SparkContext (spark.sparkContext)"
    assert reason == ("jobs/pi.py", 3, "uses SparkContext (spark.sparkContext)")


def test_every_place_is_named_once_in_order(tmp_path: Path) -> None:
    needs = analyse(tmp_path, "import pyspark.ml\na.rdd; a.rdd; b.rdd\nx._jvm")
    assert [(reason.line, reason.what) for reason in needs.reasons] == [
        (1, "imports pyspark.ml"),
        (2, "uses RDDs (a.rdd)"),
        (2, "uses RDDs (b.rdd)"),
        (3, "uses the driver's JVM (x._jvm)"),
    ]


def test_long_expressions_are_cut_from_the_left(tmp_path: Path) -> None:
    (reason,) = analyse(tmp_path, f"df{'.withColumn(1)' * 20}.rdd").reasons
    assert reason.what.startswith("uses RDDs (...withColumn(...)")
    assert reason.what.endswith("withColumn(...).rdd)")
    assert len(reason.what) < 90


def test_modules_in_an_archive_count_when_they_are_imported(tmp_path: Path) -> None:
    """As the modules beside a script come to a cluster elsewhere."""
    archive = tmp_path / "main-modules.zip"
    with zipfile.ZipFile(archive, "w") as content:
        content.writestr("helper.py", "import deep.er\n")
        content.writestr("deep/__init__.py", "")
        content.writestr("deep/er.py", "def f(spark):\n    return spark.sparkContext\n")
        content.writestr("unused.py", "import pyspark.ml\n")
        content.writestr("broken.py", "def")
    script = tmp_path / "job" / "main.py"
    script.parent.mkdir()
    script.write_text("import helper\n")
    needs = analyse_script(script, [archive])
    assert needs.api == "classic"
    assert [str(r) for r in needs.reasons] == [f"{archive}/deep/er.py:2: uses SparkContext (spark.sparkContext)"]
    script.write_text("import os\n")
    assert analyse_script(script, [archive]).api == "connect"
    archive.write_bytes(b"no zip")
    assert analyse_script(script, [archive]).api == "connect"


def test_archive_that_unpacks_to_more_than_anybody_writes_is_not_read(tmp_path: Path) -> None:
    archive = tmp_path / "bomb.zip"
    with zipfile.ZipFile(archive, "w", zipfile.ZIP_DEFLATED) as content:
        content.writestr("bomb.py", b"import pyspark.ml\n" + b"#" * (40 << 20))
    script = tmp_path / "main.py"
    script.write_text("import bomb\n")
    assert analyse_script(script, [archive]).api == "connect"


def test_program_is_not_executed(tmp_path: Path) -> None:
    marker = tmp_path / "executed"
    analyse(tmp_path, f"import helper\nopen({str(marker)!r}, 'w')", helper=f"open({str(marker)!r}, 'w')")
    assert not marker.exists()


class TestImports:
    def test_module_next_to_the_script(self, tmp_path: Path) -> None:
        (reason,) = analyse(tmp_path, "import helper", helper="\ndef f(df): return df.rdd").reasons
        assert (reason.file, reason.line) == (str(tmp_path / "helper.py"), 2)

    def test_modules_of_modules_and_circles(self, tmp_path: Path) -> None:
        needs = analyse(tmp_path, "import one", one="from two import f", two="import one\nimport job\nx.rdd")
        assert [reason.file for reason in needs.reasons] == [str(tmp_path / "two.py")]

    def test_import_only_for_the_type_checker_is_not_followed(self, tmp_path: Path) -> None:
        assert analyse(tmp_path, "if TYPE_CHECKING:\n    import helper", helper="x.rdd").api == "connect"

    def test_modules_that_are_not_imported_do_not_count(self, tmp_path: Path) -> None:
        assert analyse(tmp_path, "import json", helper="x.rdd").api == "connect"

    @pytest.mark.parametrize(
        "statement",
        [
            "import lib.deep.jvm",
            "import lib.deep.jvm as j",
            "from lib.deep import jvm",
            "from lib.deep.jvm import f",
            "from lib.deep.jvm import *",
            "from lib import relative",
            "from lib import upward",
        ],
    )
    def test_packages(self, tmp_path: Path, statement: str) -> None:
        deep = tmp_path / "lib" / "deep"
        deep.mkdir(parents=True)
        (deep / "__init__.py").touch()
        (deep / "jvm.py").write_text("def f(): return spark._jvm")
        (deep / "up.py").write_text("from ..deep import jvm")
        (tmp_path / "lib" / "__init__.py").touch()
        (tmp_path / "lib" / "relative.py").write_text("from .deep.jvm import f")
        (tmp_path / "lib" / "upward.py").write_text("from .deep.up import anything")
        (reason,) = analyse(tmp_path, statement).reasons
        assert reason.file == str(deep / "jvm.py")

    def test_the_package_itself_is_executed_too(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "__init__.py").write_text("import pyspark.ml")
        (tmp_path / "lib" / "plain.py").touch()
        assert analyse(tmp_path, "from lib import plain").api == "classic"

    def test_package_without_init(self, tmp_path: Path) -> None:
        (tmp_path / "lib").mkdir()
        (tmp_path / "lib" / "jvm.py").write_text("x.rdd")
        assert analyse(tmp_path, "import lib.jvm").api == "classic"

    def test_search_directories_and_files(self, tmp_path: Path) -> None:
        (tmp_path / "main").mkdir()
        (tmp_path / "more").mkdir()
        script, module, single = tmp_path / "main" / "job.py", tmp_path / "more" / "helper.py", tmp_path / "single.py"
        script.write_text("import helper, single")
        module.write_text("a.rdd")
        single.write_text("b.rdd")
        assert analyse_script(script).api == "connect"
        assert [r.file for r in analyse_script(script, [tmp_path / "more"]).reasons] == [str(module)]
        assert [r.file for r in analyse_script(script, [single]).reasons] == [str(single)]

    def test_the_scripts_own_directory_comes_first(self, tmp_path: Path) -> None:
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "helper.py").write_text("x.rdd")
        (tmp_path / "helper.py").touch()
        (tmp_path / "job.py").write_text("import helper")
        assert analyse_script(tmp_path / "job.py", [tmp_path / "more"]).api == "connect"

    def test_a_plain_folder_does_not_hide_a_module(self, tmp_path: Path) -> None:
        (tmp_path / "helper").mkdir()
        (tmp_path / "more").mkdir()
        (tmp_path / "more" / "helper.py").write_text("x.rdd")
        (tmp_path / "job.py").write_text("import helper")
        assert analyse_script(tmp_path / "job.py", [tmp_path / "more"]).api == "classic"


class TestUnreadable:
    def test_syntax_errors_of_all_files_with_their_lines(self, tmp_path: Path) -> None:
        (tmp_path / "job.py").write_text("import one, two\n")
        (tmp_path / "one.py").write_text("x = 1\nif x\n    pass\n")
        (tmp_path / "two.py").write_text("def f(:\n")
        with pytest.raises(InvalidPipelineError) as error:
            analyse_script(tmp_path / "job.py")
        first, second = error.value.problems
        assert (first.file, first.line) == (str(tmp_path / "one.py"), 2)
        assert first.message == "this is not valid Python: expected ':'"
        assert (second.file, second.line) == (str(tmp_path / "two.py"), 1)

    def test_missing_script(self, tmp_path: Path) -> None:
        with pytest.raises(InvalidPipelineError, match=r"job\.py: cannot read the script: No such file"):
            analyse_script(tmp_path / "job.py")

    @pytest.mark.parametrize("content", [b"\x00\x01", b"x = '\xff\xfe'"])
    def test_binary_file(self, tmp_path: Path, content: bytes) -> None:
        (tmp_path / "job.py").write_bytes(content)
        with pytest.raises(InvalidPipelineError, match=r"job\.py:.*not"):
            analyse_script(tmp_path / "job.py")

    def test_other_encodings_are_read(self, tmp_path: Path) -> None:
        (tmp_path / "job.py").write_bytes("# -*- coding: latin-1 -*-\nx = 'é'\ndf.rdd".encode("latin-1"))
        assert analyse_script(tmp_path / "job.py").reasons[0].line == 3

    def test_doubtful_escapes_warn_nobody(self, tmp_path: Path) -> None:
        assert analyse(tmp_path, r"pattern = '\d'").api == "connect"

    def test_very_deep_code_gets_the_driver_that_runs_everything(self, tmp_path: Path) -> None:
        needs = analyse(tmp_path, "x = " + "+".join(["1"] * 100_000))
        assert needs.api == "classic"


VERDICTS = {
    "pi.py": "classic",
    "wordcount.py": "classic",
    "status_api_demo.py": "classic",
    "ml/pipeline_example.py": "classic",
    "mllib/k_means_example.py": "classic",
    "streaming/queue_stream.py": "classic",
    "sql/basic.py": "classic",
    "sql/hive.py": "classic",
    "sql/arrow.py": "connect",
    "sql/udtf.py": "connect",
    "sql/jdbc.py": "connect",
    "sql/streaming/structured_network_wordcount.py": "connect",
    "sql/streaming/structured_kafka_wordcount.py": "connect",
}


@pytest.mark.parametrize("example", EXAMPLES, ids=str)
def test_examples_that_other_tests_run(example: Example) -> None:
    needs = analyse_script(example.path)
    assert needs.api == example.api
    assert not example.rdd or needs.reasons


def test_enough_examples_of_each_kind() -> None:
    assert len({example.program for example in EXAMPLES}) == len(EXAMPLES) >= 20
    assert sum(example.rdd for example in EXAMPLES) >= 8
    assert {example.api for example in EXAMPLES} == {"classic", "connect"}


def test_sparks_own_examples() -> None:
    found = {str(file.relative_to(PROGRAMS)): analyse_script(file).api for file in PROGRAMS.rglob("*.py")}
    assert {name: found[name] for name in VERDICTS} == VERDICTS
    assert len(found) >= 140
    in_classic_folders = {api for name, api in found.items() if name.startswith("ml") and "__init__" not in name}
    assert in_classic_folders == {"classic"}
