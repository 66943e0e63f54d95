"""What people get to read when a pipeline is wrong: one table of broken files and their full messages."""

# ruff: noqa: E501  messages stand on one line, as people read them

from __future__ import annotations

import os
from pathlib import Path
from textwrap import dedent

import pytest

from firesteel.errors import InvalidPipelineError
from firesteel.jobgraph.load import load_pipeline

SOURCE = "  - {name: orders, kind: source, format: csv, path: in, schema: 'id BIGINT, paid BOOLEAN'}\n"
QUERY = "  - {name: paid, kind: sql, query: SELECT * FROM orders WHERE paid}\n"
SINK = "  - {name: out, kind: sink, input: paid, format: parquet, path: out}\n"

MODULES = {
    "cleaning.py": """
        from pyspark.sql import DataFrame

        def clean(orders: DataFrame, *, strict=False): ...
        def join(spark, left, right, how): ...
        def save(batch_df): ...
        LATER = object()
    """,
    "broken.py": "def clean(:\n",
}

YAML: dict[str, tuple[str, list[str]]] = {
    # reading
    "empty file": (
        "",
        [
            "pipeline.yaml: the file is empty — write at least name and vertices",
        ],
    ),
    "not a mapping": (
        "- a\n- b\n",
        [
            "pipeline.yaml:1: a pipeline is a mapping of fields — begin with 'name: ...' and 'vertices:'",
        ],
    ),
    "not yaml": (
        "name: a\nvertices: [\n",
        [
            "pipeline.yaml:3: this is not YAML: expected the node content, but found '<stream end>' — fix the syntax; text with ':' or '#' in it needs quotes",
        ],
    ),
    "tab": (
        "name: a\nvertices:\n\t- x\n",
        [
            "pipeline.yaml:3: this is not YAML: found character '\\t' that cannot start any token — indent with spaces",
        ],
    ),
    "key written twice": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK + "name: b\n",
        [
            "pipeline.yaml:6: field 'name': is written twice, first on line 1 — keep one of them",
        ],
    ),
    "key written twice in a vertex": (
        """
        name: a
        vertices:
          - name: orders
            kind: source
            format: csv
            format: json
            path: in
          - {name: out, kind: sink, input: orders, format: noop}
        """,
        [
            "pipeline.yaml:7: vertex 'orders', field 'format': is written twice, first on line 6 — keep one of them",
        ],
    ),
    "unknown top field": (
        "nmae: a\nname: b\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:1: field 'nmae': no such field — did you mean 'name'?",
        ],
    ),
    "no name": (
        "vertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:1: field 'name': is missing — add 'name: NAME'",
        ],
    ),
    "no vertices": (
        "name: a\n",
        [
            "pipeline.yaml:1: field 'vertices': is missing — add 'vertices: [...]'",
        ],
    ),
    "empty vertices": (
        "name: a\nvertices: []\n",
        [
            "pipeline.yaml:2: field 'vertices': is empty — add a source and a sink, or a script",
        ],
    ),
    "bad mode": (
        "name: a\nmode: stream\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'mode': 'stream' is not one of batch, streaming — did you mean 'streaming'?",
        ],
    ),
    "bad version": (
        "name: a\nversion: 2\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'version': must be 1, not 2 — write 1",
        ],
    ),
    "parallelism is no number": (
        "name: a\nparallelism: many\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'parallelism': must be a whole number, not 'many' — write a number without quotes or unit",
        ],
    ),
    "parallelism is zero": (
        "name: a\nparallelism: 0\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'parallelism': must be at least 1, not 0 — use a larger number",
        ],
    ),
    "unknown restart": (
        "name: a\nsettings: {restart: {type: fixed}}\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'settings.restart.type': 'fixed' is not one of none, fixed-delay, exponential-delay, failure-rate — did you mean 'fixed-delay'?",
        ],
    ),
    "unknown restart field": (
        "name: a\nsettings:\n  restart:\n    type: fixed-delay\n    attempt: 3\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:5: field 'settings.restart.attempt': no such field — did you mean 'attempts'?",
        ],
    ),
    "restart without type": (
        "name: a\nsettings: {restart: {attempts: 3}}\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'settings.restart.type': is missing — add one of none, fixed-delay, exponential-delay, failure-rate",
        ],
    ),
    "bad duration": (
        "name: a\nsettings: {checkpoint_interval: soon}\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'settings.checkpoint_interval': 'soon' is not a duration — write a number with a unit, such as 10 seconds, 5 min or 500 ms",
        ],
    ),
    # fields of vertices
    "no kind": (
        "name: a\nvertices:\n  - {name: orders, format: csv, path: in}\n" + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'kind': is missing — add one of source, sql, python, sink, script, session",
        ],
    ),
    "unknown kind": (
        "name: a\nvertices:\n  - {name: orders, kind: sorce, format: csv}\n" + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'kind': 'sorce' is not one of source, sql, python, sink, script, session — did you mean 'source'?",
        ],
    ),
    "unknown vertex field": (
        """
        name: a
        vertices:
          - {name: orders, kind: source, format: csv, path: in}
          - name: out
            kind: sink
            input: orders
            format: parquet
            path: out
            partitionby: [id]
        """,
        [
            "pipeline.yaml:10: vertex 'out', field 'partitionby': no such field — did you mean 'partition_by'?",
        ],
    ),
    "field without a near match": (
        "name: a\nvertices:\n" + SOURCE + "  - {name: paid, kind: sql, query: TABLE orders, zzz: 1}\n" + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'zzz': no such field — the fields here are name, description, parallelism, resources, watermark, deduplicate, cache, kind, query, inputs",
        ],
    ),
    "missing query": (
        "name: a\nvertices:\n" + SOURCE + "  - {name: paid, kind: sql}\n" + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'query': is missing — add 'query: SELECT ...'",
        ],
    ),
    "sink without input": (
        "name: a\nvertices:\n" + SOURCE + QUERY + "  - {name: out, kind: sink, format: noop}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'input': is missing — add 'input: VERTEX'",
        ],
    ),
    "inputs is no list": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: python, function: cleaning:clean, inputs: orders}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'inputs': must be a list, not 'orders' — write [orders]",
        ],
    ),
    "bad name": (
        "name: a\nvertices:\n  - {name: my orders, kind: source, format: csv, path: in}\n",
        [
            "pipeline.yaml:3: vertex 'my orders', field 'name': 'my orders' cannot be the name of a vertex — use up to 128 letters (a-z, A-Z), digits and underscores, beginning with a letter",
        ],
    ),
    "bad function": (
        "name: a\nvertices:\n" + SOURCE + "  - {name: paid, kind: python, function: cleaning.clean}\n" + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'function': 'cleaning.clean' is not a function reference — write module:function, such as cleaning:drop_bots",
        ],
    ),
    "bad save mode": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, format: parquet, path: out, mode: overwite}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'mode': 'overwite' is not one of append, overwrite, upsert, error, ignore — did you mean 'overwrite'?",
        ],
    ),
    "wrong types": (
        """
        name: a
        vertices:
          - name: orders
            kind: source
            format: csv
            path: [in]
            cache: perhaps
            options: header
            watermark: ts
            deduplicate: {columns: []}
            resources: {cpu: 0, memory: much}
        """,
        [
            "pipeline.yaml:7: vertex 'orders', field 'path': must be text, not a list — write one line of text, in quotes if it looks like a number",
            "pipeline.yaml:8: vertex 'orders', field 'cache': must be true or false, not 'perhaps' — write true or false",
            "pipeline.yaml:9: vertex 'orders', field 'options': must be a mapping, not 'header' — write 'field: value' lines below it",
            "pipeline.yaml:10: vertex 'orders', field 'watermark': must be a mapping, not 'ts' — write 'field: value' lines below it",
            "pipeline.yaml:11: vertex 'orders', field 'deduplicate.columns': is empty — list at least one column",
            "pipeline.yaml:12: vertex 'orders', field 'resources.cpu': must be greater than 0, not 0 — use a larger number",
            "pipeline.yaml:12: vertex 'orders', field 'resources.memory': 'much' is not an amount of memory — write a whole number with k, m, g or t, such as 512m",
        ],
    ),
    # structure
    "cycle": (
        """
        name: a
        vertices:
          - {name: a, kind: sql, query: SELECT * FROM c}
          - {name: b, kind: sql, query: SELECT * FROM a}
          - {name: c, kind: sql, query: SELECT * FROM b}
          - {name: out, kind: sink, input: c, format: noop}
        """,
        [
            "pipeline.yaml:4: vertex 'a': is part of a cycle: a → b → c → a — remove one of these inputs",
        ],
    ),
    "reads itself": (
        "name: a\nvertices:\n  - {name: paid, kind: sql, query: SELECT * FROM paid}\n" + SINK,
        [
            "pipeline.yaml:3: vertex 'paid': is part of a cycle: paid → paid — remove one of these inputs",
        ],
    ),
    "dangling input": (
        "name: a\nvertices:\n" + SOURCE + QUERY + "  - {name: out, kind: sink, input: piad, format: noop}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'input': there is no vertex 'piad' — did you mean 'paid'?",
        ],
    ),
    "dangling table in a query": (
        "name: a\nvertices:\n" + SOURCE + "  - {name: paid, kind: sql, query: SELECT * FROM order}\n" + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'query': reads 'order', which is not a vertex — did you mean 'orders'?",
        ],
    ),
    "table of no vertex": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: sql, query: SELECT * FROM orders JOIN customers USING (id)}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'query': reads 'customers', which is not a vertex — add a vertex of that name, or write database.customers for a table of the catalogue",
        ],
    ),
    "same name twice": (
        "name: a\nvertices:\n" + SOURCE + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:4: vertex 'orders', field 'name': another vertex on line 3 has the same name — rename one of them",
        ],
    ),
    "names differ in case": (
        "name: a\nvertices:\n" + SOURCE + SOURCE.replace("orders", "Orders") + QUERY + SINK,
        [
            "pipeline.yaml:4: vertex 'Orders', field 'name': the name differs from 'orders' on line 3 only in case, which SQL ignores — rename one of them",
        ],
    ),
    "unused vertex": (
        "name: a\nvertices:\n" + SOURCE + SOURCE.replace("orders", "other") + QUERY + SINK,
        [
            "pipeline.yaml:4: vertex 'other': nothing reads it — add a vertex that reads it, or remove it",
        ],
    ),
    "no sink": (
        "name: a\nvertices:\n" + SOURCE + QUERY,
        [
            "pipeline.yaml:2: field 'vertices': there is no sink, so nothing would be written — add a vertex of kind sink",
        ],
    ),
    "sink is read": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK + "  - {name: more, kind: sink, input: out, format: noop}\n",
        [
            "pipeline.yaml:6: vertex 'more', field 'input': 'out' is a sink and cannot be read — read what 'out' reads",
        ],
    ),
    "script with others": (
        "name: a\nvertices:\n" + SOURCE + "  - {name: s, kind: script, file: cleaning.py}\n",
        [
            "pipeline.yaml:2: field 'vertices': there is no sink, so nothing would be written — add a vertex of kind sink",
            "pipeline.yaml:4: vertex 's', field 'kind': a script must be the only vertex of its pipeline — move the other vertices into a pipeline of their own",
        ],
    ),
    "script file missing": (
        "name: a\nvertices:\n  - {name: s, kind: script, file: job.py}\n",
        [
            "pipeline.yaml:3: vertex 's', field 'file': no such file: DIR/job.py — check the path; it is relative to the pipeline file",
        ],
    ),
    "resources on some": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK.replace("}", ", resources: {cpu: 2}}"),
        [
            "pipeline.yaml:3: vertex 'orders', field 'resources': is missing, and other vertices have it — add resources here, or remove them everywhere",
            "pipeline.yaml:4: vertex 'paid', field 'resources': is missing, and other vertices have it — add resources here, or remove them everywhere",
        ],
    ),
    # queries
    "declared input never read": (
        "name: a\nvertices:\n"
        + SOURCE
        + SOURCE.replace("orders", "other")
        + "  - {name: paid, kind: sql, query: SELECT * FROM orders, inputs: [orders, other]}\n"
        + SINK,
        [
            "pipeline.yaml:5: vertex 'paid', field 'inputs': the query never reads 'other' — remove other, or read it in the query",
        ],
    ),
    "read but not declared": (
        "name: a\nvertices:\n"
        + SOURCE
        + SOURCE.replace("orders", "other")
        + "  - {name: paid, kind: sql, query: SELECT * FROM orders JOIN other USING (id), inputs: [orders]}\n"
        + SINK,
        [
            "pipeline.yaml:5: vertex 'paid', field 'inputs': the query reads 'other', which is not in inputs — add other, or remove inputs",
        ],
    ),
    "two statements": (
        "name: a\nvertices:\n" + SOURCE + "  - {name: paid, kind: sql, query: SELECT * FROM orders; SELECT 1}\n" + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'query': this is not a query: it has 2 statements, not one — write one SELECT",
        ],
    ),
    "insert as a query": (
        "name: a\nvertices:\n" + SOURCE + "  - {name: paid, kind: sql, query: INSERT INTO x TABLE orders}\n" + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'query': this is not a query: INSERT is not a query — write one SELECT",
        ],
    ),
    "suspicious SQL beside an error": (
        """
        name: a
        vertices:
          - {name: orders, kind: source, format: csv, path: in}
          - name: paid
            kind: sql
            query: |
              SELECT *
              FROM orders
              WHERE paid = = 3
          - {name: out, kind: sink, input: paid, format: parquet}
        """,
        [
            "pipeline.yaml:10: vertex 'paid', field 'query': this may not be Spark SQL: something is missing at '=' (line 3, column 14 of the query) — check the query; Spark decides when it runs",
            "pipeline.yaml:11: vertex 'out', field 'path': is missing, and format 'parquet' needs it — add 'path: ...', or 'table: ...'",
        ],
    ),
    # sources
    "unknown type": (
        "name: a\nvertices:\n" + SOURCE.replace("paid BOOLEAN", "paid BOOL") + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'schema': column 'paid' has the unknown type 'BOOL' — did you mean 'boolean'?",
        ],
    ),
    "nested type not closed": (
        "name: a\nvertices:\n" + SOURCE.replace("paid BOOLEAN", "tags ARRAY<STRING") + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'schema': the type of column 'tags' is not closed — add '>'",
        ],
    ),
    "stream in a batch job": (
        "name: a\nvertices:\n  - {name: orders, kind: source, format: rate}\n" + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'format': format 'rate' can only be read as a stream, and the job is batch — set 'mode: streaming' for the job",
        ],
    ),
    "sink format as a source": (
        "name: a\nvertices:\n  - {name: orders, kind: source, format: console}\n" + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'format': format 'console' cannot be read — use it only in a sink",
        ],
    ),
    "source without path": (
        "name: a\nvertices:\n  - {name: orders, kind: source, format: json}\n" + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'path': is missing, and format 'json' needs it — add 'path: ...', or 'table: ...'",
        ],
    ),
    "path and table": (
        "name: a\nvertices:\n  - {name: orders, kind: source, format: delta, path: in, table: t}\n" + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'table': path and table exclude each other — keep one of them",
        ],
    ),
    "path as an option": (
        "name: a\nvertices:\n  - {name: orders, kind: source, format: csv, path: a, options: {path: in}}\n"
        + QUERY
        + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'options.path': a path is a field, not an option — write it as 'path: ...' beside options",
        ],
    ),
    "kafka with a path": (
        "name: a\nvertices:\n  - {name: orders, kind: source, format: kafka, path: in}\n" + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'path': format 'kafka' has no path — remove it",
        ],
    ),
    # streaming
    "table in a streaming job": (
        "name: a\nmode: streaming\nvertices:\n  - {name: orders, kind: source, format: jdbc}\n" + QUERY + SINK,
        [
            "pipeline.yaml:4: vertex 'orders', field 'format': format 'jdbc' cannot be read as a stream — add 'static: true' to read it as a table",
        ],
    ),
    "static stream": (
        "name: a\nmode: streaming\nvertices:\n"
        + SOURCE
        + "  - {name: ticks, kind: source, format: rate, static: true}\n"
        + "  - {name: paid, kind: sql, query: SELECT * FROM orders JOIN ticks}\n"
        + SINK,
        [
            "pipeline.yaml:5: vertex 'ticks', field 'static': format 'rate' can only be read as a stream — remove static",
        ],
    ),
    "stream of files without schema": (
        "name: a\nmode: streaming\nvertices:\n  - {name: orders, kind: source, format: json, path: in}\n"
        + QUERY
        + SINK,
        [
            "pipeline.yaml:4: vertex 'orders', field 'schema': is missing, and a stream of json files needs it — add 'schema: id BIGINT, ...'",
        ],
    ),
    "no stream in a streaming job": (
        "name: a\nmode: streaming\nvertices:\n" + SOURCE.replace("path: in", "path: in, static: true") + QUERY + SINK,
        [
            "pipeline.yaml:2: field 'mode': a streaming job needs a source that is a stream — remove 'static: true' from orders, or set 'mode: batch'",
        ],
    ),
    "stream overwrites": (
        "name: a\nmode: streaming\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "mode: overwrite, path"),
        [
            "pipeline.yaml:6: vertex 'out', field 'mode': a stream cannot overwrite its sink — use 'output_mode: complete', or foreach_batch",
        ],
    ),
    "stream that must find nothing": (
        "name: a\nmode: streaming\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "mode: error, path"),
        [
            "pipeline.yaml:6: vertex 'out', field 'mode': a stream appends to its sink; 'mode: error' is for batch jobs — remove it, or write 'mode: append'",
        ],
    ),
    "stream without a checkpoint": (
        "name: a\nmode: streaming\nvertices:\n"
        + SOURCE
        + QUERY
        + SINK.replace("path", "options: {CheckpointLocation: ''}, path"),
        [
            "pipeline.yaml:6: vertex 'out', field 'options.checkpointLocation': is empty — give a directory, or remove the option",
        ],
    ),
    "overwrite that may drop other partitions": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "mode: overwrite, partition_by: [d], path"),
        [
            "pipeline.yaml:5: vertex 'out', field 'overwrite': is missing, and 'mode: overwrite' with partition_by needs it — add 'overwrite: dynamic' to replace only the partitions that get rows, or 'overwrite: all' to remove the others too",
        ],
    ),
    "overwrite said twice": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + SINK.replace(
            "path",
            "mode: overwrite, overwrite: all, partition_by: [d], options: {PartitionOverwriteMode: dynamic}, path",
        ),
        [
            "pipeline.yaml:5: vertex 'out', field 'overwrite': overwrite and the option partitionOverwriteMode exclude each other — keep one of them",
        ],
    ),
    "overwrite of partitions where there are none": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "mode: overwrite, overwrite: dynamic, path"),
        [
            "pipeline.yaml:5: vertex 'out', field 'overwrite': is allowed only with partition_by — remove it, or add partition_by",
        ],
    ),
    "overwrite of what is appended to": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + SINK.replace("path", "mode: append, overwrite: all, partition_by: [d], path"),
        [
            "pipeline.yaml:5: vertex 'out', field 'overwrite': is allowed only with 'mode: overwrite' — remove it, or set 'mode: overwrite'",
        ],
    ),
    "bad overwrite": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + SINK.replace("path", "mode: overwrite, overwrite: dynamc, partition_by: [d], path"),
        [
            "pipeline.yaml:5: vertex 'out', field 'overwrite': 'dynamc' is not one of dynamic, all — did you mean 'dynamic'?",
        ],
    ),
    "stream is cached": (
        "name: a\nmode: streaming\nvertices:\n" + SOURCE + QUERY.replace("sql,", "sql, cache: true,") + SINK,
        [
            "pipeline.yaml:5: vertex 'paid', field 'cache': a stream cannot be cached — remove cache",
        ],
    ),
    "bad trigger": (
        "name: a\nmode: streaming\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "trigger: often, path"),
        [
            "pipeline.yaml:6: vertex 'out', field 'trigger': 'often' is neither an interval nor available-now — write an interval such as 10 seconds, or available-now",
        ],
    ),
    "files in complete mode": (
        "name: a\nmode: streaming\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "output_mode: complete, path"),
        [
            "pipeline.yaml:6: vertex 'out', field 'output_mode': files can only be appended to, not written in mode complete — remove output_mode, or use foreach_batch",
        ],
    ),
    "stream to jdbc": (
        "name: a\nmode: streaming\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, format: jdbc}\n",
        [
            "pipeline.yaml:6: vertex 'out', field 'format': format 'jdbc' cannot be written by a stream — use foreach_batch",
        ],
    ),
    "deduplicate without watermark": (
        "name: a\nmode: streaming\nvertices:\n"
        + SOURCE
        + QUERY.replace("sql,", "sql, deduplicate: {columns: [id], within_watermark: true},")
        + SINK,
        [
            "pipeline.yaml:5: vertex 'paid', field 'deduplicate.within_watermark': neither this vertex nor one that it reads has a watermark — add 'watermark: {column: ..., delay: ...}' here or on an input",
        ],
    ),
    "foreach_batch and format": (
        "name: a\nmode: streaming\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, format: noop, foreach_batch: 'cleaning:save'}\n",
        [
            "pipeline.yaml:6: vertex 'out', field 'format': foreach_batch and format exclude each other: the function does the writing — keep one of them",
            "pipeline.yaml:6: vertex 'out', field 'foreach_batch': the function 'save' does not take a DataFrame and a batch id — define it with two parameters: batch_df, batch_id",
        ],
    ),
    # batch sinks
    "streaming fields in a batch job": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "trigger: 5 s, output_mode: append, path"),
        [
            "pipeline.yaml:5: vertex 'out', field 'trigger': is for streaming jobs, and the job is batch — remove trigger, or set 'mode: streaming' for the job",
            "pipeline.yaml:5: vertex 'out', field 'output_mode': is for streaming jobs, and the job is batch — remove output_mode, or set 'mode: streaming' for the job",
        ],
    ),
    "sink without format": (
        "name: a\nvertices:\n" + SOURCE + QUERY + "  - {name: out, kind: sink, input: paid, path: out}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'format': is missing — add 'format: parquet' or another",
        ],
    ),
    "sink without path": (
        "name: a\nvertices:\n" + SOURCE + QUERY + "  - {name: out, kind: sink, input: paid, format: csv}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'path': is missing, and format 'csv' needs it — add 'path: ...', or 'table: ...'",
        ],
    ),
    "upsert without keys": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, format: delta, path: o, mode: upsert}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'keys': is missing, and 'mode: upsert' needs it — add 'keys: [COLUMN]', the columns that identify a row",
        ],
    ),
    "keys without upsert": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "keys: [id], path"),
        [
            "pipeline.yaml:5: vertex 'out', field 'keys': is allowed only with 'mode: upsert' — remove keys, or set 'mode: upsert'",
        ],
    ),
    "upsert into files": (
        "name: a\nvertices:\n" + SOURCE + QUERY + SINK.replace("path", "mode: upsert, keys: [id], path"),
        [
            "pipeline.yaml:5: vertex 'out', field 'mode': format 'parquet' cannot upsert — use delta or iceberg, or 'mode: overwrite'",
        ],
    ),
    "jdbc exactly once": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, format: jdbc, options: {dbtable: t}}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'delivery': format 'jdbc' cannot be written exactly once: a repeated attempt may write rows again — add 'delivery: at-least-once' if that is acceptable",
        ],
    ),
    "table exactly once": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, format: parquet, table: db.t}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'delivery': a table of format 'parquet' cannot be written exactly once: a repeated attempt may write rows again — add 'delivery: at-least-once' if that is acceptable",
        ],
    ),
    "partitions of jdbc": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, format: jdbc, delivery: at-least-once, partition_by: [id]}\n",
        [
            "pipeline.yaml:5: vertex 'out', field 'partition_by': format 'jdbc' has no partitions — remove partition_by",
        ],
    ),
    "two sinks to one path": (
        "name: a\nvertices:\n"
        + SOURCE
        + QUERY
        + SINK
        + SINK.replace("name: out", "name: again").replace("out}", "./out/}"),
        [
            "pipeline.yaml:6: vertex 'again', field 'path': the sink 'out' writes to the same path — give each sink a directory of its own",
        ],
    ),
    "overwrites its source": (
        "name: a\nvertices:\n"
        + SOURCE.replace("path: in", "path: data/*")
        + QUERY
        + SINK.replace("path: out", "mode: overwrite, path: data/out"),
        [
            "pipeline.yaml:5: vertex 'out', field 'path': overwrites what the source 'orders' reads — write to another directory",
        ],
    ),
    # functions and files
    "no such module": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: python, function: 'no_such_module:f', inputs: [orders]}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'function': there is no module 'no_such_module' — put no_such_module.py beside the pipeline, or list its path in settings.artifacts.py_files",
        ],
    ),
    "no such function": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: python, function: 'cleaning:claen', inputs: [orders]}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'function': the module 'cleaning' has no function 'claen' — did you mean 'clean'?",
        ],
    ),
    "module is not Python": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: python, function: 'broken:clean', inputs: [orders]}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'function': the module 'broken' is not Python on line 1: invalid syntax — correct broken.py",
        ],
    ),
    "too many inputs": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: python, function: 'cleaning:clean', inputs: [orders, orders]}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'function': the function 'clean' takes 1 DataFrame but the vertex has 2 inputs — make inputs and args fit its parameters",
        ],
    ),
    "unknown argument": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: python, function: 'cleaning:clean', inputs: [orders], args: {strikt: true}}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'function': the function 'clean' has no parameter 'strikt' — make inputs and args fit its parameters",
        ],
    ),
    "argument without value": (
        "name: a\nvertices:\n"
        + SOURCE
        + "  - {name: paid, kind: python, function: 'cleaning:join', inputs: [orders, orders]}\n"
        + SINK,
        [
            "pipeline.yaml:4: vertex 'paid', field 'function': the function 'join' needs a value for 'how', which is neither an input nor in args — make inputs and args fit its parameters",
        ],
    ),
    "foreach_batch of one parameter": (
        "name: a\nmode: streaming\nvertices:\n"
        + SOURCE
        + QUERY
        + "  - {name: out, kind: sink, input: paid, foreach_batch: 'cleaning:save'}\n",
        [
            "pipeline.yaml:6: vertex 'out', field 'foreach_batch': the function 'save' does not take a DataFrame and a batch id — define it with two parameters: batch_df, batch_id",
        ],
    ),
    "missing artifacts": (
        "name: a\nsettings:\n  artifacts:\n    jars: [lib/x.jar]\n    py_files:\n      - cleaning.py\n      - no.zip\n"
        "vertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:4: field 'settings.artifacts.jars[0]': no such file: DIR/lib/x.jar — check the path; it is relative to the pipeline file",
            "pipeline.yaml:7: field 'settings.artifacts.py_files[1]': no such file: DIR/no.zip — check the path; it is relative to the pipeline file",
        ],
    ),
    "reserved settings": (
        "name: a\nsettings:\n  spark:\n    spark.master: local[2]\n    spark.ui.port: 4040\n"
        "    sql.shuffle.partitions: 4\n    spark.sql.shuffle.partitions: 4\nvertices:\n" + SOURCE + QUERY + SINK,
        [
            "pipeline.yaml:4: field 'settings.spark.spark.master': cannot be set by a job: the engine decides where Spark runs — remove it",
            "pipeline.yaml:5: field 'settings.spark.spark.ui.port': cannot be set by a job: the user interface belongs to the engine — remove it",
            "pipeline.yaml:6: field 'settings.spark.sql.shuffle.partitions': a Spark setting begins with 'spark.' — write spark.sql.shuffle.partitions, or put it into options",
        ],
    ),
    # variables
    "undeclared variable": (
        "name: a\nvariables: {data: in}\nvertices:\n" + SOURCE.replace("path: in", "path: '${dta}/x'") + QUERY + SINK,
        [
            "pipeline.yaml:4: vertex 'orders', field 'path': uses the variable 'dta', which is not declared — did you mean 'data'?",
        ],
    ),
    "variable without value": (
        "name: a\nvariables:\n  data:\nvertices:\n" + SOURCE.replace("path: in", "path: '${data}/x'") + QUERY + SINK,
        [
            "pipeline.yaml:3: field 'variables.data': has no value — give one with -Ddata=VALUE, or a default here",
        ],
    ),
    "not a variable": (
        "name: a\nvertices:\n" + SOURCE.replace("path: in", "path: '${a b}/x'") + QUERY + SINK,
        [
            "pipeline.yaml:3: vertex 'orders', field 'path': contains a '${' that does not begin a variable — write ${name}, or $${ for a literal '${'",
        ],
    ),
    "many at once": (
        """
        name: a
        mode: streeming
        vertices:
          - {name: orders, kind: source, format: csv, path: in, schem: id INT}
          - {name: paid, kind: sql, query: SELECT * FROM orders JOIN users}
          - {name: out, kind: sink, input: piad, format: jdbc}
        """,
        [
            "pipeline.yaml:3: field 'mode': 'streeming' is not one of batch, streaming — did you mean 'streaming'?",
            "pipeline.yaml:5: vertex 'orders', field 'schem': no such field — did you mean 'schema'?",
            "pipeline.yaml:6: vertex 'paid', field 'query': reads 'users', which is not a vertex — add a vertex of that name, or write database.users for a table of the catalogue",
            "pipeline.yaml:7: vertex 'out', field 'input': there is no vertex 'piad' — did you mean 'paid'?",
            "pipeline.yaml:7: vertex 'out', field 'format': format 'jdbc' cannot be written by a stream — use foreach_batch",
        ],
    ),
}

