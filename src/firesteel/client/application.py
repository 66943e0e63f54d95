"""Ids of the jobs that a program of an application submits: derived, so that a program that runs again finds its jobs.

The id of a job follows from the application, the job's name, and how many jobs of this name the program has submitted before.
A program that does the same again submits the same jobs, and those that run or have ended are not started a second time.
"""

from __future__ import annotations

import hashlib
import os
import threading
from collections import Counter
from collections.abc import Mapping

from firesteel.layout import APPLICATION_VARIABLE
from firesteel.types import JobID, is_job_id


class ApplicationJobs:
    """Counts the jobs of this process; several clients and threads may share it."""

    def __init__(self, environ: Mapping[str, str] = os.environ) -> None:
        self._environ = environ
        self._count: Counter[str] = Counter()
        self._counting = threading.Lock()

    def next_id(self, name: str) -> JobID | None:
        """The id of the next job of this name; None outside of an application."""
        application = self._environ.get(APPLICATION_VARIABLE, "")
        if not is_job_id(application):
            return None
        with self._counting:
            self._count[name] += 1
            number = self._count[name]
        return derived_id(JobID(application), name, number)


def derived_id(application: JobID, name: str, number: int) -> JobID:
    """Of the job that is the `number`-th of its name in the application, from 1."""
    text = f"{application}\0{len(name)}\0{name}\0{number}"
    return JobID(hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:32])


OF_THIS_PROCESS = ApplicationJobs()
