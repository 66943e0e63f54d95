"""Describes why an attempt failed, in words that a person can act on."""

from __future__ import annotations

import re
import traceback
from dataclasses import replace
from pathlib import Path

from firesteel.errors import (
    EngineLostError,
    InvalidPipelineError,
    NothingToRestoreError,
    OutputError,
    QueryStoppedError,
    SupersededError,
)
from firesteel.failure import NO_SAVEPOINT, Failure, FailureKind
from firesteel.spark_connect.operation import error_class

_STATE_CLASSES = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
)
"""Spark's error classes for a query that is started on the state of another one."""
_DATA_CLASSES = (
    "CAST_INVALID_INPUT",
    "CAST_OVERFLOW",
    "DIVIDE_BY_ZERO",
    "ARITHMETIC_OVERFLOW",
    "MALFORMED_RECORD_IN_PARSING",
    "FAILED_READ_FILE",
    "INVALID_ARRAY_INDEX",
    "NUMERIC_VALUE_OUT_OF_RANGE",
    "PATH_NOT_FOUND",
    "USER_RAISED_EXCEPTION",
    "MAP_KEY_DOES_NOT_EXIST",
    "CANNOT_PARSE_TIMESTAMP",
)
_CAUSE = re.compile(r"^Caused by: ([\w.$]+): (.*?)(?=\n\tat |\nCaused by: |\Z)", re.DOTALL | re.MULTILINE)
_MEMORY_SIGNS = ("OutOfMemoryError", "Java heap space", "GC overhead limit", "UNABLE_TO_ACQUIRE_MEMORY")
_NOT_THE_USERS = (
    "/firesteel/driver/",
    "/firesteel/spark_connect/",
    "/pyspark/",
    "<frozen ",
    "/runpy.py",
    "/py4j/",
    "/grpc/",
)


def classify(error: BaseException, vertex: str | None = None) -> Failure:
    """The failure that an exception in a driver stands for."""
    text = first_lines(str(error))
    kind = error_class(str(error))
    trace = user_traceback(error)
    match error:
        case InvalidPipelineError():
            first, *others = error.problems
            # The kind and the vertex are said by the failure itself.
            message = "\n".join(map(str, [replace(first, vertex=None), *others]))
            kind = NO_SAVEPOINT if isinstance(error, NothingToRestoreError) else kind
            return Failure(FailureKind.INVALID_PIPELINE, message, first.vertex, kind)
        case OutputError():
            return Failure(FailureKind.OUTPUT, text, error.vertex)
        case EngineLostError():
            return Failure(FailureKind.ENGINE_LOST, text)
        case QueryStoppedError() | SupersededError():
            return Failure(FailureKind.KILLED, text, vertex)
        case SystemExit():
            code = error.code if isinstance(error.code, int) else 1
            said = f": {error.code}" if isinstance(error.code, str) else ""
            message = f"the program exited with code {code}{said}"
            # As the operating system has it: one byte. What would look like success there is 1.
            return Failure(FailureKind.EXIT_CODE, message, vertex, exit_code=code & 0xFF or 1)
        case ImportError():
            name = getattr(error, "name", None)
            hint = f"; add the file or package that contains '{name}' with -pyfs or artifacts.py_files, or install it"
            hint = hint if name else ""
            return Failure(FailureKind.IMPORT, f"{text}{hint}", vertex, traceback=trace)
        case MemoryError():
            return Failure(FailureKind.OUT_OF_MEMORY, "the driver process ran out of memory", vertex, traceback=trace)
    if any(sign in str(error) for sign in _MEMORY_SIGNS):
        return Failure(FailureKind.OUT_OF_MEMORY, text, vertex, kind, trace)
    if "StatusCode.UNAVAILABLE" in str(error) or "SESSION_CHANGED" in kind or "RETRIES_EXCEEDED" in kind:
        return Failure(FailureKind.ENGINE_LOST, text, error_class=kind)
    if kind.split(".")[0] in _STATE_CLASSES:
        where = f"sink '{vertex}'" if vertex else "a sink"
        message = (
            f"the state of {where} does not fit its query ({kind}): start without it, or with the query that it "
            "belongs to"
        )
        return Failure(FailureKind.INVALID_PIPELINE, message, vertex, kind)
    if (told := _data_class(kind, error)) is not None:
        return Failure(FailureKind.DATA, _with_cause(text, error), vertex, told, trace)
    name = type(error).__name__
    return Failure(FailureKind.USER_CODE, text if kind else f"{name}: {text}", vertex, kind, trace)


def _data_class(kind: str, error: BaseException) -> str | None:
    """The class by which Spark says that input is bad, which it may have wrapped in that of the write that broke on it."""
    classes = (kind, *(error_class(message) for _, message in causes_of(error)))
    return next((c for c in classes if c.split(".")[0] in _DATA_CLASSES), None)


def causes_of(error: BaseException) -> list[tuple[str, str]]:
    """Name and message of each exception of the JVM that this one was caused by."""
    stack = getattr(error, "getStackTrace", lambda: None)() or ""
    return [(kind.rpartition(".")[2], message.strip()) for kind, message in _CAUSE.findall(stack)]


def _with_cause(text: str, error: BaseException) -> str:
    """The message with its cause: Spark says that a file cannot be read, and names the reason only in the causes."""
    causes = causes_of(error)
    if not causes:
        return text
    told = next((message for _, message in causes if error_class(message)), "")
    last = f"{causes[-1][0]}: {causes[-1][1]}"
    lines = [first_lines(told.partition(" SQLSTATE")[0], 3)] if told else []
    if first_lines(last, 1) not in told:
        lines.append(first_lines(last, 2))
    return "\n".join([text, *(f"  cause: {line}" for line in lines)])


def first_lines(text: str, lines: int = 12) -> str:
    """A Spark message without its JVM stack."""
    text = text.partition("\n\nJVM stacktrace")[0].strip()
    kept = text.splitlines()
    return "\n".join(kept[:lines]) + ("\n…" if len(kept) > lines else "")


def user_traceback(error: BaseException) -> str:
    """The traceback as the user would see it without Firesteel: their own frames, then the error."""
    frames = [
        f
        for f in traceback.extract_tb(error.__traceback__)
        if not any(part in Path(f.filename).as_posix() for part in _NOT_THE_USERS)
    ]
    if not frames:
        return ""
    lines = ["Traceback (most recent call last):\n", *traceback.format_list(frames)]
    lines += [first_lines(line, 40) + "\n" for line in traceback.format_exception_only(error)]
    return "".join(lines)
