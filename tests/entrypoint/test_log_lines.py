"""What a log line says of the job, attempt, epoch and request that it is about."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import Iterator

import pytest

from firesteel.log_context import JsonFormatter, TextFormatter, context_fields, log_context

JOB = "a" * 32


class Lines(logging.Handler):
    def __init__(self, formatter: logging.Formatter) -> None:
        super().__init__()
        self.setFormatter(formatter)
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture(params=[TextFormatter, JsonFormatter])
def lines(request: pytest.FixtureRequest) -> Iterator[Lines]:
    handler = Lines(request.param())
    logger = logging.getLogger("firesteel.tests.lines")
    logger.addHandler(handler)
    yield handler
    logger.removeHandler(handler)


def say(text: str) -> None:
    logging.getLogger("firesteel.tests.lines").warning(text)


def test_tasks_of_a_job_say_which_job_and_attempt_whatever_request_brought_it(lines: Lines) -> None:
    async def work() -> None:
        say("deployed")

    async def job() -> None:
        with log_context(epoch="7", job=JOB) as fields:
            fields["attempt"] = "1"
            first = asyncio.create_task(work())
            await first
            fields["attempt"] = "2"
            await asyncio.create_task(work())

    async def main() -> None:
        with log_context(request="r-1"):
            brought = asyncio.create_task(job())
            say("accepted")
        await brought
        say("idle")

    asyncio.run(main())
    if isinstance(lines.formatter, TextFormatter):
        ends = [line.partition("firesteel.tests.lines: ")[2] for line in lines.lines]
        assert ends == [
            "accepted [request=r-1]",
            f"deployed [epoch=7 job={JOB} attempt=1]",
            f"deployed [epoch=7 job={JOB} attempt=2]",
            "idle",
        ]
    else:
        read = [json.loads(line) for line in lines.lines]
        assert [(r["message"], r.get("job"), r.get("attempt"), r.get("request")) for r in read] == [
            ("accepted", None, None, "r-1"),
            ("deployed", JOB, "1", None),
            ("deployed", JOB, "2", None),
            ("idle", None, None, None),
        ]
        assert {r["level"] for r in read} == {"WARNING"}


def test_text_does_not_say_twice_what_the_message_says(lines: Lines) -> None:
    with log_context(epoch="7", job=JOB):
        say(f"job {JOB}: CREATED → RUNNING")
    if isinstance(lines.formatter, TextFormatter):
        assert lines.lines[0].endswith(f"job {JOB}: CREATED → RUNNING [epoch=7]")
    else:
        assert json.loads(lines.lines[0])["job"] == JOB


def test_error_is_one_json_object_with_its_traceback(lines: Lines) -> None:
    try:
        raise RuntimeError("two\nlines")
    except RuntimeError:
        logging.getLogger("firesteel.tests.lines").exception("it failed")
    if isinstance(lines.formatter, JsonFormatter):
        assert "RuntimeError: two\nlines" in json.loads(lines.lines[0])["exception"]
        assert "\n" not in lines.lines[0]


def test_context_ends_with_its_block() -> None:
    with log_context(job=JOB):
        assert context_fields() == {"job": JOB}
    assert context_fields() == {}
