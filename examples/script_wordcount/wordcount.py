"""The most frequent words of a text. A plain PySpark program: it knows nothing of where it runs.

firesteel run examples/script_wordcount/wordcount.py
firesteel run examples/script_wordcount/wordcount.py --top 3 --min-length 5
"""

import argparse
from pathlib import Path

from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812  as everybody calls it

HERE = Path(__file__).resolve().parent


def main() -> None:
    parser = argparse.ArgumentParser(description="The most frequent words of a text.")
    parser.add_argument("--input", type=Path, default=HERE / "data" / "text.txt")
    parser.add_argument("--output", type=Path, default=HERE / "out" / "words")
    parser.add_argument("--top", type=int, default=10)
    parser.add_argument("--min-length", type=int, default=1)
    args = parser.parse_args()

    spark = SparkSession.builder.appName("wordcount").getOrCreate()
    lines = spark.read.text(str(args.input))
    words = lines.select(F.explode(F.split(F.lower("value"), r"[^a-z]+")).alias("word"))
    counts = (
        words.where(F.length("word") >= max(args.min_length, 1))
        .groupBy("word")
        .count()
        .orderBy(F.desc("count"), "word")
        .limit(args.top)
    )
    counts.write.mode("overwrite").json(str(args.output))
    for row in counts.collect():
        print(f"{row['count']:6}  {row['word']}")


if __name__ == "__main__":
    main()
