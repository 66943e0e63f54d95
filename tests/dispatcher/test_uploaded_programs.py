"""Programs that were uploaded belong to the cluster: every leader knows them, and nobody else changes them."""

from __future__ import annotations

from pathlib import Path

import pytest
from tests.dispatcher.sim_cluster import Cluster, once

from firesteel.errors import FencingError, NotLeadingError
from firesteel.stores.uploads import Upload


def upload(number: int) -> Upload:
    name = f"00000000-0000-4000-8000-{number:012x}_job.py"
    return Upload(name, "job.py", "ab" * 32, 12, float(number), "alice", "__main__")


def test_the_next_leader_knows_what_was_uploaded(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        for number in (1, 2):
            await cluster.ask(lambda d, n=number: d.register_upload(upload(n)))  # type: ignore[misc]
        assert await cluster.ask(lambda d: d.remove_upload(upload(1).upload_id))
        assert not await cluster.ask(lambda d: d.remove_upload(upload(1).upload_id))
        await cluster.fail_over()
        assert await cluster.ask(lambda d: d.list_uploads()) == [upload(2)]

    once(tmp_path, main)


def test_a_leader_that_was_fenced_says_that_it_leads_no_more(tmp_path: Path) -> None:
    async def main(cluster: Cluster) -> None:
        await cluster.ask(lambda d: d.register_upload(upload(1)))
        cluster.faults.writes.append(("uploads/", FencingError("another one leads")))
        with pytest.raises(NotLeadingError):
            await cluster.ask(lambda d: d.register_upload(upload(2)))

    once(tmp_path, main)