SQL: dict[str, tuple[str, list[str]]] = {
    "no header": (
        "CREATE TEMP VIEW a USING csv OPTIONS (path 'x');\nINSERT INTO b USING noop TABLE a;\n",
        [
            "pipeline.sql:1: the file has no header — begin the file with '/* firesteel', 'name: NAME' and '*/', each on its own line",
        ],
    ),
    "header is no mapping": (
        "/* firesteel a */\nCREATE TEMP VIEW a USING csv OPTIONS (path 'x');\nINSERT INTO b USING noop TABLE a;\n",
        [
            "pipeline.sql:1: the header is not a mapping — write 'name: NAME'",
        ],
    ),
    "unclosed quote": (
        "/* firesteel\nname: a */\nCREATE TEMP VIEW a\nUSING csv OPTIONS (path 'x);\n",
        [
            "pipeline.sql:4: the text that begins here is not closed — close it",
        ],
    ),
    "unclosed comment": (
        "/* firesteel\nname: a */\n/* never",
        [
            "pipeline.sql:3: the comment that begins here is not closed — close it",
        ],
    ),
    "other statements": (
        (
            "/* firesteel\nname: a\n*/\nSET x = 1;\nCREATE TABLE t (id INT);\nDROP TABLE t;\n"
            "CREATE TEMPORARY VIEW v AS SELECT 1 AS x;\nINSERT INTO b USING noop TABLE v;\n"
        ),
        [
            "pipeline.sql:4: a statement that begins with SET is not a vertex — put Spark settings into settings.spark of the header",
            "pipeline.sql:5: only temporary views can be created — write CREATE TEMPORARY VIEW",
            "pipeline.sql:6: a statement that begins with DROP is not a vertex — use CREATE TEMPORARY VIEW name AS ..., CREATE TEMPORARY VIEW name USING format ..., INSERT INTO name USING format ...",
        ],
    ),
    "view without a body": (
        "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW v;\nINSERT INTO b USING noop TABLE v;\n",
        [
            "pipeline.sql:3: vertex 'v': there is neither AS nor USING after the name of the view — the forms are CREATE TEMPORARY VIEW name AS ..., CREATE TEMPORARY VIEW name USING format ..., INSERT INTO name USING format ...",
        ],
    ),
    "columns of a query": (
        "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW v (a, b) AS SELECT 1, 2;\nINSERT INTO b USING noop TABLE v;\n",
        [
            "pipeline.sql:3: vertex 'v': a view of a query takes no column list — name the columns in the SELECT",
        ],
    ),
    "sink of a query": (
        (
            "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW v AS SELECT 1 AS x;\n"
            "INSERT OVERWRITE b USING csv OPTIONS (path 'o')\nSELECT x FROM v;\n"
        ),
        [
            "pipeline.sql:5: vertex 'b': a sink writes one view as it is — end with TABLE view, and put a query into a view of its own",
        ],
    ),
    "missing semicolon": (
        (
            "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW s USING csv OPTIONS (path 'x')\n"
            "INSERT INTO b USING noop TABLE s;\n"
        ),
        [
            "pipeline.sql:4: vertex 's': unexpected 'INSERT' — remove it, or end the statement before it with ';'",
        ],
    ),
    "option without quotes": (
        (
            "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW s USING csv OPTIONS (path here);\n"
            "INSERT INTO b USING noop TABLE s;\n"
        ),
        [
            "pipeline.sql:3: vertex 's': the value of option 'path' is not in quotes — write path 'here'",
        ],
    ),
    "set twice": (
        (
            "/* firesteel\nname: a */\n-- firesteel: {format: json}\nCREATE TEMPORARY VIEW s USING csv OPTIONS (path 'x');\n"
            "INSERT INTO b USING noop TABLE s;\n"
        ),
        [
            "pipeline.sql:3: vertex 's', field 'format': is set both by the statement and by the comment before it — keep it in the statement",
        ],
    ),
    "unknown field in a comment": (
        (
            "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW s USING csv OPTIONS (path 'x');\n"
            "-- firesteel: {paralelism: 3}\nINSERT INTO b USING noop TABLE s;\n"
        ),
        [
            "pipeline.sql:4: vertex 'b', field 'paralelism': no such field — did you mean 'parallelism'?",
        ],
    ),
    "comment is no mapping": (
        (
            "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW s USING csv OPTIONS (path 'x');\n"
            "-- firesteel: fast please\nINSERT INTO b USING noop TABLE s;\n"
        ),
        [
            "pipeline.sql:4: the comment for Firesteel is not a mapping — write -- firesteel: {description: text}",
        ],
    ),
    "vertices in the header": (
        (
            "/* firesteel\nname: a\nvertices: []\n*/\nCREATE TEMPORARY VIEW s USING csv OPTIONS (path 'x');\n"
            "INSERT INTO b USING noop TABLE s;\n"
        ),
        [
            "pipeline.sql:3: field 'vertices': the vertices of a SQL file are its statements — remove it from the header",
        ],
    ),
    "problems below the header": (
        (
            "/* firesteel\nname: a\nmood: good\n*/\nCREATE TEMPORARY VIEW s (id NUMBR)\nUSING csv OPTIONS (path 'x');\n\n"
            "CREATE TEMPORARY VIEW v AS\nSELECT *\nFROM t;\n\nINSERT INTO b USING jdbc\nTABLE v;\n"
        ),
        [
            "pipeline.sql:3: field 'mood': no such field — did you mean 'mode'?",
            "pipeline.sql:5: vertex 's', field 'schema': column 'id' has the unknown type 'NUMBR' — did you mean 'numeric'?",
            "pipeline.sql:5: vertex 's': nothing reads it — add a vertex that reads it, or remove it",
            "pipeline.sql:9: vertex 'v', field 'query': reads 't', which is not a vertex — add a vertex of that name, or write database.t for a table of the catalogue",
            "pipeline.sql:12: vertex 'b', field 'delivery': format 'jdbc' cannot be written exactly once: a repeated attempt may write rows again — add 'delivery: at-least-once' if that is acceptable",
        ],
    ),
    "suspicious query": (
        (
            "/* firesteel\nname: a */\nCREATE TEMPORARY VIEW s USING csv OPTIONS (path 'x');\n"
            "CREATE TEMPORARY VIEW v AS\nSELECT *\nFROM s WHERE = 3;\nINSERT INTO b USING parquet TABLE v;\n"
        ),
        [
            "pipeline.sql:6: vertex 'v', field 'query': this may not be Spark SQL: something is missing at '3' (line 2, column 16 of the query) — check the query; Spark decides when it runs",
            "pipeline.sql:7: vertex 'b', field 'path': is missing, and format 'parquet' needs it — add 'path: ...', or 'table: ...'",
        ],
    ),
}

