"""How the arguments and results of commands are written, and errors on their way back."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from firesteel import errors
from firesteel.attempts.attempt import AttemptResult
from firesteel.engines.record import EngineRecord
from firesteel.errors import FiresteelError
from firesteel.jobgraph.model import JobGraph
from firesteel.jobmaster.executor import Deployment
from firesteel.rpc.messages import WireFailure
from firesteel.types import AttemptId, JobID


def failure_of(error: Exception) -> WireFailure:
    """`error` for the wire. A class that the other side would not know goes as the nearest one that it does."""
    for kind in type(error).__mro__:
        if getattr(errors, kind.__name__, None) is kind:
            return WireFailure(kind.__name__, str(error))
    return WireFailure(
        "OSError" if isinstance(error, OSError) else "FiresteelError", str(error) or type(error).__name__
    )


def error_of(failure: WireFailure) -> Exception:
    if failure.kind == "OSError":
        return OSError(failure.message)
    kind = getattr(errors, failure.kind, None)
    if isinstance(kind, type) and issubclass(kind, FiresteelError) and not issubclass(kind, errors.InvalidInputError):
        return kind(failure.message)
    return FiresteelError(failure.message)


def attempt_args(attempt: AttemptId) -> dict[str, Any]:
    return {"job": attempt.job_id, "number": attempt.number}


def attempt_of(args: Mapping[str, Any]) -> AttemptId:
    return AttemptId(JobID(args["job"]), args["number"])


def deployment_args(deployment: Deployment) -> dict[str, Any]:
    return {
        **attempt_args(deployment.attempt),
        "graph": json.loads(deployment.graph.to_json()),
        "engine": deployment.engine.as_json() if deployment.engine is not None else None,
        "owner": deployment.owner,
        "restricted": deployment.restricted,
        "environment": dict(deployment.environment),
        "given_up": deployment.given_up,
    }


def deployment_of(args: Mapping[str, Any]) -> Deployment:
    return Deployment(
        attempt_of(args),
        JobGraph.model_validate(args["graph"]),
        EngineRecord.from_json(args["engine"]) if args["engine"] else None,
        owner=args["owner"],
        restricted=args["restricted"],
        environment=args.get("environment", {}),
        given_up=args.get("given_up", 0),
    )


def result_of(data: Any) -> AttemptResult:
    return AttemptResult.from_json(data)
