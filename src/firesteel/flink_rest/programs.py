"""An uploaded program as a job graph: a pipeline as it is, Python code as the script of a job (S12)."""

from __future__ import annotations

import time
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

import orjson

from firesteel.blob.keys import BlobKey, BlobRef
from firesteel.errors import InvalidPipelineError, InvalidRequestError, Problem
from firesteel.flink_rest.plan import render_plan
from firesteel.flink_rest.run_requests import Wish
from firesteel.flink_rest.view import JobView
from firesteel.jobgraph.admission import SubmittedDocument
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.execution_graph import execution_graph
from firesteel.jobmaster.machine import JobState
from firesteel.rest.answers import Json
from firesteel.rest.errors import HttpError
from firesteel.stores.job_graphs import Submission
from firesteel.stores.uploads import Upload
from firesteel.types import JobID, new_job_id

PIPELINES = frozenset({".yaml", ".yml", ".json"})
ARCHIVES = frozenset({".zip", ".whl"})
SUFFIXES = PIPELINES | ARCHIVES | {".py"}
MAIN = "__main__"

NAME_KEY = "pipeline.name"
"""The one setting of Flink that has the same meaning here."""


def kind_of(name: str) -> str:
    """The suffix of a program that can be run. Raises HttpError 400 with an explanation."""
    suffix = PurePath(name).suffix.lower()
    if suffix in SUFFIXES:
        return suffix
    if suffix == ".jar":
        raise HttpError(
            400,
            f"{name} is a Java archive, but Firesteel runs Spark jobs in Python and SQL, not Flink programs: upload a "
            f"program ({', '.join(sorted(SUFFIXES))}). Java libraries of a job go into settings.artifacts.jars.",
        )
    raise HttpError(400, f"{name} is not a program: upload one of {', '.join(sorted(SUFFIXES))}.")


def source_of(upload: Upload, text: bytes | None, wish: Wish) -> SubmittedDocument:
    """The document for a program, with the caller's settings for this run; `text` is the content of a pipeline.

    Raises InvalidPipelineError or HttpError 400 with its problems.
    """
    suffix = kind_of(upload.name)
    if text is None:
        return SubmittedDocument(_script(upload, suffix, wish), on_top=_on_top(wish))
    return _pipeline(upload, text, wish)


def plan_of(graph: JobGraph, job_id: JobID | None) -> Json:
    """The graph that would run. Nothing is read or started."""
    submission = Submission(job_id or new_job_id(), graph, time.time(), "")
    shown = execution_graph(submission, JobState(graph.settings.restart), {}, now=submission.submitted_at)
    return render_plan(JobView(shown, submission.submitted_at))


def _script(upload: Upload, suffix: str, wish: Wish) -> dict[str, Any]:
    reference = str(BlobRef(BlobKey(upload.key), upload.name))
    vertex: dict[str, Any] = {"kind": "script", "name": "script", "file": reference, "args": list(wish.args)}
    data: dict[str, Any] = {"name": PurePath(upload.name).stem, "vertices": [vertex]}
    entry = "" if wish.entry == MAIN else wish.entry
    if suffix in ARCHIVES:
        # Functions on the engine also find the program's modules there.
        data["settings"] = {"artifacts": {"py_files": [reference]}}
        entry = entry or ("" if upload.entry == MAIN else upload.entry)
        if not entry and not upload.entry:
            raise HttpError(400, f"{upload.name} has no __main__.py: name the module to run as entryClass.")
        if entry:
            vertex["module"] = entry
    elif entry:
        raise no_entry(upload, entry)
    return data


def _pipeline(upload: Upload, text: bytes, wish: Wish) -> SubmittedDocument:
    if wish.entry:
        raise no_entry(upload, wish.entry)
    variables, on_top = _variables(wish), _on_top(wish)
    try:
        content = text.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InvalidRequestError(
            [Problem("the pipeline is not UTF-8 text", "save it as UTF-8", file=upload.name)]
        ) from None
    if kind_of(upload.name) != ".json":
        return SubmittedDocument(yaml=content, variables=variables, on_top=on_top)
    try:
        return SubmittedDocument(orjson.loads(content), variables=variables, on_top=on_top)
    except orjson.JSONDecodeError as error:
        raise InvalidPipelineError([Problem(f"this is not JSON: {error}", "correct it", file=upload.name)]) from None


def no_entry(upload: Upload, entry: str, fix: str = "leave entryClass out") -> HttpError:
    return HttpError(400, f"The program's entry point class '{entry[:200]}' was not found in {upload.name}; {fix}.")


def _variables(wish: Wish) -> dict[str, str]:
    """The arguments of a pipeline are variables: `name=value` each."""
    variables: dict[str, str] = {}
    for arg in wish.args:
        name, sign, value = arg.partition("=")
        if not sign or not name.isidentifier():
            raise HttpError(400, f"'{arg[:200]}' is not a variable of a pipeline; write its arguments as name=value.")
        variables[name] = value
    return variables


def _on_top(wish: Wish) -> dict[str, Any]:
    """Apply the caller's settings for this run over those of the program."""
    settings: dict[str, Any] = {}
    if spark := _spark_settings(wish.configuration):
        settings["spark"] = spark
    if wish.savepoint is not None:
        # The owner of the savepoint afterwards (claimMode) makes no difference: a restore only reads it.
        settings["restore"] = {
            "path": wish.savepoint,
            "allow_non_restored_state": wish.allow_non_restored_state,
        }
    changes: dict[str, Any] = {"settings": settings} if settings else {}
    if wish.parallelism is not None:
        changes["parallelism"] = wish.parallelism
    if NAME_KEY in wish.configuration:
        changes["name"] = wish.configuration[NAME_KEY]
    return changes


def _spark_settings(configuration: Mapping[str, str]) -> dict[str, str]:
    """The admission decides what a job may set; this only refuses keys that cannot be Spark settings."""
    strange = [key for key in configuration if not key.startswith("spark.") and key != NAME_KEY]
    if strange:
        shown = ", ".join(key[:100] for key in strange[:5])
        raise HttpError(
            400, f"flinkConfiguration: {shown} have no meaning for Spark; set only spark.* keys and {NAME_KEY}."
        )
    return {key: value for key, value in configuration.items() if key != NAME_KEY}