PYTHON: dict[str, tuple[str, list[str]]] = {
    "syntax error": (
        "from firesteel.jobgraph import Job\njob = Job(\n",
        [
            "pipeline.py:2: this is not Python: '(' was never closed — correct it",
        ],
    ),
    "no job": (
        "from firesteel.jobgraph import Job\n\ndef make():\n    return Job('a')\n",
        [
            "pipeline.py: the file imports Job but defines none at its top level — write 'job = Job(\"name\")' at the top level",
        ],
    ),
    "two jobs": (
        "from firesteel.jobgraph import Job\na = Job('a')\nb = Job('b')\n",
        [
            "pipeline.py: the file has 2 jobs at its top level: a, b — name the one to run 'job'",
        ],
    ),
    "wrong fields": (
        """
        from firesteel.jobgraph import Job

        job = Job("a", mode="stream")
        orders = job.source("orders", "csv", path="in", options={"header": True})
        paid = job.sql("paid", "SELECT * FROM ordrs")
        job.sink("out", paid, format="jdbc", keyz=["id"])
        """,
        [
            "pipeline.py:4: field 'mode': 'stream' is not one of batch, streaming — did you mean 'streaming'?",
            "pipeline.py:5: vertex 'orders', field 'schema': is missing, and a stream of csv files needs it — add 'schema: id BIGINT, ...'",
            "pipeline.py:6: vertex 'paid', field 'query': reads 'ordrs', which is not a vertex — did you mean 'orders'?",
            "pipeline.py:7: vertex 'out', field 'keyz': no such field — did you mean 'keys'?",
        ],
    ),
    "function that nobody can import": (
        """
        from firesteel.jobgraph import Job

        job = Job("a")
        orders = job.source("orders", "csv", path="in")
        paid = job.python("paid", lambda df: df, inputs=[orders])
        job.sink("out", paid, format="noop")
        """,
        [
            "pipeline.py:6: vertex 'paid', field 'function': '<lambda>' is not defined at the top level of a module, so no other process can find it — move the function to the top level of a module",
        ],
    ),
}


