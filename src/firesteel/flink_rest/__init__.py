"""The resources of Flink's REST API. Renderings are pure; `docs/reference/flink-rest.md` says what means what here."""
