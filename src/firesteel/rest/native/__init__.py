"""Resources that Flink does not have: job graphs, events, logs, lineage, engines, files."""
