"""The application of an application cluster: shipping its program, telling it where its cluster is, and its end."""

from __future__ import annotations

import asyncio
import json
import logging
import shutil
import time
from collections.abc import AsyncIterator, Mapping
from pathlib import Path

from firesteel.blob.keys import BlobRef
from firesteel.blob.store import BlobStore
from firesteel.config import Configuration
from firesteel.config.option import variable_of
from firesteel.entrypoint.application_status import ApplicationStatus
from firesteel.errors import FiresteelError
from firesteel.fs.files import write_atomically
from firesteel.ha.protocols import Epoch, StateStore
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.jobgraph.files import files_of, with_files
from firesteel.jobgraph.model import ScriptApi
from firesteel.jobgraph.uploading import Uploads, upload_files
from firesteel.layout import APPLICATION_VARIABLE, ClusterLayout
from firesteel.rest.application_tokens import ApplicationTokens
from firesteel.stores.applications import ApplicationRecord, ApplicationState
from firesteel.stores.job_graphs import Submission
from firesteel.types import JobID
from firesteel.worker.sandboxing import sandbox_policy

logger = logging.getLogger(__name__)

GRACE_SECONDS = 1.0
"""How long the result can still be asked for when all is done."""
PIECE = 1 << 20

STATUS: Mapping[ApplicationState, ApplicationStatus] = {
    ApplicationState.FINISHED: ApplicationStatus.SUCCEEDED,
    ApplicationState.FAILED: ApplicationStatus.FAILED,
    ApplicationState.CANCELED: ApplicationStatus.CANCELED,
}


async def ship(application: ApplicationConfiguration, blobs: BlobStore, owner: str) -> Submission:
    """The program with its files in the cluster's own store: from here on nothing is read from where it was deployed.

    Raises InvalidPipelineError, which names every file that is not there.
    """

    async def upload(path: Path, name: str) -> BlobRef:
        return BlobRef((await blobs.put(_pieces(path), owner=owner)).key, name)

    graph = application.program
    uploaded = await upload_files(Uploads(upload, asyncio.to_thread), files_of(graph))
    graph = with_files(graph, uploaded.places, uploaded.modules)
    digest = await asyncio.to_thread(digest_of, graph, priority=application.priority)
    return Submission(
        application.application_id, graph, time.time(), digest, priority=application.priority, owner=owner
    )


async def _pieces(path: Path) -> AsyncIterator[bytes]:
    file = await asyncio.to_thread(path.open, "rb")
    try:
        while piece := await asyncio.to_thread(file.read, PIECE):
            yield piece
    finally:
        await asyncio.to_thread(file.close)


class ProgramEnvironment:
    """The variables by which `firesteel.connect()` in a program finds the cluster that it runs in."""

    def __init__(self, configuration: Configuration, tokens: ApplicationTokens) -> None:
        self._configuration = configuration
        self._tokens = tokens

    async def of(self, submission: Submission, application_id: JobID | None, address: str) -> dict[str, str]:
        """Raises FiresteelError for a program that has to have a cluster of its own, and has none."""
        script = submission.graph.script
        if script is None:
            return {}
        if application_id is None:
            if script.api is ScriptApi.NONE:
                raise FiresteelError(
                    "this program submits jobs itself, and so needs a cluster of its own: run it with "
                    "`firesteel run-application`"
                )
            return {}
        token = await self._tokens.issue(application_id, submission.owner, restricted=submission.restricted)
        policy = sandbox_policy(self._configuration)
        settings = {
            "data.dir": str(self._configuration.data.dir),
            "high-availability.cluster-id": self._configuration.high_availability.cluster_id,
            # A program that sees the node's files finds a node that was restarted, too.
            "client.addresses": "" if policy is None or policy.trusts(submission.owner) else address,
            "client.token": token,
        }
        return {APPLICATION_VARIABLE: application_id, **{variable_of(k): v for k, v in settings.items()}}


# -- the end ------------------------------------------------------------------------------------------------------


def note_end(layout: ClusterLayout, record: ApplicationRecord) -> None:
    """What is left to say when the cluster is gone: how the application ended. Whoever deploys it again is told."""
    status = STATUS[record.state]
    said = {
        "application_id": record.application_id,
        "status": status.name,
        "exit_code": status.exit_code,
        "failure": record.failure,
        "digest": record.program.digest,
        "ended_at": record.ended_at,
    }
    write_atomically(layout.application_end, json.dumps(said, indent=1) + "\n", mode=0o600)


async def remove_all(store: StateStore, epoch: Epoch) -> None:
    """Remove everything that the cluster has in the store; the application itself last, so that a crash in between leaves a
    record that says how it ended."""
    prefixes = ("graphs", "jobs", "results", "operations", "parked", "uploads", "cluster", "applications")
    for prefix in prefixes:
        for path in await store.paths(prefix):
            await store.delete(path, epoch=epoch)


def remove_files(layout: ClusterLayout) -> None:
    """Remove what only a running cluster needs. Logs and the note about the end stay."""
    for directory in (layout.blobs, layout.engines, layout.finished):
        shutil.rmtree(directory, ignore_errors=True)
    for job in layout.jobs.iterdir() if layout.jobs.is_dir() else ():
        for inner in ("artifacts", "work"):
            shutil.rmtree(job / inner, ignore_errors=True)
