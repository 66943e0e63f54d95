"""The Fleet: the workers of one leadership. They come to it by themselves, register, obey and report.

All methods are for the event loop. A Fleet belongs to one epoch; when the leadership ends it is closed, the streams of
commands end, and the workers look for the next leader.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator, Callable, Collection, Mapping, Sequence
from dataclasses import replace
from typing import Any, Protocol

from firesteel.attempts.attempt import AttemptResult, AttemptState
from firesteel.concurrency import RETRIES, OwnedTasks, retry
from firesteel.errors import (
    FencingError,
    FiresteelError,
    StoreError,
    WorkerLostError,
    WorkerNotFoundError,
    WorkerStateError,
)
from firesteel.failure import Failure, FailureKind
from firesteel.fleet.contact import RUN_ON, Contact
from firesteel.fleet.link import WorkerLink, WorkerRestartedError
from firesteel.fleet.view import Standing, WorkerView
from firesteel.ha.protocols import Epoch
from firesteel.hosts import boot_time, this_host
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.rpc.calls import attempt_args, result_of
from firesteel.rpc.messages import Heard, Registered, Registration, WorkerInfo, WorkerReport, has_ended, plain
from firesteel.stores.workers import LostWorker, WorkerRecord, WorkerStore
from firesteel.types import AttemptId, Guard, JobID

logger = logging.getLogger(__name__)

SILENT_BEATS = 3
"""So many heartbeats without a report, and a worker counts as silent: no new job goes there."""
LOOKS_A_BEAT = 4
TIDY_SECONDS = 600.0
"""How often files of jobs that have been forgotten since are looked for."""


class OfferTaker(Protocol):
    """What the Fleet tells the ResourceManager."""

    def offer(self, offers: Sequence[WorkerOffer]) -> None: ...

    def lose_worker(self, worker: str, reason: str) -> None: ...

    def engines_on(self, worker: str) -> int: ...


class Fleet:
    def __init__(
        self,
        epoch: Epoch,
        store: WorkerStore,
        local_id: str,
        local: WorkerOffer | None,
        *,
        guard: Guard,
        heartbeat: float,
        on_error: Callable[[BaseException], None],
        clock: Callable[[], float] = boot_time,
        now: Callable[[], float] = time.time,
    ) -> None:
        """
        Args:
            store: Durable records of workers.
            local_id: The worker of this node, which needs no wire.
            local: What it offers; None when the node runs no jobs itself.
            guard: Raises FencingError unless it is certain that this node leads.
            heartbeat: Seconds between two reports of a worker.
            clock: Seconds of a clock that counts suspension.
        """
        self.epoch = epoch
        self._store = store
        self.local_id = local_id
        self._local = local
        self._guard = guard
        self.heartbeat = heartbeat
        self._clock = clock
        self._now = now
        self._tasks = OwnedTasks("fleet", on_error)
        self._links: dict[str, WorkerLink] = {}
        self._tombs: dict[str, WorkerLink] = {}
        """What workers had when they were given up. They may come back, but not with that."""
        self._placed: dict[AttemptId, str] = {}
        """Attempts that jobs are about, and where each is. They may run."""
        self._waiters: dict[AttemptId, asyncio.Event] = {}
        self._resources: OfferTaker | None = None
        self._known: Callable[[JobID], bool] | None = None
        self._unreadable: frozenset[JobID] = frozenset()
        self._closed = False
        self._began = now()

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self, resources: OfferTaker) -> None:
        """Read which workers there are, and wait for them to come."""
        self._resources = resources
        for record in (await self._store.list()).values():
            if record.id != self.local_id:
                self._expect(record.id, record)
        self._offer()
        self._tasks.start(self._watch(), "contact")

    def recovered(self, known: Callable[[JobID], bool], unreadable: Collection[JobID] = ()) -> None:
        """All jobs have said where their attempts are: what else runs on a worker is of no job.

        Args:
            known: Whether files of a job are kept.
            unreadable: Jobs of which nobody knows what they have; they are left alone.
        """
        self._known = known
        self._unreadable = frozenset(unreadable)
        for link in self._links.values():
            if link.info is not None and not link.lost:
                self._start_tidying(link)

    def halt(self) -> None:
        """Act no more."""
        self._closed = True
        self._tasks.cancel()
        for link in self._links.values():
            link.hang_up()

    async def close(self) -> None:
        """Workers run on. From here on only what is on this host is known."""
        self.halt()
        await self._tasks.close()
        self._links.clear()

    # -- the wire -------------------------------------------------------------------------------------------------

    async def register(self, registration: Registration) -> Registered:
        """A worker has come, with everything that it has. Durable before anything is placed there: the next leader has to know
        for how long it may run without one."""
        info = registration.info
        self._check_open()
        if registration.obeyed > self.epoch:
            raise FencingError(
                f"worker {info.name} has obeyed epoch {registration.obeyed}, and this leader has {self.epoch}"
            )
        if info.worker == self.local_id:
            raise WorkerStateError(f"worker {info.name} is the leader's own, which needs no connection")
        record = await self._noted(info)
        self._check_open()
        self._guard()
        link = self._links.get(info.worker) or self._expect(info.worker, record)
        came_back = bool(link.lost)
        link.draining, link.revoked = record.draining, record.revoked
        link.register(registration, self._clock(), self._now())
        if came_back:
            logger.warning("worker %s was given up, and has come back; what it still runs is ended", info.name)
        logger.info(
            "worker %s registered from %s with %d attempts and %d engines",
            info.name,
            info.host.partition("/")[0],
            len(link.attempts),
            len(link.engines),
        )
        for attempt, result in link.attempts.items():
            if has_ended(result):
                self._wake(attempt)
        self._offer()
        if self._known is not None:
            self._start_tidying(link)
        return Registered(self.epoch, self.heartbeat)

    def commands(self, worker: str, incarnation: str) -> AsyncIterator[bytes]:
        """The commands for one process of a worker, a line each, until another one registers or the leadership ends."""
        self._check_open()
        link = self._links.get(worker)
        if link is None or link.info is None or link.info.incarnation != incarnation or link.lost:
            raise WorkerStateError(f"worker {worker} is not registered; register first")
        return self._stream(link)

    async def _stream(self, link: WorkerLink) -> AsyncIterator[bytes]:
        stream = link.open_stream()
        self._offer()
        try:
            while (line := await stream.get()) is not None:
                yield line + b"\n"
        finally:
            link.close_stream(stream)
            if not self._closed:
                self._offer()

    def report(self, worker: str, report: WorkerReport) -> Heard:
        """Raises FencingError unless it is certain that this node leads: the answer lets the worker run on."""
        self._check_open()
        self._guard()
        link = self._links.get(worker)
        if link is None or link.info is None or link.info.incarnation != report.incarnation or link.lost:
            raise WorkerStateError(f"worker {worker} is not registered; register first")
        was_silent = link.contact.is_silent(self._clock(), self._patience)
        link.contact = link.contact.at(self._clock())
        for answer in report.answers:
            link.answered(answer)
        for name, progress in report.progress.items():
            job, _, number = name.partition("/")
            link.progress[AttemptId(JobID(job), int(number))] = progress
        for ended in report.ended:
            link.note_end(ended)
            self._wake(ended.attempt)
        if was_silent:
            self._offer()
        return Heard(self.epoch)

    # -- what attempts and engines ask ----------------------------------------------------------------------------

    def place(self, attempt: AttemptId, worker: str) -> None:
        """A job's attempt is, or is about to be, on `worker`."""
        self._placed[attempt] = worker
        if worker and worker != self.local_id and worker not in self._links:
            # A record names a worker that the store has lost: only a person can tell what became of it.
            self._links[worker] = WorkerLink(worker, Contact("run-on", 0.0, self._clock()), name=worker)

    def placed(self, attempt: AttemptId) -> str:
        """The worker that has the attempt; that of this node when nobody said."""
        return self._placed.get(attempt) or self.local_id

    def is_local(self, worker: str) -> bool:
        return not worker or worker == self.local_id

    def release(self, attempt: AttemptId) -> None:
        """The job is about this attempt no more."""
        self._placed.pop(attempt, None)

    def numbers(self, job_id: JobID) -> list[int]:
        """The attempts of a job that are on workers."""
        return [a.number for link in self._links.values() for a in link.attempts if a.job_id == job_id]

    def attempts_of(self, job_id: JobID) -> list[tuple[str, AttemptId]]:
        """The attempts of a job whose files are on workers that are there."""
        return [
            (worker, AttemptId(job_id, number))
            for worker, link in self._links.items()
            if link.is_open and job_id in link.jobs
            for number in link.numbers.get(job_id, ())
        ]

    def having(self, job_id: JobID) -> list[str]:
        """The workers that are there and have files of the job."""
        return [w for w, link in self._links.items() if link.is_open and job_id in link.jobs]

    def links(self) -> list[WorkerLink]:
        """Of the workers that are not given up."""
        return [link for link in self._links.values() if not link.lost]

    def link(self, worker: str) -> WorkerLink | None:
        return self._links.get(worker) or self._tombs.get(worker)

    async def call(self, worker: str, method: str, args: Mapping[str, Any], *, repeat: bool = True) -> Any:
        """Have a worker do something, however long it takes it to come back.

        Raises:
            WorkerLostError: Nothing of what it had runs any more, and it will not answer.
            WorkerRestartedError: Only with `repeat` off: its process was replaced before it answered.
            FiresteelError, OSError: What the worker raised.
        """
        while True:
            link = await self.connected(worker)
            try:
                return plain(await link.ask(self.epoch, method, args))
            except WorkerRestartedError:
                if not repeat:
                    raise

    async def connected(self, worker: str) -> WorkerLink:
        """Wait until the worker is there. Raises WorkerLostError when it is given up."""
        while True:
            link = self.link(worker)
            if link is None:
                raise WorkerLostError(f"worker {worker} is not known")
            if link.lost:
                raise WorkerLostError(link.lost)
            if link.is_open:
                return link
            await link.changed()

    async def result(self, attempt: AttemptId) -> AttemptResult:
        """Wait for the end of an attempt on a worker."""
        waiter = self._waiters.setdefault(attempt, asyncio.Event())
        asked = ""
        try:
            while True:
                worker = self.placed(attempt)  # which changes when the worker is given up
                link = self.link(worker)
                if link is not None and (result := link.attempts.get(attempt)) is not None and has_ended(result):
                    return result_of(plain(result))
                if link is None or link.lost:
                    why = link.lost if link is not None else f"worker {worker} is not known"
                    return AttemptResult(
                        AttemptState.FAILED, Failure(FailureKind.WORKER_LOST, why), ended_at=self._now(), note=why
                    )
                if link.info is not None and attempt not in link.attempts and asked != link.info.incarnation:
                    # It may have been started before this worker registered, or never; the worker finds out which.
                    asked = link.info.incarnation
                    self._tasks.start(self._have_watched(worker, attempt), f"watch {attempt}")
                waiter.clear()
                await waiter.wait()
        finally:
            if self._waiters.get(attempt) is waiter:
                del self._waiters[attempt]

    async def _have_watched(self, worker: str, attempt: AttemptId) -> None:
        try:
            await self.call(worker, "watch", attempt_args(attempt))
        except (FiresteelError, OSError) as error:
            logger.warning("worker %s cannot say what became of attempt %s: %s", worker, attempt, error)

    def _wake(self, attempt: AttemptId) -> None:
        if (waiter := self._waiters.get(attempt)) is not None:
            waiter.set()

    def joined(self, record: WorkerRecord) -> None:
        """A worker has joined the cluster; it is expected to register."""
        if record.id not in self._links:
            self._expect(record.id, record)
            self._offer()

    # -- people ---------------------------------------------------------------------------------------------------

    def workers(self) -> list[WorkerView]:
        """All workers, the leader's own first."""
        here = [self._own_view(self._local)] if self._local is not None else []
        return here + [self._view(link) for link in self._links.values()]

    def _own_view(self, offer: WorkerOffer) -> WorkerView:
        mine = sum(self.is_local(worker) for worker in self._placed.values())
        return WorkerView(
            worker=offer.worker,
            name=offer.name,
            host=this_host().name,
            address="",
            standing=Standing.CONNECTED,
            draining=False,
            incarnation="",
            embedded=True,
            cores=offer.max_cores,
            memory=offer.max_memory,
            labels=dict(offer.labels),
            sandbox=offer.sandbox,
            policy=RUN_ON,
            max_engines=offer.max_engines,
            engines=self._resources.engines_on(offer.worker) if self._resources is not None else 0,
            attempts=mine,
            since=self._began,
            last_heard=self._now(),
            gone_at=None,
            revoked=False,
        )

    async def drain(self, worker: str) -> None:
        """Place nothing more there; what runs there goes on until it is moved or ends."""
        await self._change(worker, draining=True)

    async def undrain(self, worker: str) -> None:
        await self._change(worker, draining=False)

    async def _change(self, worker: str, *, draining: bool) -> None:
        link = self._of(worker)
        await self._store.change(worker, lambda record: replace(record, draining=draining), epoch=self.epoch)
        link.draining = draining
        self._offer()

    async def declare_lost(self, worker: str, by: str) -> None:
        """Somebody who can know says that everything on that host is gone. Durable before it is believed."""
        link = self._of(worker)
        if link.is_open and not link.contact.is_silent(self._clock(), self._patience):
            raise WorkerStateError(f"worker {link.name} is connected and well; drain it, or stop it first")
        incarnation = link.info.incarnation if link.info is not None else ""
        lost = LostWorker(at=self._now(), by=by, incarnation=incarnation)
        await self._store.change(worker, lambda record: replace(record, lost=lost), epoch=self.epoch)
        self._guard()
        self._lose(link, f"worker {link.name} was declared lost by {by}")

    async def revoke(self, worker: str) -> None:
        """Its credential is good no more. What runs there goes on until it is declared lost or has stopped by itself."""
        link = self._of(worker)
        await self._store.change(worker, lambda record: replace(record, revoked=True), epoch=self.epoch)
        link.revoked = True
        link.hang_up()
        self._offer()

    def _of(self, worker: str) -> WorkerLink:
        link = self._links.get(worker)
        if link is None and worker == self.local_id:
            raise WorkerStateError(
                f"worker {worker} is part of the node that leads; hand leadership over first (`firesteel cluster handover`)"
            )
        if link is None:
            raise WorkerNotFoundError(f"no worker {worker} has joined this cluster")
        return link

    # -- small things ---------------------------------------------------------------------------------------------

    @property
    def _patience(self) -> float:
        return SILENT_BEATS * self.heartbeat

    def _check_open(self) -> None:
        if self._closed:
            raise FencingError("this node no longer leads; ask the new leader")

    def _expect(self, worker: str, record: WorkerRecord) -> WorkerLink:
        # One that has never registered has no isolation time, and nothing that could run.
        contact = Contact(record.policy, record.isolation_timeout or 0.0, self._clock())
        link = self._links[worker] = WorkerLink(
            worker, contact, name=record.name, draining=record.draining, revoked=record.revoked
        )
        if record.lost is not None:
            link.lost = f"worker {record.name} was declared lost by {record.lost.by}"
        return link

    async def _noted(self, info: WorkerInfo) -> WorkerRecord:
        """The record of a worker, as it has to be before anything is placed there."""

        def noted(record: WorkerRecord) -> WorkerRecord:
            return replace(
                record,
                # One that has joined is called what it joined as: names are unique, and others are addressed by them (S47).
                name=record.name if record.secret_sha256 else info.name,
                host=info.host,
                labels=dict(info.labels),
                policy=info.policy,
                isolation_timeout=info.isolation_timeout,
                lost=None,
            )

        newcomer = WorkerRecord(id=info.worker, name=info.name, joined_at=self._now())
        return await retry(
            # What is written meanwhile, that it was revoked for example, is kept.
            lambda: self._store.note(newcomer, noted, epoch=self.epoch),
            RETRIES,
            on=(StoreError,),
            but_not=(FencingError,),
            what=f"writing the record of worker {info.name}",
            within=10.0,
        )

    async def _watch(self) -> None:
        """Notice silence, and the time at which it is certain that a silent worker has stopped."""
        tidied = self._clock()
        while True:
            await asyncio.sleep(self.heartbeat / LOOKS_A_BEAT)
            now = self._clock()
            changed = False
            for link in list(self._links.values()):
                if link.lost:
                    continue
                if link.contact.is_gone(now):
                    self._guard()
                    silent = now - link.contact.since
                    self._lose(
                        link,
                        f"worker {link.name} has not been heard for {silent:.0f} s; all that ran there has ended by now",
                    )
                elif link.is_open and link.contact.is_silent(now, self._patience):
                    logger.warning("worker %s has not reported for %.0f s", link.name, now - link.contact.since)
                    link.hang_up()
                    changed = True
            if changed:
                self._offer()
            if self._known is not None and now - tidied > TIDY_SECONDS:
                tidied = now
                for link in self.links():
                    if link.is_open:
                        self._start_tidying(link)

    def _lose(self, link: WorkerLink, why: str) -> None:
        logger.error("%s", why)
        tomb = replace(link, worker=f"{link.worker}-{len(self._tombs) + 1}", lost=why)
        link.give_up(why)
        for attempt in [a for a, worker in self._placed.items() if worker == link.worker]:
            # For good, also if the worker comes back: the job is told that this attempt is over.
            self._tombs[tomb.worker] = tomb
            self._placed[attempt] = tomb.worker
            self._wake(attempt)
        if self._resources is not None:
            self._resources.lose_worker(link.worker, why)
        self._offer()

    def _offer(self) -> None:
        if self._resources is None or self._closed:
            return
        offers = [self._local] if self._local is not None else []
        offers += [o for link in self._links.values() if (o := self._offer_of(link)) is not None]
        self._resources.offer(offers)

    def _offer_of(self, link: WorkerLink) -> WorkerOffer | None:
        info = link.info
        if link.lost:
            return None
        if info is None:
            return WorkerOffer.of_absent(link.worker, link.name)
        return WorkerOffer(
            worker=link.worker,
            name=link.name,
            max_engines=info.max_engines,
            max_cores=info.cores,
            max_memory=info.memory,
            labels=frozenset(info.labels.items()),
            sandbox=info.sandbox,
            accepting=link.is_open and not link.draining,
            draining=link.draining,
        )

    def _view(self, link: WorkerLink) -> WorkerView:
        info, now = link.info, self._clock()
        if link.lost:
            standing = Standing.LOST
        elif info is None:
            standing = Standing.EXPECTED
        else:
            silent = not link.is_open or link.contact.is_silent(now, self._patience)
            standing = Standing.SILENT if silent else Standing.CONNECTED
        gone_at = link.contact.gone_at
        running = sum(not has_ended(result) for result in link.attempts.values())
        return WorkerView(
            worker=link.worker,
            name=link.name,
            host=info.host.partition("/")[0] if info is not None else "",
            address="",
            standing=standing,
            draining=link.draining,
            incarnation=info.incarnation if info is not None else "",
            embedded=info.embedded if info is not None else False,
            cores=info.cores if info is not None else 0,
            memory=info.memory if info is not None else "",
            labels=dict(info.labels) if info is not None else {},
            sandbox=info.sandbox if info is not None else "",
            policy=link.contact.policy,
            max_engines=info.max_engines if info is not None else 0,
            engines=len(link.engines),
            attempts=running,
            since=link.registered_at,
            last_heard=self._now() - (now - link.contact.since) if link.contact.heard else None,
            gone_at=self._now() + (gone_at - now)
            if gone_at is not None and standing is not Standing.CONNECTED
            else None,
        )

    def _start_tidying(self, link: WorkerLink) -> None:
        assert link.info is not None
        self._tasks.start(self._tidy(link, link.info.incarnation), f"tidy {link.name}")

    async def _tidy(self, link: WorkerLink, incarnation: str) -> None:
        """End what runs on a worker and is of no job, and have files removed of jobs that are forgotten."""
        known = self._known
        assert known is not None
        others = [
            (attempt, has_ended(result))
            for attempt, result in link.attempts.items()
            if self._placed.get(attempt) != link.worker and attempt.job_id not in self._unreadable
        ]
        forgotten = sorted(j for j in link.jobs if not known(j) and j not in self._unreadable)
        work = [self._put_away(link, attempt, ended=ended) for attempt, ended in others]
        for error in await asyncio.gather(*work, return_exceptions=True):
            if isinstance(error, FiresteelError | OSError):
                logger.warning("an attempt on worker %s could not be ended: %s", link.name, error)
            elif isinstance(error, Exception):
                raise error
        for job_id in forgotten:
            if link.info is None or link.info.incarnation != incarnation or link.lost:
                return
            await self._remove_job(link, job_id)

    async def _put_away(self, link: WorkerLink, attempt: AttemptId, *, ended: bool) -> None:
        """End an attempt of no job. Its job has gone on without it, so nobody else has its files removed (I12)."""
        if not ended:
            logger.warning("attempt %s runs on worker %s for no job; ending it", attempt, link.name)
            await self.call(link.worker, "fence", {**attempt_args(attempt), "unreachable": False})
        await self.call(link.worker, "forget", attempt_args(attempt))
        link.attempts.pop(attempt, None)
        link.progress.pop(attempt, None)

    async def _remove_job(self, link: WorkerLink, job_id: JobID) -> None:
        try:
            await self.call(link.worker, "remove_job", {"job": job_id})
        except (FiresteelError, OSError) as error:
            logger.warning("the files of job %s on worker %s stay for now: %s", job_id, link.name, error)
            return
        link.numbers.pop(job_id, None)
        for attempt in [a for a in link.attempts if a.job_id == job_id]:
            del link.attempts[attempt]
            link.progress.pop(attempt, None)
