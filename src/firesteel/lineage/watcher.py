"""Tells the lineage endpoint of jobs: START and RUNNING as they happen, the end for certain."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from importlib.metadata import PackageNotFoundError, version
from typing import Any

from firesteel.concurrency import OwnedTasks
from firesteel.delivery.delivery import MessageDelivery, Send
from firesteel.errors import FiresteelError, NotLeadingError
from firesteel.jobmaster.events import STATE, JobEvent, JobEvents, Subscription
from firesteel.masking import mask
from firesteel.status import JobStatus
from firesteel.types import JobID

from .column_process import ColumnProcess
from .events import FINAL, RunState, run_event
from .transports import LineageTransport

logger = logging.getLogger(__name__)

_SENT = ("job_id", "name", "mode", "owner", "status", "failure", "rows", "graph")
"""What an event is made of; the rest of the details need not be stored."""


class LineageWatcher:
    """A JobWatcher. `make_delivery` makes the delivery of this leadership, given how to send."""

    def __init__(
        self,
        transport: LineageTransport,
        make_delivery: Callable[[Send], MessageDelivery],
        *,
        namespace: str,
        columns: bool = True,
    ) -> None:
        self._transport = transport
        self._delivery = make_delivery(self._send)
        self._namespace = namespace
        self._columns = ColumnProcess() if columns else None
        self._tasks = OwnedTasks("lineage", lambda error: logger.error("lineage is not told any more: %s", error))
        self._last: dict[JobID, str] = {}

    def start(self, events: JobEvents, request_job: Callable[[JobID], Any]) -> None:
        self._delivery.start()
        self._tasks.start(self._follow(events.subscribe(), request_job), "follow")

    async def close(self) -> None:
        await self._tasks.close()
        await self._delivery.close()
        await self._transport.close()

    async def ended(self, details: Mapping[str, Any]) -> None:
        state = FINAL.get(JobStatus(details["status"]))
        if state is not None:
            at = details.get("ended_at") or details["submitted_at"]
            await self._delivery.keep(
                f"{details['job_id']}.{state.value}", await asyncio.to_thread(_body, state, at, details)
            )

    async def _follow(self, subscription: Subscription, request_job: Callable[[JobID], Any]) -> None:
        with subscription:
            while True:
                event = await subscription.next()
                if event.kind == STATE and (state := self._state(event)) is not None:
                    try:
                        details = await request_job(event.job_id)
                    except NotLeadingError:
                        return
                    except FiresteelError as error:
                        logger.info("job %s: lineage is not told: %s", event.job_id, error)
                        continue
                    body = await asyncio.to_thread(_body, state, event.at, details)
                    self._delivery.offer(f"{event.job_id}.{state.value}.{event.data.get('attempt', 0)}", body)

    def _state(self, event: JobEvent) -> RunState | None:
        """START with the first attempt, RUNNING with later ones and with a new leader; the end is told by `ended`."""
        before = self._last.pop(event.job_id, "")
        status = str(event.data["status"])
        if event.final:
            return None
        self._last[event.job_id] = status
        if status != JobStatus.RUNNING or before == JobStatus.RUNNING:
            return None
        first = event.data.get("attempt", 1) == 1 and before != JobStatus.RECONCILING
        return RunState.START if first else RunState.RUNNING

    async def _send(self, _message_id: str, body: Mapping[str, Any]) -> None:
        job = body["job"]
        vertices = (job.get("graph") or {}).get("vertices") or []
        columns = await self._columns.columns(vertices) if self._columns is not None else {}
        event = run_event(
            RunState(body["state"]),
            body["at"],
            job,
            namespace=self._namespace,
            producer=f"urn:firesteel:{_version('firesteel')}",
            spark=_version("pyspark"),
            columns=columns,
        )
        await self._transport.emit(event)


def _body(state: RunState, at: float, details: Mapping[str, Any]) -> dict[str, Any]:
    return {"state": state.value, "at": at, "job": mask({k: details[k] for k in _SENT if k in details})}


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return "unknown"
