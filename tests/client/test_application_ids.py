"""Ids of the jobs that the program of an application submits."""

from __future__ import annotations

from firesteel.client.application import ApplicationJobs, derived_id
from firesteel.layout import APPLICATION_VARIABLE
from firesteel.types import JobID, is_job_id

APPLICATION = JobID("a" * 32)


def test_program_that_runs_again_gets_the_same_ids() -> None:
    names = ["one", "two", "one", "one"]
    first, again = (ApplicationJobs({APPLICATION_VARIABLE: APPLICATION}) for _ in range(2))
    ids = [first.next_id(name) for name in names]
    assert ids == [again.next_id(name) for name in names]
    assert len(set(ids)) == len(names)
    assert all(i is not None and is_job_id(i) and i != APPLICATION for i in ids)
    assert ids[2] == derived_id(APPLICATION, "one", 2)


def test_order_of_jobs_with_other_names_does_not_matter() -> None:
    one, other = (ApplicationJobs({APPLICATION_VARIABLE: APPLICATION}) for _ in range(2))
    assert [one.next_id("a"), one.next_id("b")] == [other.next_id("b"), other.next_id("a")][::-1]


def test_outside_of_an_application_ids_are_not_derived() -> None:
    assert ApplicationJobs({}).next_id("one") is None
    assert ApplicationJobs({APPLICATION_VARIABLE: "nonsense"}).next_id("one") is None