def broken(tmp_path: Path, suffix: str, text: str) -> list[str]:
    """The messages for a pipeline in the current directory, which is `tmp_path`."""
    for name, source in MODULES.items():
        (tmp_path / name).write_text(dedent(source))
    Path(f"pipeline.{suffix}").write_text(dedent(text))
    with pytest.raises(InvalidPipelineError) as raised:
        load_pipeline(Path(f"pipeline.{suffix}"))
    return [str(p).replace(os.fspath(tmp_path), "DIR") for p in raised.value.problems]


@pytest.mark.parametrize("case", YAML)
def test_broken_yaml(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, expected = YAML[case]
    assert broken(tmp_path, "yaml", text) == expected


@pytest.mark.parametrize("case", SQL)
def test_broken_sql_file(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, expected = SQL[case]
    assert broken(tmp_path, "sql", text) == expected


@pytest.mark.parametrize("case", PYTHON)
def test_broken_python_file(case: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    text, expected = PYTHON[case]
    assert broken(tmp_path, "py", text) == expected


def test_every_message_names_a_fix_and_the_file() -> None:
    for _, expected in (*YAML.values(), *SQL.values(), *PYTHON.values()):
        assert expected
        for message in expected:
            assert message.startswith("pipeline.")
            assert " — " in message
