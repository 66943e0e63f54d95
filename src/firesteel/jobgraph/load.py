"""Loading a pipeline file as a valid JobGraph."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from firesteel.errors import InvalidPipelineError, Problem

from .admission import Policy, admit, parse_graph
from .document import Document
from .model import JobGraph
from .yaml_source import read_json, read_yaml

__all__ = ["LoadedPipeline", "load_pipeline", "parse_graph"]

SUFFIXES = (".yaml", ".yml", ".json", ".sql", ".py")


@dataclass(frozen=True)
class LoadedPipeline:
    graph: JobGraph
    problems: tuple[Problem, ...]
    """Suspicions that only Spark can settle. Certain problems have been raised."""
    variables: Mapping[str, str]
    """The variables of the pipeline and their values."""
    base_dir: Path
    """The absolute directory against which the pipeline's relative paths were resolved."""
    file: Path
    """The path as the caller gave it."""


def load_pipeline(path: Path, *, variables: Mapping[str, str] | None = None) -> LoadedPipeline:
    """Read, complete and validate the pipeline in `path`.

    Code in a `.py` pipeline runs in a process of its own; no user code runs in this one.

    Raises:
        InvalidPipelineError: with everything that is wrong with it.
    """
    document = _read(path)
    base_dir = path.parent.absolute()
    admitted = admit(document, Policy(base_dir=base_dir), variables=variables or {})
    return LoadedPipeline(admitted.graph, admitted.problems, admitted.variables, base_dir, path)


def _read(path: Path) -> Document:
    file = str(path)
    if path.suffix.lower() not in SUFFIXES:
        _fail(file, f"'{path.suffix}' is not a suffix of pipeline files", f"use one of {', '.join(SUFFIXES)}")
    try:
        text = path.read_text("utf-8-sig")
    except FileNotFoundError:
        _fail(file, "no such file", "check the path")
    except IsADirectoryError:
        _fail(file, "this is a directory", "give the pipeline file in it")
    except OSError as error:
        _fail(file, f"the file cannot be read: {error.strerror}", "check its permissions")
    except UnicodeDecodeError:
        _fail(file, "the file is not UTF-8 text", "save it as UTF-8")
    match path.suffix.lower():
        case ".json":
            return read_json(text, file=file)
        case ".sql":
            from .sql_source import read_sql

            return read_sql(text, file=file)
        case ".py":
            from .python_source import read_python

            return read_python(path, text)
        case _:
            return read_yaml(text, file=file)


def _fail(file: str, message: str, fix: str) -> NoReturn:
    raise InvalidPipelineError([Problem(message, fix, file=file)])
