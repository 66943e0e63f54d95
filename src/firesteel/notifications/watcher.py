"""Notices what happens to jobs, and has it delivered. Every event is stored before it is sent, and survives leaders."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from firesteel.concurrency import OwnedTasks
from firesteel.delivery.delivery import MessageDelivery, Send, UndeliverableError
from firesteel.errors import FencingError, FiresteelError, NotLeadingError
from firesteel.jobmaster.events import STATE, JobEvents, Subscription
from firesteel.status import JobStatus
from firesteel.types import JobID

from .rules import ENDS, NotificationLimits, Occasion, Subscribers, of_end, of_restarts, of_stream
from .targets import NotificationTarget

logger = logging.getLogger(__name__)

CHECK_SECONDS = 15.0
_REMEMBERED = 10_000


class NotificationWatcher:
    """A JobWatcher."""

    def __init__(
        self,
        targets: Mapping[str, NotificationTarget],
        make_delivery: Callable[[Send], MessageDelivery],
        *,
        subscribers: Subscribers,
        limits: NotificationLimits,
        cluster: str,
        now: Callable[[], float],
        on_error: Callable[[BaseException], None],
    ) -> None:
        self._targets = targets
        self._delivery = make_delivery(self._send)
        self._subscribers = subscribers
        self._limits = limits
        self._cluster = cluster
        self._now = now
        self._tasks = OwnedTasks("notifications", on_error)
        self._running: set[JobID] = set()
        self._told: dict[str, None] = {}
        """Events that were stored by this leader."""

    def start(self, events: JobEvents, request_job: Callable[[JobID], Awaitable[dict[str, Any]]]) -> None:
        self._delivery.start()
        self._tasks.start(self._follow(events.subscribe(), request_job), "follow")
        if self._limits.lag or self._limits.batch:
            self._tasks.start(self._look(request_job), "look")

    async def close(self) -> None:
        await self._tasks.close()
        await self._delivery.close()

    async def ended(self, details: Mapping[str, Any]) -> None:
        if JobStatus(details["status"]) in ENDS:
            await self._tell(details, of_end(details, self._cluster))

    async def _follow(
        self, subscription: Subscription, request_job: Callable[[JobID], Awaitable[dict[str, Any]]]
    ) -> None:
        with subscription:
            while True:
                event = await subscription.next()
                if event.kind != STATE:
                    continue
                status = event.data["status"]
                (self._running.add if status == JobStatus.RUNNING else self._running.discard)(event.job_id)
                if status == JobStatus.RESTARTING and not await self._about(
                    event.job_id, request_job, lambda job: [of_restarts(job, self._limits, self._now(), self._cluster)]
                ):
                    return

    async def _look(self, request_job: Callable[[JobID], Awaitable[dict[str, Any]]]) -> None:
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            for job_id in list(self._running):
                if not await self._about(
                    job_id, request_job, lambda job: of_stream(job, self._limits, self._now(), self._cluster)
                ):
                    return

    async def _about(
        self,
        job_id: JobID,
        request_job: Callable[[JobID], Awaitable[dict[str, Any]]],
        judge: Callable[[Mapping[str, Any]], list[Any]],
    ) -> bool:
        """Tell what `judge` finds; False once this node leads no more."""
        try:
            job = await request_job(job_id)
            for event in judge(job):
                if event is not None:
                    await self._tell(job, event)
        except (NotLeadingError, FencingError):
            return False
        except (FiresteelError, ValueError, KeyError, TypeError, AttributeError) as error:
            # What drivers report is theirs to write; one that reports nonsense is not watched.
            logger.info("job %s: nothing is told: %s", job_id, error)
        return True

    async def _tell(self, job: Mapping[str, Any], event: Mapping[str, Any]) -> None:
        for target in self._subscribers.of(Occasion(event["event"]), job):
            message_id = "".join(c if c.isalnum() or c in "._-" else "-" for c in f"{event['id']}.{target}")
            if message_id in self._told:
                continue
            await self._delivery.keep(message_id, {"target": target, "event": dict(event)})
            self._told[message_id] = None
            while len(self._told) > _REMEMBERED:
                del self._told[next(iter(self._told))]

    async def _send(self, _message_id: str, body: Mapping[str, Any]) -> None:
        target = self._targets.get(str(body["target"]))
        if target is None:
            raise UndeliverableError(f"'{body['target']}' is not a target any more")
        await target.send(body["event"])
