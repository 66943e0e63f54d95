"""Which job, attempt, epoch and request a log line is about: known by the task that writes it, not repeated in each message."""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterator, MutableMapping
from contextvars import ContextVar

import orjson

_FIELDS: ContextVar[MutableMapping[str, str]] = ContextVar("log_context")
_ORDER = ("epoch", "job", "attempt", "request")
_LONG = ("job", "request")
"""Not said twice. The others are short numbers, which may be in a message by chance."""


@contextlib.contextmanager
def log_context(**fields: str) -> Iterator[MutableMapping[str, str]]:
    """For the lines of this task and of the tasks that it starts. What is set in the mapping later is said by all of them.

    It replaces what was said before: a job outlives the request that brought it.
    """
    made: MutableMapping[str, str] = dict(fields)
    token = _FIELDS.set(made)
    try:
        yield made
    finally:
        with contextlib.suppress(ValueError):  # left in another task than it was entered in, as generators are
            _FIELDS.reset(token)


def context_fields() -> dict[str, str]:
    """What is known here, in the order in which it is printed."""
    fields = _FIELDS.get({})
    return {name: fields[name] for name in _ORDER if fields.get(name)}


class TextFormatter(logging.Formatter):
    """One line for people; the context follows the message, unless the message has it already."""

    def __init__(self) -> None:
        super().__init__("%(asctime)s %(levelname)-7s %(name)s: %(message)s")

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - as in logging
        line = super().formatMessage(record)
        fields = context_fields().items()
        unsaid = [f"{name}={value}" for name, value in fields if name not in _LONG or value not in record.message]
        return f"{line} [{' '.join(unsaid)}]" if unsaid else line


class JsonFormatter(logging.Formatter):
    """One JSON object a line, for machines."""

    def format(self, record: logging.LogRecord) -> str:
        line: dict[str, str] = {
            "time": self.formatTime(record, "%Y-%m-%dT%H:%M:%S") + f".{int(record.msecs):03d}",
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
            **context_fields(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        return orjson.dumps(line).decode()
