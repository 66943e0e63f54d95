"""A process that checks what callers sent or named, and can be killed: `python -P -m firesteel.rest.native.worker`.

Requests come on standard input and answers go to standard output, each as JSON after its length. The CPU time and memory of
a request are limited; beyond the limits the kernel kills the process (S25, S42). It ends by itself when the node is gone or
has had no request for a while.
"""

from __future__ import annotations

import contextlib
import json
import os
import resource
import select
import struct
import sys
from collections.abc import Callable, Mapping
from dataclasses import asdict
from typing import IO, Any

from firesteel.errors import (
    EnvironmentNotReadyError,
    InvalidInputError,
    InvalidPipelineError,
    NoSavepointError,
    SavepointError,
)

LENGTH = struct.Struct(">Q")
MAX_MEMORY = 3 << 30
"""Limit of the address space in bytes, much of which is never used."""
IDLE_SECONDS = 60.0
NICENESS = 5
"""The node has priority, as it has a lease to renew."""


def main() -> None:
    os.nice(NICENESS)
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_AS, (MAX_MEMORY, MAX_MEMORY))
    requests, answers = sys.stdin.buffer, os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # printed text must not mix with the answers
    while select.select([requests], [], [], IDLE_SECONDS)[0]:
        request = receive(requests)
        if request is None:
            return
        _limit_cpu(int(request["cpu"]))
        send(answers, answer(request))


def answer(request: Mapping[str, Any]) -> dict[str, Any]:
    """`{"result": ...}`, or the error: `{"problems": [...]}` for a graph, `{"refused": "..."}` for a path; with
    `"absent": true` when there is certainly no savepoint there."""
    try:
        return {"result": _WORK[request["work"]](request)}
    except InvalidPipelineError as error:
        return {"problems": [asdict(p) for p in error.problems]}
    except NoSavepointError as error:
        return {"refused": str(error), "absent": True}
    except (SavepointError, EnvironmentNotReadyError, InvalidInputError) as error:
        return {"refused": str(error)}
    except MemoryError:
        return {"refused": "it takes more memory than allowed"}
    except Exception as error:  # any error that a library raises for a caller's path is the caller's error (S35)
        return {"refused": f"{type(error).__name__}: {error}"[:1000]}


def _admit(request: Mapping[str, Any]) -> Any:
    """The graph in its canonical form, which is stored."""
    from firesteel.jobgraph.admission import AllowedPlaces, Policy, SubmittedDocument

    policy = Policy(bounded=True, places=AllowedPlaces(request["places"]))
    return SubmittedDocument.from_json(request).admitted(policy).canonical.decode("ascii")


def _savepoint(request: Mapping[str, Any]) -> Any:
    from firesteel.sandbox.rules import Sandbox
    from firesteel.sandbox.thread import confined
    from firesteel.savepoint.take import find

    sandbox = Sandbox.from_json(request["sandbox"]) if request.get("sandbox") else None
    return {"job_id": confined(sandbox, lambda: find(request["path"])).job_id}


def _fit(request: Mapping[str, Any]) -> Any:
    from firesteel.jobgraph.model import JobGraph
    from firesteel.sandbox.rules import Sandbox
    from firesteel.sandbox.thread import confined
    from firesteel.savepoint.fit import fit_at, read_position

    sandbox = Sandbox.from_json(request["sandbox"]) if request.get("sandbox") else None
    position = confined(sandbox, lambda: read_position(request["path"]))
    return fit_at(position, JobGraph.of_canonical(request["graph"].encode("ascii"))).to_json()


_WORK: Mapping[str, Callable[[Mapping[str, Any]], Any]] = {
    "admit": _admit,
    "savepoint": _savepoint,
    "fit": _fit,
}


def _limit_cpu(seconds: int) -> None:
    """Set the limit for this request. The kernel counts from the start of the process."""
    used = resource.getrusage(resource.RUSAGE_SELF)
    _, hard = resource.getrlimit(resource.RLIMIT_CPU)
    resource.setrlimit(resource.RLIMIT_CPU, (int(used.ru_utime + used.ru_stime) + seconds + 1, hard))


# -- both sides -------------------------------------------------------------------------------------------------------


def receive(source: IO[bytes]) -> Any:
    """The next message; None at the end of input."""
    head = source.read(LENGTH.size)
    if len(head) < LENGTH.size:
        return None
    (size,) = LENGTH.unpack(head)
    raw = source.read(size)
    return json.loads(raw) if len(raw) == size else None


def send(target: IO[bytes], message: Any) -> None:
    raw = json.dumps(message).encode()
    target.write(LENGTH.pack(len(raw)) + raw)
    target.flush()


if __name__ == "__main__":
    with contextlib.suppress(BrokenPipeError, KeyboardInterrupt):
        main()
