"""Functions of callers who are not admin come with the job (S39): `subprocess:getoutput` is no function of a pipeline.

Here is refused what can be seen from the names of the uploaded files. What is in their archives is looked at by the driver,
before it imports anything (`driver.artifacts`).
"""

from __future__ import annotations

from pathlib import PurePosixPath

from firesteel.errors import Problem
from firesteel.jobgraph.model import JobGraph, function_refs

_FIX = "upload the file and name it in settings.artifacts.py_files; functions of installed modules are for admins"


def refused_functions(graph: JobGraph) -> list[Problem]:
    """Functions that can be in none of the job's files, one problem each."""
    return [
        Problem(f"module '{module}' of {reference} is not in an uploaded file", _FIX, vertex=vertex, field=field)
        for vertex, field, reference in function_refs(graph)
        if not _may_hold(graph.settings.artifacts.py_files, module := reference.partition(":")[0])
    ]


def _may_hold(py_files: tuple[str, ...], module: str) -> bool:
    names = [PurePosixPath(entry) for entry in py_files]
    return any(name.stem == module if name.suffix == ".py" else True for name in names)
