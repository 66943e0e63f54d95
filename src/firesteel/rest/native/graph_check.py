"""`POST /jobs/check`: the problems of a pipeline, with lines, and its graph. Nothing is stored or run."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from fastapi import APIRouter
from starlette.requests import Request
from starlette.responses import Response
from typing_extensions import TypedDict

from firesteel.errors import InvalidPipelineError, Problem
from firesteel.jobgraph.admission import SubmittedDocument
from firesteel.masking import mask
from firesteel.rest.answers import answer
from firesteel.rest.context import CallerParam, Context
from firesteel.rest.errors import HttpError
from firesteel.rest.native.submit import YAML, admit, admit_submission, pipeline_text

router = APIRouter(tags=["jobs"])


class ProblemMessage(TypedDict):
    message: str
    fix: str
    vertex: str | None
    field: str | None
    line: int | None
    """The line in the submitted text, from 1."""
    certain: bool
    """False for a warning that only Spark can confirm; the job would be accepted."""


class GraphCheck(TypedDict):
    problems: list[ProblemMessage]
    graph: dict[str, Any] | None
    """The completed graph with variables replaced; null if there are errors."""


_BODY = {
    "requestBody": {
        "required": True,
        "content": {"application/yaml": {"schema": {"type": "string", "description": "A pipeline, as in a file."}}},
    }
}


@router.post(
    "/jobs/check", response_model=GraphCheck, summary="Check a pipeline without running it", openapi_extra=_BODY
)
async def check_graph(request: Request, context: Context, caller: CallerParam) -> Response:
    """For callers that may submit it; counts as a submission. References to files and savepoints are checked on submission."""
    admit_submission(context, caller)
    if request.headers.get("content-type", "").partition(";")[0].strip().lower() not in YAML:
        raise HttpError(400, "Send the pipeline as YAML text, with 'Content-Type: application/yaml'.")
    source = SubmittedDocument(yaml=pipeline_text(await request.body()))
    try:
        admitted = await admit(context, caller, source)
    except InvalidPipelineError as error:
        content: GraphCheck = {"problems": render_problems(error.problems), "graph": None}
    else:
        graph = admitted.graph.model_dump(mode="json", exclude_none=True)
        content = {"problems": render_problems(admitted.problems), "graph": mask(graph)}
    return answer(content)


def render_problems(problems: Iterable[Problem]) -> list[ProblemMessage]:
    return [
        {
            "message": p.message,
            "fix": p.fix,
            "vertex": p.vertex,
            "field": p.field,
            "line": p.line,
            "certain": p.certain,
        }
        for p in problems
    ]
