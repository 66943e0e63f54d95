"""Changes that the cluster's configuration makes to an admitted graph when it is accepted."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence

from firesteel.errors import InvalidConfigError, Problem
from firesteel.stores.job_graphs import Submission


def with_overrides(submission: Submission, overrides: Sequence[str]) -> Submission:
    """The submission with the parallelism that the cluster prescribes for its name. Its digest stays the client's own."""
    wanted = parse_overrides(overrides).get(submission.graph.name)
    if wanted is None:
        return submission
    return dataclasses.replace(submission, graph=submission.graph.with_(parallelism=wanted))


def parse_overrides(words: Sequence[str]) -> dict[str, int]:
    found: dict[str, int] = {}
    problems = []
    for word in words:
        name, _, number = word.rpartition(":")
        if name and number.isdigit() and int(number) > 0:
            found[name] = int(number)
        else:
            problems.append(
                Problem(
                    f"'{word}' is not of the form job-name:N",
                    "write for example orders:4",
                    field="jobmanager.parallelism-overrides",
                )
            )
    if problems:
        raise InvalidConfigError(problems)
    return found
