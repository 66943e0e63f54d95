"""S41: ids that are derived with a secret, for keys of callers and for what an attempt has on its engine."""

from __future__ import annotations

import asyncio
import hashlib
import uuid

import pytest
from tests.stores.store_doubles import EPOCH, FaultyStore

from firesteel.errors import StoreUnavailableError
from firesteel.stores.job_keys import JobKeys, ensure_job_key, job_id_of
from firesteel.types import AttemptId, JobID, SparkIds

ATTEMPT = AttemptId(JobID("a" * 32), 1)


def test_a_key_is_the_same_job_for_every_leader_and_another_one_for_every_owner_and_cluster() -> None:
    async def main() -> None:
        store, other = FaultyStore(), FaultyStore()
        with pytest.raises(StoreUnavailableError):
            await JobKeys(store)("team-a", "nightly")
        await ensure_job_key(store, EPOCH)
        first = await JobKeys(store)("team-a", "nightly")
        await ensure_job_key(store, EPOCH)  # the next leader
        assert await JobKeys(store)("team-a", "nightly") == first
        await ensure_job_key(other, EPOCH)
        others = {
            await JobKeys(other)("team-a", "nightly"),
            await JobKeys(store)("team-b", "nightly"),
            await JobKeys(store)("team-a", "nightly2"),
            hashlib.sha256(b"team-a\0nightly").hexdigest()[:32],
        }
        assert len(others | {first}) == 5

    asyncio.run(main())


def test_owner_and_key_do_not_run_into_each_other() -> None:
    assert job_id_of(b"s", "a", "b\0c") != job_id_of(b"s", "a\0b", "c")


def test_what_an_attempt_is_called_on_its_engine_follows_from_its_secret_alone() -> None:
    mine, same, others = (SparkIds(ATTEMPT, "team-a", secret) for secret in ("s1", "s1", "s2"))
    assert (mine.session_id, mine.operation_id("o")) == (same.session_id, same.operation_id("o"))
    made = {mine.session_id, mine.operation_id("o"), mine.operation_id("p"), mine.further_session_id(2)}
    made |= {others.session_id, others.operation_id("o"), others.further_session_id(2)}
    assert len(made) == 7
    assert all(str(uuid.UUID(text)) == text for text in made)
    assert "s1" not in repr(mine)


def test_owners_are_users_of_spark_of_their_own() -> None:
    users = {SparkIds(ATTEMPT, owner, "s").user_id for owner in ("team-a", "team-b", "", "x;token=y")}
    assert len(users) == 4
    assert all(user.replace("-", "").isalnum() for user in users)
