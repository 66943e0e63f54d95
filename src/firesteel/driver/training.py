"""A short tour of Spark for an engine that records its class archive: the classes that jobs need, loaded once."""

from __future__ import annotations

import uuid
from pathlib import Path
from typing import Any

from firesteel.engines.record import EngineRecord
from firesteel.fs.files import read_json
from firesteel.spark_connect.session import EngineSession, quiet_client_logs


def main(args: dict[str, Any]) -> int:
    record = EngineRecord.from_json(read_json(Path(args["engine"])))
    scratch = Path(args["scratch"])
    quiet_client_logs()
    session = EngineSession(record.remote(str(uuid.uuid4())))
    spark = session.spark
    try:
        rows = spark.range(2000).selectExpr(
            "id", "id % 7 AS k", "cast(id AS string) AS s", "timestamp_seconds(id) AS ts"
        )
        for kind in ("parquet", "csv", "json"):
            path = str(scratch / kind)
            rows.write.mode("overwrite").format(kind).save(path)
            schema = "id BIGINT, k BIGINT, s STRING, ts TIMESTAMP"
            spark.read.schema(schema).format(kind).load(path).createOrReplaceTempView(f"t_{kind}")
        spark.sql(
            "SELECT a.k, count(*) n, sum(b.id) s, max(a.ts) m, row_number() OVER (ORDER BY a.k) r "
            "FROM t_parquet a JOIN t_csv b USING (id) WHERE a.id > 3 GROUP BY a.k ORDER BY n"
        ).write.mode("overwrite").partitionBy("k").parquet(str(scratch / "out"))
        stream = spark.readStream.schema("id BIGINT, k BIGINT, s STRING, ts TIMESTAMP").json(str(scratch / "json"))
        query = (
            stream.withWatermark("ts", "1 minute")
            .groupBy("k")
            .count()
            .writeStream.outputMode("update")
            .format("noop")
            .option("checkpointLocation", str(scratch / "checkpoint"))
            .trigger(availableNow=True)
            .start()
        )
        query.awaitTermination(60)
    finally:
        session.close()
    return 0
