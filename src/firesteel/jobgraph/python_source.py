"""Pipelines written in Python: files that build a Job, and plain PySpark scripts.

Its syntax tree tells which of the two a file is. A file that builds a Job is run in a process of its own, by
`extract`, because it is user code and may print, hang, exit or import anything.
"""

from __future__ import annotations

import ast
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

from firesteel.errors import Problem

from .document import Document, Loc

TIMEOUT_S = 60.0
_TAIL_LINES = 20
_CONNECT = ("connect", "connect_async")


def read_python(path: Path, text: str, *, timeout_s: float = TIMEOUT_S) -> Document:
    file = str(path)
    try:
        tree = ast.parse(text, file)
    except (SyntaxError, ValueError) as error:
        line = error.lineno if isinstance(error, SyntaxError) else None
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        return Document(
            None, problems=(Problem(f"this is not Python: {what}", "correct it", file=file, line=line),), file=file
        )
    if builds_job(tree):
        return _extract(path, file, timeout_s)
    vertex = {"kind": "script", "name": "script", "file": path.name}
    if submits_jobs(tree) and not _uses_spark(tree):
        vertex["api"] = "none"
    return Document({"name": path.stem[:200], "vertices": [vertex]}, file=file)


def submits_jobs(tree: ast.Module) -> bool:
    """Whether the file is a program that submits jobs by itself, with `firesteel.connect()`."""
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module="firesteel" | "firesteel.client", level=0):
                if any(alias.name in _CONNECT for alias in node.names):
                    return True
            case ast.Attribute(value=ast.Name(id="firesteel"), attr=name) if name in _CONNECT:
                return True
    return False


def _uses_spark(tree: ast.Module) -> bool:
    for node in ast.walk(tree):
        match node:
            case ast.Import() if any(alias.name.partition(".")[0] == "pyspark" for alias in node.names):
                return True
            case ast.ImportFrom(module=str(module), level=0) if module.partition(".")[0] == "pyspark":
                return True
    return False


def builds_job(tree: ast.Module) -> bool:
    """Whether the file describes a job with Firesteel's Job; otherwise it is a program, which may submit jobs itself."""
    if submits_jobs(tree):
        return False
    modules = ("firesteel", "firesteel.jobgraph", "firesteel.jobgraph.api")
    for node in ast.walk(tree):
        match node:
            case ast.ImportFrom(module=module, level=0) if module in modules:
                if any(alias.name in ("Job", "*") for alias in node.names):
                    return True
            case ast.Attribute(value=ast.Name(id="firesteel"), attr="Job"):
                return True
    return False


def _extract(path: Path, file: str, timeout_s: float) -> Document:
    argv = [sys.executable, "-P", "-m", "firesteel.jobgraph.extract", str(path.absolute())]
    # A session of its own, so that whatever the user's code started ends with it.
    process = subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    try:
        out, err = process.communicate(timeout=timeout_s)
    except subprocess.TimeoutExpired:
        _kill(process)
        _, err = process.communicate()
        message = f"building the job took more than {timeout_s:g} s"
        return _failed(file, message, "only describe the job in this file, and do the computing in its vertices", err)
    except BaseException:
        _kill(process)
        process.wait()
        raise
    try:
        answer: Any = json.loads(out)
    except ValueError:
        return _failed(file, f"building the job ended with exit code {process.returncode}", "correct it", err)
    if "error" in answer:
        if answer.get("traceback"):
            return _failed(file, f"building the job failed: {answer['error']}", "correct it", err, answer.get("line"))
        return Document(None, problems=(Problem(answer["error"], answer["fix"], file=file),), file=file)
    lines: dict[Loc, int] = {tuple(loc): line for loc, line in answer["lines"]}
    problems = tuple(Problem(**p, file=file) for p in answer["problems"])
    return Document(answer["data"], lines, problems, file)


def _kill(process: subprocess.Popen[bytes]) -> None:
    try:
        os.killpg(process.pid, signal.SIGKILL)
    except ProcessLookupError:
        pass


def _failed(file: str, message: str, fix: str, err: bytes, line: int | None = None) -> Document:
    tail = err.decode("utf-8", "replace").strip().splitlines()[-_TAIL_LINES:]
    if tail:
        fix += "; its output was:\n" + "\n".join(f"    {t}" for t in tail)
    return Document(None, problems=(Problem(message, fix, file=file, line=line),), file=file)
