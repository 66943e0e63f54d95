"""Programs that ship with PySpark and need nothing from outside: what they are called with and what they print.

They read `data/...` relative to the working directory, and some leave `derby.log` or `spark-warehouse` there: run
them in a scratch directory after `link_data(directory)`. Programs that read `examples/src/main/resources` are not
here, because the wheel does not carry those files. What is expected was observed; where a program draws random
numbers, only what is certain is asked.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from firesteel.engines.java import spark_home

PROGRAMS = spark_home({}) / "examples" / "src" / "main" / "python"


@dataclass(frozen=True, slots=True)
class Example:
    program: str
    """Relative to PROGRAMS."""
    prints: str
    """A regular expression for `re.search` in its standard output."""
    seconds: int
    """How long it took with its own classic driver on two cores, or on a warm Spark Connect server: to choose by."""
    args: tuple[str, ...] = ()
    api: Literal["connect", "classic"] = "classic"
    rdd: bool = False
    """Works on RDDs."""

    @property
    def path(self) -> Path:
        return PROGRAMS / self.program

    def __str__(self) -> str:
        return self.program


def link_data(directory: Path) -> None:
    """Make the paths under `data/` that the programs read resolve in `directory`."""
    (directory / "data").symlink_to(spark_home({}) / "data")


EXAMPLES = [
    Example(
        "sql/arrow.py", r"a: double\nb: double\nc: double\n(.|\n)*Pandas DataFrame result statistics", 11, api="connect"
    ),
    Example("sql/udtf.py", r"\|num\|squared\|\n\+-+\+-+\+\n\|  1\|      1\|\n\|  2\|      4\|", 7, api="connect"),
    # Derby is among Spark's jars; the database lives in the memory of the driver or of the engine.
    Example(
        "sql/jdbc.py",
        r"(?=[\s\S]*\|  1\| foo\|)(?=[\s\S]*\|  2\| bar\|)",  # a table has no order
        2,
        args=("jdbc:derby:memory:firesteel;create=true",),
        api="connect",
    ),
    Example("pi.py", r"Pi is roughly 3\.1", 9, args=("2",), rdd=True),
    Example("wordcount.py", r"(?m)^z: 5$", 10, args=("data/mllib/sample_fpgrowth.txt",), rdd=True),
    Example("sort.py", r"(?m)\A(1\n){6}2\n2\n3\n3\n4\n4$", 9, args=("data/mllib/pagerank_data.txt",), rdd=True),
    Example("pagerank.py", r"1 has rank: 2\.483", 12, args=("data/mllib/pagerank_data.txt", "3"), rdd=True),
    Example(
        "kmeans.py", r"array\(\[9\.1, 9\.1, 9\.1\]\)", 11, args=("data/mllib/kmeans_data.txt", "2", "0.1"), rdd=True
    ),
    Example("als.py", r"Iteration 1:\s+RMSE: 0\.\d+", 8, args=("10", "20", "3", "2", "2"), rdd=True),
    Example("streaming/queue_stream.py", r"Time: .*\n-+\n(\(\d, 100\)\n){10}", 13, rdd=True),
    Example("mllib/correlations_example.py", r"Correlation is: 0\.85002", 11, rdd=True),
    Example("mllib/summary_statistics_example.py", r"\[  2\.  20\. 200\.\]", 8, rdd=True),
    Example("mllib/fpgrowth_example.py", r"FreqItemset\(items=\['z'\], freq=5\)", 7, rdd=True),
    Example("mllib/kernel_density_estimation_example.py", r"\[0\.04145944 0\.07902017 0\.0896292 \]", 6, rdd=True),
    Example("mllib/normalizer_example.py", r"data1:\n\(0\.0, SparseVector\(692, ", 10, rdd=True),
    Example("mllib/random_rdd_generation.py", r"Generated RDD of 10000 examples of length-2 vectors", 7, rdd=True),
    Example("mllib/sampled_rdds.py", r"RDD\.takeSample\(\): sample has 10 examples", 8, rdd=True),
    Example("mllib/svd_example.py", r"Singular values are: \[13\.0292755", 9, rdd=True),
    Example(
        "mllib/pca_rowmatrix_example.py", r"Projected Row Matrix of principal component:\n\[1\.64857", 10, rdd=True
    ),
    Example("mllib/hypothesis_testing_example.py", r"degrees of freedom = 4 \nstatistic = 0\.12(4999|5)", 10, rdd=True),
    Example("mllib/kmeans.py", r"Total Cost: 0\.1(1999|2)", 9, args=("data/mllib/kmeans_data.txt", "2"), rdd=True),
    Example("mllib/elementwise_product_example.py", r"\[0\.0,9\.2,18\.4\]", 10, rdd=True),
    Example("mllib/bisecting_k_means_example.py", r"Bisecting K-means Cost = 0\.1(1999|2)", 10, rdd=True),
    Example("ml/pipeline_example.py", r"\(5, l m n\) --> prob=\[0\.98\d+,.*\], prediction=0\.0", 26),
    Example("ml/tokenizer_example.py", r"\[i, wish, java, could, use, case, classes\]\|7 ", 15),
    Example("ml/n_gram_example.py", r"\[Hi I, I heard, heard about, about Spark\]", 13),
    Example("ml/kmeans_example.py", r"Silhouette with squared euclidean distance = 0\.99975", 12),
    Example("ml/correlation_example.py", r"Pearson correlation matrix:\nDenseMatrix\(\[\[1\.", 12),
    Example("ml/binarizer_example.py", r"\|  1\|    0\.8\|              1\.0\|", 9),
    Example("ml/sql_transformer.py", r"\|  2\|2\.0\|5\.0\|7\.0\|10\.0\|", 10),
    Example("ml/chi_square_test_example.py", r"degreesOfFreedom: \[2, 3\]\nstatistics: \[0\.75,1\.5\]", 10),
    Example("ml/vector_assembler_example.py", r"\[18\.0,1\.0,0\.0,10\.0,0\.5\]\|1\.0", 10),
]
