"""Has Spark analyse a graph without running it: schemas, plans, and every error of its analyser."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptDirectory, settings_of
from firesteel.driver import artifacts
from firesteel.driver.failure import classify
from firesteel.errors import InvalidPipelineError
from firesteel.fs.files import write_json
from firesteel.jobgraph.model import Sink
from firesteel.spark_connect.compiler import check, compile_graph
from firesteel.spark_connect.session import EngineSession, quiet_client_logs


def main(args: dict[str, Any]) -> int:
    directory = AttemptDirectory(Path(args["directory"]))
    spec = directory.read_spec()
    assert spec.engine is not None
    quiet_client_logs()
    session = EngineSession(spec.remote())
    report: dict[str, Any] = {"problems": [], "schemas": {}, "plans": {}}
    try:
        session.configure(settings_of(spec))
        artifacts.put_on_path(spec.graph.settings.artifacts)
        compiled = compile_graph(spec.graph, session, artifacts.resolve_by(spec))
        problems = check(compiled)
        if problems:
            raise InvalidPipelineError(problems)
        for vertex in spec.graph.topological():
            frame = compiled.frames[vertex.name]
            report["schemas"][vertex.name] = [
                [f.name, f.dataType.simpleString(), f.nullable] for f in frame.schema.fields
            ]
            if isinstance(vertex, Sink):
                report["plans"][vertex.name] = frame._explain_string()
    except InvalidPipelineError as error:
        report["problems"] = [
            {"vertex": p.vertex, "field": p.field, "message": p.message, "fix": p.fix} for p in error.problems
        ]
    except Exception as error:
        failure = classify(error)
        report["problems"] = [
            {"vertex": failure.vertex, "field": None, "message": f"{failure.message}\n{failure.traceback}", "fix": ""}
        ]
    finally:
        session.close()
    write_json(directory.root / "inspection.json", report)
    return 0
