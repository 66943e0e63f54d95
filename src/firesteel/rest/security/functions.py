"""Functions in jobs of non-admins must come from uploaded files (S39), so that `subprocess:getoutput` is refused.

This module decides by the names of the uploaded files. The driver checks the content of archives before it imports
anything (`driver.artifacts`).
"""

from __future__ import annotations

from pathlib import PurePosixPath

from firesteel.errors import Problem
from firesteel.jobgraph.model import JobGraph, function_refs

_FIX = "upload the file and name it in settings.artifacts.py_files; only admins may use functions of installed modules"


def refused_functions(graph: JobGraph) -> list[Problem]:
    """A problem for each function that cannot be in any of the job's files."""
    return [
        Problem(f"module '{module}' of {reference} is not in an uploaded file", _FIX, vertex=vertex, field=field)
        for vertex, field, reference in function_refs(graph)
        if not _may_hold(graph.settings.artifacts.py_files, module := reference.partition(":")[0])
    ]


def _may_hold(py_files: tuple[str, ...], module: str) -> bool:
    names = [PurePosixPath(entry) for entry in py_files]
    return any(name.stem == module if name.suffix == ".py" else True for name in names)
