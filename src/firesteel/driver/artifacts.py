"""Makes the files that travel with a job available on the driver's path and in the engine's Python workers."""

from __future__ import annotations

import importlib
import sys
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from firesteel.attempts.attempt import AttemptSpec
from firesteel.errors import InvalidPipelineError, Problem
from firesteel.jobgraph.model import Artifacts
from firesteel.jobgraph.pymodules import find_module
from firesteel.module_files import TooManyModulesError, modules_beside, modules_in, zip_modules


def put_on_path(artifacts: Artifacts) -> None:
    """Make the job's modules importable here."""
    if not artifacts.py_files:
        return
    for entry in reversed(artifacts.py_files):
        path = Path(entry)
        location = str(path.parent if path.suffix == ".py" else path)
        if location not in sys.path:
            sys.path.insert(0, location)
    importlib.invalidate_caches()


def send(artifacts: Artifacts, spark: Any) -> None:
    """Make them importable for Python functions that run on the engine, in this session only."""
    modules = [shippable(Path(p)) for p in artifacts.py_files]
    if any(modules):
        spark.addArtifacts(*[m for m in modules if m], pyfile=True)
    if artifacts.archives:
        spark.addArtifacts(*artifacts.archives, archive=True)
    if artifacts.files:
        spark.addArtifacts(*artifacts.files, file=True)
    if artifacts.jars:
        spark.addArtifacts(*artifacts.jars)


def shippable(path: Path) -> str:
    """Spark takes single modules and zips: a directory is zipped, a wheel is a zip under another name."""
    if path.is_dir():
        members = modules_in(path)
        if not members:
            return ""
        target = Path(tempfile.mkdtemp(prefix="firesteel-")) / f"{path.name or 'modules'}.zip"
        zip_modules(path, members, target)
        return str(target)
    if path.suffix == ".whl":
        target = Path(tempfile.mkdtemp(prefix="firesteel-")) / f"{path.stem}.zip"
        target.write_bytes(path.read_bytes())
        return str(target)
    return str(path)


def beside(script: Path, named: Sequence[str], target: Path) -> str:
    """Make `target` a zip of the modules beside `script` that it imports: its functions need them in the workers too.

    The empty string if there are none. Those among `named`, the job's own py_files, are sent already.
    """
    if script.suffix != ".py":
        return ""
    there = {Path(p).resolve() for p in named}
    try:
        members = [m for m in modules_beside(script) if (script.parent / m).resolve() not in there]
    except (TooManyModulesError, OSError) as error:
        sys.stderr.write(
            f"firesteel: {error}; they are not sent to Python workers: list the ones that are needed with -pyfs\n"
        )
        return ""
    if not members:
        return ""
    zip_modules(script.parent, members, target)
    return str(target)


def resolve_function(reference: str) -> Callable[..., Any]:
    """The function that `module:function` names."""
    module, _, name = reference.partition(":")
    found: Callable[..., Any] = getattr(importlib.import_module(module), name)
    return found


def resolve_by(spec: AttemptSpec) -> Callable[[str], Callable[..., Any]]:
    """How the functions of a job are found. A restricted job may use only those in its own modules (S39)."""

    def resolve(reference: str) -> Callable[..., Any]:
        if spec.restricted:
            check_uploaded(reference, spec.graph.settings.artifacts)
        return resolve_function(reference)

    return resolve


def check_uploaded(reference: str, given: Artifacts) -> None:
    """Raises InvalidPipelineError unless the module is one of the job's own. Nothing is imported for that."""
    module = reference.partition(":")[0]
    if find_module(module, py_files=given.py_files, base_dir=None, environment=False) is None:
        problem = Problem(
            f"module '{module}' of {reference} is not in an uploaded file",
            "upload the file and list it in settings.artifacts.py_files; only admins may use functions of installed "
            "modules",
            field="function",
        )
        raise InvalidPipelineError([problem])


def self_contained(reference: str, spec: AttemptSpec) -> Callable[[Any, int], None]:
    """Prepare a foreachBatch function for a process beside the engine, which sees none of the session's artifacts.

    Its module is sent along by value, and the job's modules are put on the path there, where the files are shared.
    """
    from pyspark import cloudpickle

    function = resolve_by(spec)(reference)
    cloudpickle.register_pickle_by_value(sys.modules[function.__module__])
    paths = [str(p.parent if p.suffix == ".py" else p) for p in map(Path, spec.graph.settings.artifacts.py_files)]

    def on_batch(batch: Any, batch_id: int) -> None:
        import sys

        sys.path[:0] = [p for p in paths if p not in sys.path]
        function(batch, batch_id)

    return on_batch
