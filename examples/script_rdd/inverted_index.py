"""Which documents mention a word. A plain PySpark program with RDDs, a broadcast variable and an accumulator.

firesteel run examples/script_rdd/inverted_index.py
firesteel run examples/script_rdd/inverted_index.py --word ember
"""

import argparse
import re
from pathlib import Path

from pyspark.sql import SparkSession

HERE = Path(__file__).resolve().parent
STOP_WORDS = {"the", "a", "and", "of", "in", "on", "with", "from"}


def main() -> None:
    parser = argparse.ArgumentParser(description="Which documents mention a word.")
    parser.add_argument("--input", type=Path, default=HERE / "data" / "documents")
    parser.add_argument("--output", type=Path, default=HERE / "out" / "index")
    parser.add_argument("--word", default="flint", help="the word to print")
    args = parser.parse_args()

    spark = SparkSession.builder.appName("inverted_index").getOrCreate()
    sc = spark.sparkContext
    ignored = sc.broadcast(STOP_WORDS)
    seen = sc.accumulator(0)

    def words(document: tuple[str, str]) -> list[tuple[str, str]]:
        path, text = document
        found = re.findall(r"[a-z]+", text.lower())
        seen.add(len(found))
        return [(word, Path(path).stem) for word in found if word not in ignored.value]

    index = (
        sc.wholeTextFiles(str(args.input)).flatMap(words).distinct().groupByKey().mapValues(sorted).sortByKey().cache()
    )
    print(f"{index.count()} words in {len(index.flatMap(lambda entry: entry[1]).distinct().collect())} documents")
    print(f"{seen.value} words read")
    print(f"{args.word}: {', '.join(dict(index.collect()).get(args.word, ['nowhere']))}")
    spark.createDataFrame(index, "word STRING, documents ARRAY<STRING>").write.mode("overwrite").json(str(args.output))
    spark.stop()


if __name__ == "__main__":
    main()
