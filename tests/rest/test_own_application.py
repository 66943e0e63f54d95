"""`/applications` of an application cluster answers from the application's record, and its door is open to its program."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from tests.rest.desk import ADMIN, Desk

from firesteel.dispatcher.bootstrap import NOTHING_SUBMITTED
from firesteel.jobgraph import parse_graph
from firesteel.rest.application_tokens import ApplicationTokens
from firesteel.stores.applications import TRANSITIONS, ApplicationRecord, ApplicationState
from firesteel.stores.job_graphs import Submission
from firesteel.types import JobID

APPLICATION = JobID("a" * 32)
PROGRAM = Submission(
    APPLICATION,
    parse_graph({"name": "app", "vertices": [{"kind": "script", "name": "s", "file": "/p.py", "api": "none"}]}),
    100.0,
    "digest",
    owner="alice",
)
CREATED = ApplicationRecord(PROGRAM, timestamps={"CREATED": 100.0})
FAILED = CREATED.entered(ApplicationState.RUNNING, 101.0).entered(ApplicationState.FAILED, 109.0, NOTHING_SUBMITTED)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def test_application_is_what_its_record_says(desk: Desk) -> None:
    desk.gateway.application = FAILED
    client = desk.client(ADMIN)
    (shown,) = client.get("/applications/overview").json()["applications"]
    assert (shown["id"], shown["name"], shown["status"], shown["duration"]) == (APPLICATION, "app", "FAILED", 9000)
    details = client.get(f"/applications/{APPLICATION}").json()
    assert details["timestamps"]["RUNNING"] == 101_000
    assert details["timestamps"]["CANCELED"] == 0
    said = client.get(f"/applications/{APPLICATION}/exceptions").json()["exceptionHistory"]["entries"]
    assert said[0]["stacktrace"] == NOTHING_SUBMITTED
    assert client.get(f"/applications/{'b' * 32}").status_code == 404


def test_record_survives_the_store() -> None:
    path = f"applications/{APPLICATION}"
    assert ApplicationRecord.from_bytes(path, FAILED.to_bytes()) == FAILED


@pytest.mark.parametrize("before", ApplicationState)
def test_states_follow_the_table(before: ApplicationState) -> None:
    record = ApplicationRecord(PROGRAM, before)
    for after in ApplicationState:
        if after in TRANSITIONS[before]:
            assert record.entered(after, 1.0).state is after
        else:
            with pytest.raises(ValueError, match=f"{before.value} cannot become {after.value}"):
                record.entered(after, 1.0)


def test_token_of_a_program_is_believed_by_its_own_cluster_only() -> None:
    async def main() -> None:
        async def mine() -> bytes:
            return b"m" * 32

        async def other() -> bytes:
            return b"o" * 32

        token = await ApplicationTokens(mine).issue(APPLICATION, "alice", restricted=True)
        who = await ApplicationTokens(mine).authenticate(token)
        assert who is not None
        assert (who.owner, who.role.value, who.application) == ("alice", "operator", APPLICATION)
        assert await ApplicationTokens(other).authenticate(token) is None
        assert await ApplicationTokens(mine).authenticate(token[:-2]) is None

    asyncio.run(main())
