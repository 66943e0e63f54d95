"""What an error answer stands for."""

from __future__ import annotations

import json

import pytest

from firesteel.client.errors import ClusterError
from firesteel.client.requests import Request, error_of, get, of_job, retry_after, segment, with_json
from firesteel.errors import (
    BlobNotFoundError,
    DuplicateJobError,
    FiresteelError,
    ForbiddenError,
    InvalidRequestError,
    JobNotFoundError,
    JobStateError,
    RateLimitedError,
    TooLargeError,
    UnauthenticatedError,
)
from firesteel.types import new_job_id

JOB = of_job(new_job_id())
SUBMIT = Request("POST", "/jobs", conflict=DuplicateJobError)


def body(*messages: str) -> bytes:
    return json.dumps({"errors": messages}).encode()


@pytest.mark.parametrize(
    ("request_", "status", "kind"),
    [
        (JOB, 404, JobNotFoundError),
        (get("/blobs/x/info", missing=BlobNotFoundError), 404, BlobNotFoundError),
        (get("/engines"), 404, ClusterError),
        (JOB, 409, JobStateError),
        (SUBMIT, 409, DuplicateJobError),
        (SUBMIT, 400, InvalidRequestError),
        (SUBMIT, 401, UnauthenticatedError),
        (SUBMIT, 403, ForbiddenError),
        (SUBMIT, 413, TooLargeError),
        (SUBMIT, 429, RateLimitedError),
        (SUBMIT, 500, ClusterError),
        (SUBMIT, 503, ClusterError),
        (SUBMIT, 418, ClusterError),
    ],
)
@pytest.mark.parametrize("said", [True, False], ids=["with-words", "without"])
def test_status_becomes_the_error_that_it_was(
    request_: Request, status: int, kind: type[FiresteelError], said: bool
) -> None:
    error = error_of(request_, status, {}, body("these are the words") if said else b"<html>")
    assert type(error) is kind
    assert str(error)
    assert not said or "these are the words" in str(error)


def test_each_entry_of_a_bad_request_is_a_problem() -> None:
    error = error_of(SUBMIT, 400, {}, body("vertex 'a': no", "vertex 'b': neither"))
    assert isinstance(error, InvalidRequestError)
    assert [p.message for p in error.problems] == ["vertex 'a': no", "vertex 'b': neither"]


def test_error_that_has_no_name_keeps_status_and_words() -> None:
    error = error_of(SUBMIT, 500, {}, body("Internal server error.", "error id 12"))
    assert isinstance(error, ClusterError)
    assert (error.status, error.messages) == (500, ("Internal server error.", "error id 12"))
    assert "POST /jobs" in str(error)
    assert "<html>" in str(error_of(SUBMIT, 500, {}, b"<html>"))


def test_redirect_is_an_error_that_names_the_target() -> None:
    error = error_of(JOB, 307, {"location": "http://elsewhere/x"}, b"")
    assert isinstance(error, ClusterError)
    assert "http://elsewhere/x" in str(error)


def test_rate_limit_says_when_to_come_again() -> None:
    error = error_of(JOB, 429, {"retry-after": "7"}, body("slower"))
    assert isinstance(error, RateLimitedError)
    assert error.retry_after == 7


@pytest.mark.parametrize(
    ("value", "seconds"), [("3", 3.0), ("0.5", 0.5), ("-1", 0.0), ("nan", 0.0), ("inf", 0.0), ("Wed, 21 Oct 2015", 0.0)]
)
def test_retry_after(value: str, seconds: float) -> None:
    assert retry_after({"retry-after": value}) == seconds
    assert retry_after({}) == 0.0


def test_path_segments_cannot_leave_their_place() -> None:
    assert segment("../../x?y#z") == "..%2F..%2Fx%3Fy%23z"


@pytest.mark.parametrize("content", [{"x": object()}, {"x": float("nan")}])
def test_what_is_no_json_is_refused_before_it_is_sent(content: dict[str, object]) -> None:
    with pytest.raises(InvalidRequestError, match="JSON"):
        with_json("POST", "/jobs", content)
