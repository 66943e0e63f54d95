"""The collector of uploaded files: what a job needs stays for as long as it needs it, and what nobody needs goes."""

from __future__ import annotations

import time
from collections.abc import Callable

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.blob.keys import BlobRef
from firesteel.testing import FakeEngines, FakeExecutor, MiniCluster
from firesteel.testing.fakes import runs_on
from firesteel.types import new_job_id

SECONDS = 30.0


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + SECONDS
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def test_file_of_a_running_job_stays_until_the_job_is_gone() -> None:
    executor = FakeExecutor(runs_on)
    options = {"blob.cleanup-interval": "10 ms", "blob.cleanup-grace": "10 ms"}
    with MiniCluster(options, executor=executor, engines=FakeEngines()) as cluster:

        def there(ref: BlobRef) -> bool:
            node = cluster._node
            assert node is not None
            assert node._component is not None
            return cluster.call(node._component.dispatcher._services.blobs.visible, ref.key, None)

        needed = cluster.client.upload(b"print('needed')", "needed.py")
        job_id = new_job_id()
        vertex = {"kind": "script", "name": "s", "file": str(needed), "api": "connect"}
        job = cluster.client.submit({"name": "needs", "vertices": [vertex]}, job_id=job_id)
        idle = cluster.client.upload(b"print('idle')", "idle.py")
        until(lambda: not there(idle))
        # The collector has been here, more than once by now, and the running job has what it needs.
        assert there(needed)
        cluster.call(executor.end, job_id, AttemptResult(AttemptState.FINISHED, ended_at=time.time()))
        job.wait()
        until(lambda: not there(needed))
