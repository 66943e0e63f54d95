"""`python -m firesteel.jobgraph.extract FILE`: run a Python pipeline, print the Job it builds as JSON.

Runs in a process of its own (see `python_source`). Whatever the file prints goes to stderr; stdout carries one JSON
object: `{data, lines, problems}`, or `{error, ...}`.
"""

from __future__ import annotations

import json
import os
import runpy
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from .api import RUN_NAME, Job


def main(argv: list[str]) -> int:
    file = argv[0]
    answer_fd = os.dup(1)
    os.dup2(2, 1)  # prints of the file, and of programs that it starts, must not mix with the answer
    answer = _answer(file)
    with os.fdopen(answer_fd, "w", encoding="utf-8") as out:
        out.write(json.dumps(answer))
    return 0


def _answer(file: str) -> dict[str, Any]:
    sys.argv = [file]
    sys.path.insert(0, str(Path(file).parent))
    try:
        names = runpy.run_path(file, run_name=RUN_NAME)
        job = _choose(names)
        if isinstance(job, dict):
            return job
        document = job.document()
        json.dumps(document.data)
    except BaseException as error:  # SystemExit too: a file that exits builds nothing
        own = [f for f in traceback.extract_tb(error.__traceback__) if f.filename == file]
        sys.stderr.write("".join(traceback.format_exception(error)))
        what = traceback.format_exception_only(error)[-1].strip()
        return {"error": what, "traceback": True, "line": own[-1].lineno if own else None}
    sys.stdout.flush()
    lines = [[list(loc), line] for loc, line in document.lines.items()] if job.file == file else []
    problems = [{k: v for k, v in asdict(p).items() if k != "file"} for p in document.problems]
    return {"data": document.data, "lines": lines, "problems": problems}


def _choose(names: dict[str, Any]) -> Job | dict[str, Any]:
    """The one module-level Job, or the one named `job`."""
    jobs = {name: value for name, value in names.items() if isinstance(value, Job)}
    if "job" in jobs:
        return jobs["job"]
    distinct = {id(j): j for j in jobs.values()}
    if len(distinct) == 1:
        return next(iter(distinct.values()))
    if not distinct:
        return {
            "error": "the file imports Job but defines none at its top level",
            "fix": "write 'job = Job(\"name\")' at the top level",
        }
    return {
        "error": f"the file has {len(distinct)} jobs at its top level: {', '.join(jobs)}",
        "fix": "name the one to run 'job'",
    }


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
