"""Render the page about Flink's REST API.

python -m firesteel.flink_rest.coverage_page > docs/reference/flink-rest.md
"""

from __future__ import annotations

import sys
from collections import Counter

from firesteel.flink_rest.coverage import ROWS, SECTIONS
from firesteel.flink_rest.table import ContractRow, How

COMMAND = "python -m firesteel.flink_rest.coverage_page > docs/reference/flink-rest.md"

_INTRODUCTION = f"""\
<!-- Generated from firesteel.flink_rest.coverage. Do not edit; run: {COMMAND} -->

# Flink's REST API

Firesteel implements version 1 of Flink's REST API, as of Flink 2.3.0, so that Flink's command line and dashboard, and
programs that use the API, work with jobs that run on Spark. Every path exists bare and under `/v1`, with or without a
trailing slash.

## Terms

| In the API | Here |
|---|---|
| job, its id and states | the same |
| application | a job; the ids are equal |
| vertex | a vertex of the job graph; its id is derived from its name |
| subtask | every vertex has one, number 0; Spark's tasks are not shown |
| attempt of a subtask | an attempt of the job; the first is 0 |
| task manager | an engine |
| records read and written | as far as known: exact counts, Spark's operators, streaming queries (see the `-complete` flags) |
| checkpoint | a committed batch of a stream; its number is the batch's |
| savepoint | the same |
| jar | an uploaded Python program or pipeline |

Execution states follow the job's state, as a job runs in one driver: CREATED is SCHEDULED, CANCELLING and FAILING are
CANCELING, RESTARTING is FAILED; a sink that is done before the others is FINISHED.

## General differences

- Errors are sentences, without the name of a Java class and without a stack. The body is the same: `{{"errors": ["..."]}}`.
- A caller's mistake is never a 5xx. Where Flink answers 500 for something unknown, Firesteel answers 404. A 503 is only
  sent while the cluster has no leader; clients retry.
- Callers only see their own jobs, and jobs of others look as if they did not exist. Changes need the role operator or
  admin, and the job must be the caller's.
- `access-control-allow-origin: *` is not sent: pages of other origins cannot read answers unless
  `security.rest.allowed-origins` names them.
- Secrets are masked wherever settings, plans and failures are shown.
"""


def render() -> str:
    """The whole page, as markdown."""
    return "\n".join([_INTRODUCTION, *(_section(s.title, s.rows) for s in SECTIONS), _counts()])


def _section(title: str, rows: tuple[ContractRow, ...]) -> str:
    lines = [
        f"## {title}",
        "",
        "| Operation | | What it shows | Where it differs |",
        "|---|---|---|---|",
        *(_row(r) for r in rows),
        "",
    ]
    return "\n".join(lines)


def _row(row: ContractRow) -> str:
    mark = "" if row.specified else " \\*"
    return f"| `{row.method} {row.path}`{mark} | {row.how.value} | {_sentence(row.shows)} | {_sentence(row.differs)} |"


def _sentence(text: str) -> str:
    return f"{text[:1].upper()}{text[1:]}"


def _counts() -> str:
    found = Counter(r.how for r in ROWS)
    counts = ", ".join(f"{found[how]} {how.value}" for how in How)
    return f"\\* not in Flink's OpenAPI document. Of {len(ROWS)} operations: {counts}.\n"


if __name__ == "__main__":
    sys.stdout.write(render())
