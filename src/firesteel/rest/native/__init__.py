"""Resources that Flink has not: job graphs, events, logs, lineage, engines, files."""
