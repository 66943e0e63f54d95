"""The ResourceManager hands out slots on engines, starts and stops engines, and detects when one is gone.

This is a thin shell: `core` decides what to do, on every event and with every heartbeat; this module carries it out.
Engines outlive it. Its successor finds the engines that it leaves behind through the provider, and adopts them.
"""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import logging
import time
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from firesteel.concurrency import RETRIES, Backoff, OwnedTasks, retry
from firesteel.config import Configuration
from firesteel.config.sections import Isolation, PlacementStrategy
from firesteel.engines.record import EngineRecord, EngineSpec
from firesteel.errors import (
    EngineStartError,
    FencingError,
    FiresteelError,
    ResourcesUnavailableError,
)
from firesteel.metrics.declarations import (
    ENGINE_START,
    ENGINES_LOST,
    ENGINES_NOT_STARTED,
    ENGINES_STARTED,
    SLOT_WAIT,
)
from firesteel.metrics.registry import MetricRegistry
from firesteel.resourcemanager.core import (
    Decision,
    DetachEngine,
    Grant,
    Limits,
    Refuse,
    StartEngine,
    StopEngine,
    apply,
    plan,
)
from firesteel.resourcemanager.gateway import Slot, SlotRequest
from firesteel.resourcemanager.offers import WorkerOffer, waits_for
from firesteel.resourcemanager.overview import EngineOverview, ResourceOverview, engine_overview
from firesteel.resourcemanager.provider import EngineHealth, EngineProvider
from firesteel.resourcemanager.pulse import Pulse
from firesteel.resourcemanager.state import EngineState, ResourceState, Ticket
from firesteel.types import Guard

__all__ = ["EngineOverview", "ResourceManager", "ResourceOverview", "limits_of"]

logger = logging.getLogger(__name__)

WARM_RETRY_SECONDS = 60.0
STRAYS_EVERY = 5
"""Heartbeats between two searches for engines that this manager does not know."""
CHECK_SECONDS = 12.0
"""The longest that one look at an engine takes."""


def limits_of(configuration: Configuration, default_spec: EngineSpec) -> Limits:
    options = configuration.engine
    return Limits(
        slots=options.slots,
        idle_timeout=options.idle_timeout,
        warm=options.warm_engines if options.isolation is Isolation.JOB and not default_spec.attached else 0,
        warm_spec=default_spec,
        spread=options.placement is PlacementStrategy.SPREAD,
    )


class ResourceManager:
    """Implements ResourceManagerGateway for one leadership. All methods are for the event loop.

    Requests raise FencingError once it has ended.
    """

    def __init__(
        self,
        configuration: Configuration,
        provider: EngineProvider,
        *,
        default_spec: EngineSpec,
        guard: Guard,
        now: Callable[[], float] = time.time,
        on_error: Callable[[BaseException], None] = lambda _: None,
        metrics: MetricRegistry | None = None,
    ) -> None:
        """
        Args:
            configuration: Sections `engine` and `heartbeat`.
            provider: Where engines come from. It is lent, not closed here.
            default_spec: The engine of a job without wishes of its own; warm ones are of this kind.
            guard: Asked before an engine is started or stopped, which no store can fence.
            now: A clock in seconds; any starting point will do.
            on_error: Called with unexpected errors.
            metrics: Where engines and waits are counted.
        """
        self._metrics = metrics or MetricRegistry()
        self._limits = limits_of(configuration, default_spec)
        self._heartbeat = configuration.heartbeat
        self._start_timeout = configuration.engine.start_timeout
        self._provider = provider
        self._now = now
        self._guard = guard
        self._on_error = on_error
        self._tasks = OwnedTasks("resource manager", on_error)
        self._state = ResourceState()
        self._records: dict[str, EngineRecord] = {}
        self._started_at: dict[str, float] = {}
        self._requests: dict[Ticket, asyncio.Future[Slot]] = {}
        self._slots: dict[Ticket, Slot] = {}
        self._tickets: dict[Slot, Ticket] = {}
        self._adopting: dict[str, asyncio.Task[None]] = {}
        self._there: dict[str, asyncio.Task[bool]] = {}
        """Of engines of an earlier life: whether their processes run. Looked at once, however many jobs want to know."""
        self._attaching: dict[str, asyncio.Task[None]] = {}
        self._looking: dict[str, asyncio.Task[None]] = {}
        self._pulses: dict[str, Pulse] = {}
        self._offers: tuple[WorkerOffer, ...] = ()
        self._met = set[str]()
        """Workers whose engines are known here."""
        self._meeting: dict[str, asyncio.Task[None]] = {}
        self._gone = set[str]()
        """Workers that were lost, and have not come back."""
        self._arrivals: dict[str, asyncio.Event] = {}
        """Of workers that jobs of an earlier life wait for; set when one has come or is lost."""
        self._starting: dict[str, asyncio.Task[None]] = {}
        self._ending: dict[str, asyncio.Task[None]] = {}
        self._listed = False
        self._acts = False
        self._halted = False
        self._starts = 0

    # -- life -----------------------------------------------------------------------------------------------------

    async def start(self) -> None:
        """Find the engines of earlier lives. Whether each works is found out in the background, from all of them at once.

        Jobs take their slots back on an engine whose process runs, without waiting for its answer: what runs there goes on.
        No new job is put on an engine before it has answered; one that does not for `heartbeat.timeout` is lost.
        """
        here = {offer.worker for offer in self._offers}
        mine, shared = await asyncio.gather(self._provider.existing(), self._provider.shared())
        for record in mine:
            self._take_over(record)
        for record in shared:
            self._adopting[record.engine_id] = self._tasks.start(self._adopt(record), f"adopt {record.engine_id}")
        self._listed = True
        self._meet(here)
        self.offer(self._offers)  # one may have come meanwhile
        self._tasks.start(self._tick(), "tick")

    def _take_over(self, record: EngineRecord) -> None:
        """An engine of an earlier leader on which jobs may run."""
        key = record.engine_id
        self._records[key] = record
        self._state.adopt(key, record.spec, record.worker, slots=self._limits.slots, now=self._now())
        self._there[key] = self._tasks.start(self._is_there(record), f"look for {key}")
        self._adopting[key] = self._tasks.start(self._adopt(record), f"adopt {key}")

    def halt(self) -> None:
        """Act no more: nothing is granted, started or stopped from now on, whatever is released.

        To be called first when leadership ends: JobMasters that end then release slots on which their jobs still run.
        """
        self._halted = True
        self._tasks.cancel()
        for worker in list(self._arrivals):
            self._announce(worker)

    async def close(self) -> None:
        """Engines stay as they are, also those that are just starting: the next leader adopts them."""
        self.halt()
        await self._tasks.close()
        for ticket in list(self._requests):
            self._tell(ticket, _fenced())  # not a refusal: the job waits on, under the next leader

    async def end_engines(self) -> None:
        """End the engines of this host, also those that are just starting: nobody is left who would adopt them, and no job
        that would run there. After `close`, while leadership is held."""
        try:
            left = await self._provider.existing()
            stops = [self._provider.stop(record, guard=self._guard) for record in left]
            for record, error in zip(left, await asyncio.gather(*stops, return_exceptions=True), strict=True):
                if isinstance(error, BaseException):
                    logger.warning("engine %s could not be ended: %s", record.engine_id, error)
        except OSError as error:
            logger.warning("engines could not be listed: %s", error)

    # -- workers --------------------------------------------------------------------------------------------------

    def offer(self, offers: Sequence[WorkerOffer]) -> None:
        """Tell which workers the cluster has now, all of them, the leader's own first.

        One that does not answer is among them, and does not accept. One that is lost is not.
        """
        self._offers = tuple(offers)
        self._met &= {o.worker for o in offers}
        new = [o.worker for o in offers if o.known and o.worker not in self._met and o.worker not in self._meeting]
        if self._listed and new and not self._halted:
            meeting = self._tasks.start(self._get_to_know(new), f"meet {', '.join(new)}")
            self._meeting.update(dict.fromkeys(new, meeting))
        self._renew()

    async def _get_to_know(self, new: Sequence[str]) -> None:
        """Find the engines of workers that have come, before these get new jobs."""
        me = asyncio.current_task()
        found = await retry(self._provider.existing, RETRIES, on=(FiresteelError, OSError), what="listing engines")
        # One that was lost meanwhile has nothing of what was found; if it is back, it is met anew.
        workers = {worker for worker in new if self._meeting.get(worker) is me}
        for worker in workers:
            del self._meeting[worker]
        workers &= {offer.worker for offer in self._offers if offer.known}
        for record in found:
            known = (self._records, self._adopting, self._state.engines)
            if record.worker in workers and not any(record.engine_id in k for k in known):
                self._take_over(record)
        self._meet(workers)
        self._renew()

    def _meet(self, workers: set[str]) -> None:
        self._met |= workers
        self._gone -= workers
        for worker in workers:
            self._announce(worker)

    def _announce(self, worker: str) -> None:
        if (arrival := self._arrivals.pop(worker, None)) is not None:
            arrival.set()

    async def _come(self, worker: str) -> bool:
        """Wait for a worker; False when it is lost."""
        while worker not in self._met:
            if self._halted:
                raise _fenced()
            if worker in self._gone:
                return False
            await self._arrivals.setdefault(worker, asyncio.Event()).wait()
        return True

    def _renew(self) -> None:
        self._state.offer(o if o.worker in self._met else replace(o, accepting=False) for o in self._offers)
        self._act()

    def lose_worker(self, worker: str, reason: str) -> None:
        """Nothing of a worker runs any more: its engines and slots are gone, and the jobs that held these are told."""
        logger.warning("worker %s is lost: %s", worker, reason)
        self._gone.add(worker)
        self._offers = tuple(o for o in self._offers if o.worker != worker)
        self._met.discard(worker)
        self._meeting.pop(worker, None)
        lost = [slot for slot in self._tickets if self._state.home(slot.worker) == worker]
        for key in [key for key, e in self._state.engines.items() if self._state.home(e.worker) == worker]:
            self._metrics.count(ENGINES_LOST)
            for tasks in (self._starting, self._adopting, self._ending):
                if (task := tasks.pop(key, None)) is not None:
                    task.cancel()
            self._records.pop(key, None)
            self._pulses.pop(key, None)
            lost += self._slots_of(self._state.gone(key))
        for slot in lost:
            if (ticket := self._tickets.pop(slot, None)) is not None:
                del self._slots[ticket]
                self._state.release(ticket, self._now())
            if not slot.lost.done():
                slot.worker_lost = True
                slot.lost.set_result(reason)
        self._announce(worker)
        self._renew()

    def engines_on(self, worker: str) -> int:
        """How many engines a worker has, be they ready or not."""
        return sum(self._state.home(e.worker) == worker for e in self._state.engines.values())

    # -- ResourceManagerGateway -----------------------------------------------------------------------------------

    async def request_slot(self, request: SlotRequest) -> Slot:
        if self._halted:
            raise _fenced()
        if request.driver_only:
            return Slot(request.job_id, None)
        asked = self._now()
        ticket = self._state.ask(_plain(request), asked)
        future: asyncio.Future[Slot] = asyncio.get_running_loop().create_future()
        self._requests[ticket] = future
        self._act()
        try:
            slot = await future
            self._metrics.observe(SLOT_WAIT, self._now() - asked)
            return slot
        except asyncio.CancelledError:
            if future.done() and not future.cancelled() and future.exception() is None:
                # The slot was granted in the moment in which its job gave up.
                self.release_slot(future.result())
            else:
                self._requests.pop(ticket, None)
                self._state.leave(ticket)
                self._act()
            raise

    def expect(self, held: Sequence[tuple[str | None, str]]) -> None:
        self._state.expected = Counter(held)

    async def reclaim_slot(self, request: SlotRequest, engine_id: str | None, worker: str = "") -> Slot | None:
        try:
            return await self._reclaim(request, engine_id, worker)
        finally:
            self._state.settled((engine_id, worker))
            self._act_soon()

    async def _reclaim(self, request: SlotRequest, engine_id: str | None, worker: str) -> Slot | None:
        if request.driver_only:
            return Slot(request.job_id, None, worker=worker)
        request = _plain(request)
        if worker and not await self._come(worker):
            return None
        if request.classic:
            return self._hold(self._state.reclaim(request, None, worker), request, None, worker)
        if engine_id is None:
            return None
        there = False
        if (adopting := self._adopting.get(engine_id)) is not None:
            there = await self._was_there(engine_id)
            if not there:
                await asyncio.wait({adopting})
        elif request.engine.attached and engine_id not in self._records:
            await self._attached_again(request.engine, self._state.home(worker))
        if self._halted:
            raise _fenced()
        engine = self._state.engines.get(engine_id)
        if engine is None or not (engine.state is EngineState.READY or (there and engine.adopting)):
            return None
        record = self._records[engine_id]
        ticket = self._state.reclaim(request, engine_id)
        return self._hold(ticket, request, record, worker or record.worker)

    async def _was_there(self, engine_id: str) -> bool:
        look = self._there.get(engine_id)
        if look is None:
            return False  # a shared one, which counts as an engine of ours only once it has answered
        await asyncio.wait({look})
        return not look.cancelled() and look.exception() is None and look.result()

    async def _is_there(self, record: EngineRecord) -> bool:
        try:
            return await self._provider.there(record)
        except OSError as error:
            logger.warning("engine %s could not be checked: %s", record.engine_id, error)
            return False

    def recovered(self) -> None:
        self._state.recovered = True
        self._act()

    def release_slot(self, slot: Slot) -> None:
        ticket = self._tickets.pop(slot, None)
        if ticket is None:
            return
        del self._slots[ticket]
        self._state.release(ticket, self._now())
        self._act()

    async def suspect(self, engine_id: str) -> bool:
        record = self._records.get(engine_id)
        if self._halted:
            raise _fenced()
        if record is None:
            return False
        if (adopting := self._adopting.get(engine_id)) is not None:
            # It was being given time to answer; this caller cannot wait.
            if await self._provider.health(record) in (EngineHealth.WELL, EngineHealth.UNKNOWN):
                return True
            if self._adopting.get(engine_id) is adopting:  # still undecided
                # A task of ours: the caller may go away in the middle of it.
                await asyncio.wait({self._tasks.start(self._give_up(record, adopting), f"give up {engine_id}")})
            return engine_id in self._records
        task = self._looking.get(engine_id)
        if task is None:
            task = self._tasks.start(self._look(record), f"look at {engine_id}")
            self._looking[engine_id] = task
            task.add_done_callback(lambda _: self._looking.pop(engine_id, None))
        await asyncio.wait({task})
        return engine_id in self._records

    async def wind_down(self, patience: float) -> None:
        """Stop the engines on which nothing runs, now and whenever one becomes idle. Waits for those that are stopped now."""
        self._limits = replace(self._limits, idle_timeout=0.0, warm=0)
        self._act()
        deadline = self._now() + patience
        while any(e.state is EngineState.STOPPING for e in self._state.engines.values()):
            if self._now() > deadline:
                return
            await asyncio.sleep(0.05)

    def overview(self) -> ResourceOverview:
        state, offers = self._state, self._state.workers
        engines = []
        for key, engine in state.engines.items():
            worker = state.home(engine.worker)
            name = offers[worker].name if worker in offers else worker
            since = self._started_at.get(key, 0.0)
            engines.append(engine_overview(engine, self._records.get(key), since, worker, name))
        waits = {
            waiting.request.job_id: why
            for shape, queue in state.queues.items()
            if (why := waits_for(shape.spec, shape.placement, offers.values())) is not None
            for waiting in queue
        }
        return ResourceOverview(tuple(engines), state.waiting, len(state.classic), waits)

    def engines(self) -> list[tuple[EngineOverview, EngineRecord | None]]:
        """Those that are there for jobs, with what is known of their processes."""
        return [(e, self._records.get(e.engine_id)) for e in self.overview().ready]

    # -- carrying decisions out -----------------------------------------------------------------------------------

    def _act_soon(self) -> None:
        """Once for all that happens in this turn of the event loop: many jobs take their slots back at the same time."""
        if not self._acts:
            self._acts = True
            asyncio.get_running_loop().call_soon(self._act)

    def _act(self) -> None:
        self._acts = False
        if self._halted:
            return
        now = self._now()
        given_up: list[Slot] = []
        for decision in plan(self._state, self._limits, now):
            self._carry_out(decision, apply(self._state, self._limits, decision, now), given_up)
        for slot in given_up:
            self.release_slot(slot)

    def _carry_out(self, decision: Decision, starting: str | None, given_up: list[Slot]) -> None:
        match decision:
            case Grant():
                future = self._requests.pop(decision.ticket)
                record = self._records[decision.engine] if decision.engine is not None else None
                slot = Slot(decision.job_id, record, worker=decision.worker)
                self._note(decision.ticket, slot)
                if future.done():
                    given_up.append(slot)  # cancelled a moment ago; its owner has not had the time to leave the queue
                else:
                    future.set_result(slot)
            case Refuse():
                self._tell(decision.ticket, ResourcesUnavailableError(decision.reason))
            case StartEngine():
                assert starting is not None
                self._started_at[starting] = time.time()
                self._starting[starting] = self._tasks.start(self._start_engine(starting, decision), starting)
            case StopEngine():
                record = self._records[decision.engine]
                logger.info("stopping engine %s: %s", decision.engine, decision.why)
                self._tasks.start(self._end(record, force=False), f"stop {decision.engine}")
            case DetachEngine():
                self._records.pop(decision.engine)
                self._pulses.pop(decision.engine, None)

    def _tell(self, ticket: Ticket, error: Exception) -> None:
        future = self._requests.pop(ticket)
        if not future.done():  # one that was cancelled a moment ago wants to hear nothing
            future.set_exception(error)

    def _hold(self, ticket: Ticket, request: SlotRequest, record: EngineRecord | None, worker: str) -> Slot:
        slot = Slot(request.job_id, record, worker=self._state.home(worker))
        self._note(ticket, slot)
        return slot

    def _note(self, ticket: Ticket, slot: Slot) -> None:
        self._slots[ticket] = slot
        self._tickets[slot] = ticket

    # -- engines --------------------------------------------------------------------------------------------------

    async def _start_engine(self, key: str, decision: StartEngine) -> None:
        self._starts += 1
        try:
            self._guard()
            began = time.monotonic()
            record = await self._provider.start(decision.spec, decision.worker)
        except FencingError as error:
            self.halt()
            self._on_error(error)
            return
        except Exception as error:
            self._start_failed(key, decision, error)
            if not isinstance(error, FiresteelError | OSError):
                raise
            return
        finally:
            self._started_at.pop(key, None)
            self._starting.pop(key, None)
        if record.engine_id in self._records:
            self._state.gone(key)  # attached meanwhile, by a job that took it back
        else:
            self._metrics.count(ENGINES_STARTED)
            self._metrics.observe(ENGINE_START, time.monotonic() - began)
            self._ready(key, replace(record, worker=decision.worker))
        self._act()

    def _start_failed(self, key: str, decision: StartEngine, error: Exception) -> None:
        logger.warning("an engine (%s) did not start: %s", decision.spec.master, error)
        self._metrics.count(ENGINES_NOT_STARTED)
        offer = self._state.workers.get(decision.worker)
        if offer is None or not offer.accepting:
            self._state.gone(key)  # the worker went away; those who wait for the engine get one elsewhere
            self._act()
            return
        told = error if isinstance(error, EngineStartError) else EngineStartError(f"an engine did not start: {error}")
        for ticket in self._state.start_failed(key):
            self._tell(ticket, told)
        if not decision.tickets:
            self._state.warm_not_before = self._now() + WARM_RETRY_SECONDS
        self._act()

    def _ready(self, key: str, record: EngineRecord) -> None:
        self._records[record.engine_id] = record
        self._state.ready(key, record.engine_id, self._now())
        logger.info("engine %s (%s) is ready at %s", record.engine_id, record.spec.master, record.address)
        self._tasks.start(self._watch(record), f"watch {record.engine_id}")

    async def _adopt(self, record: EngineRecord) -> None:
        key = record.engine_id
        try:
            found = await self._provider.adopt(record)
        except (FiresteelError, OSError) as error:
            logger.warning("an engine of an earlier leader is not used: %s", error)
            if key in self._state.engines:
                # On its own: jobs that wait to take their slots back need not wait for its end.
                self._tasks.start(self._end_lost(record, str(error), self._take_slots(key)), f"end {key}")
            return
        finally:
            self._adopting.pop(key, None)
        if record.shared:
            self._state.adopt(key, record.spec, record.worker, slots=self._limits.slots, now=self._now(), foreign=True)
        self._ready(key, found)
        self._act()

    async def _give_up(self, record: EngineRecord, adopting: asyncio.Task[None]) -> None:
        """End an engine that was being given time to answer."""
        adopting.cancel()
        await asyncio.wait({adopting})
        engine = self._state.engines.get(record.engine_id)
        if engine is not None and engine.state is EngineState.STARTING:
            await self._end_lost(record, "it does not answer", self._take_slots(record.engine_id))

    async def _attached_again(self, spec: EngineSpec, worker: str) -> None:
        """Once, for all jobs that were on it."""
        task = self._attaching.get(spec.master)
        if task is None:
            task = self._tasks.start(self._attach_again(spec, worker), f"attach {spec.master}")
            self._attaching[spec.master] = task
            task.add_done_callback(lambda _: self._attaching.pop(spec.master, None))
        await asyncio.wait({task})

    async def _attach_again(self, spec: EngineSpec, worker: str) -> None:
        try:
            record = replace(await self._provider.start(spec, worker), worker=worker)
        except (FiresteelError, OSError) as error:
            logger.warning("an engine of an earlier leader is not used: %s", error)
            return
        if record.engine_id not in self._records and not self._halted:  # a new job may have attached it meanwhile
            self._state.adopt(record.engine_id, spec, worker, slots=self._limits.slots, now=self._now(), foreign=True)
            self._ready(record.engine_id, record)

    async def _end(self, record: EngineRecord, *, force: bool) -> None:
        """End an engine that the state knows as STOPPING. If its worker is lost meanwhile, it has ended."""
        key = record.engine_id
        task = self._tasks.start(self._stop_engine(record, force=force), f"end {key}")
        self._ending[key] = task
        await asyncio.wait({task})
        if self._halted:
            raise asyncio.CancelledError(key)
        if self._ending.pop(key, None) is not None:
            self._records.pop(key, None)
            self._pulses.pop(key, None)
            self._state.gone(key)
        self._act()

    async def _stop_engine(self, record: EngineRecord, *, force: bool) -> None:
        async def once() -> None:
            await self._provider.stop(record, force=force, guard=self._guard)

        what = f"stopping engine {record.engine_id}"
        try:
            await retry(once, Backoff(1.0, 30.0), on=(FiresteelError, OSError), but_not=(FencingError,), what=what)
        except FencingError as error:
            self.halt()
            self._on_error(error)

    # -- finding out that one is gone -----------------------------------------------------------------------------

    async def _tick(self) -> None:
        for number in itertools.count(1):
            await asyncio.sleep(self._heartbeat.interval)
            await self._find_shared()
            if number % STRAYS_EVERY == 0:
                await self._find_strays()
            self._act()

    async def _find_strays(self) -> None:
        """Find engines of ours that no manager knows: a leader that was paused in the middle of a start, and woke up
        after it had been replaced, has made one. It is taken over like those of an earlier leader, and ends when it is
        idle."""
        starts = self._starts
        if any(e.state is EngineState.STARTING and not e.adopted for e in self._state.engines.values()):
            return
        try:
            found = await self._provider.existing()
        except OSError as error:
            logger.warning("engines could not be listed: %s", error)
            return
        if self._starts != starts:
            return  # one of them may be the one that we have just begun to start
        for record in found:
            known = (self._records, self._adopting, self._state.engines)
            if not any(record.engine_id in k for k in known):
                logger.warning("found engine %s, which this leader has not started; taking it over", record.engine_id)
                self._state.adopt(
                    record.engine_id, record.spec, record.worker, slots=self._limits.slots, now=self._now()
                )
                self._adopting[record.engine_id] = self._tasks.start(self._adopt(record), f"adopt {record.engine_id}")

    async def _find_shared(self) -> None:
        try:
            found = await self._provider.shared()
        except OSError as error:
            logger.warning("shared engines could not be listed: %s", error)
            return
        for record in found:
            if record.engine_id not in self._records and record.engine_id not in self._adopting:
                task = self._tasks.start(self._adopt(record), f"adopt {record.engine_id}")
                self._adopting[record.engine_id] = task

    async def _watch(self, record: EngineRecord) -> None:
        """Ask one engine at every heartbeat, until it is lost or stopped."""
        last = self._now()
        pulse = self._pulses[record.engine_id] = self._pulse(record)
        while True:
            await asyncio.sleep(self._heartbeat.interval)
            if not self._watched(record):
                return
            health = await self._provider.health(record)
            # Counted piece by piece: if it was us who stood still (a suspended machine), that is no silence of the engine.
            now = self._now()
            passed, last = min(max(0.0, now - last), self._heartbeat.interval + CHECK_SECONDS), now
            why = pulse.hear(health, passed)
            if not self._watched(record):
                return
            if why is not None:
                await self._lose(record, why)
                return

    def _pulse(self, record: EngineRecord) -> Pulse:
        adopted = self._state.engines[record.engine_id].adopted
        return Pulse(
            timeout=self._heartbeat.timeout,
            start_timeout=self._start_timeout,
            age=time.time() - record.started_at if adopted else 0.0,
            answered=adopted,
        )

    async def _look(self, record: EngineRecord) -> None:
        health = await self._provider.health(record)
        if health is EngineHealth.UNKNOWN:
            return  # its worker is away, and decides this when it is back
        if health is EngineHealth.BUSY and (pulse := self._pulses.get(record.engine_id)) is not None and pulse.young:
            return  # slow, as new ones are
        if health is not EngineHealth.WELL and self._watched(record):
            await self._lose(record, "its process is gone" if health is EngineHealth.GONE else "it does not answer")

    def _watched(self, record: EngineRecord) -> bool:
        engine = self._state.engines.get(record.engine_id)
        same = self._records.get(record.engine_id) is record  # an attached one comes back under the same id
        return same and engine is not None and engine.state is EngineState.READY

    async def _lose(self, record: EngineRecord, why: str) -> None:
        reason = f"engine {record.engine_id} ({record.spec.master}) was lost: {why}"
        logger.warning("%s", reason)
        foreign = self._state.engines[record.engine_id].foreign
        if foreign:
            self._records.pop(record.engine_id)
            self._pulses.pop(record.engine_id, None)
            slots = self._slots_of(self._state.gone(record.engine_id))
        else:
            slots = self._take_slots(record.engine_id)
        await self._end_lost(record, reason, slots, foreign=foreign)

    async def _end_lost(
        self, record: EngineRecord, reason: str, slots: Sequence[Slot], *, foreign: bool = False
    ) -> None:
        """End the engine for sure, then tell its jobs: by then nothing of theirs runs there any more."""
        self._metrics.count(ENGINES_LOST)
        words = ""
        with contextlib.suppress(OSError):  # the engine must be ended even if its log cannot be read
            words = await self._provider.last_words(record) if slots else ""
        if not foreign:
            await self._end(record, force=True)
        for slot in slots:
            if not slot.lost.done():
                where = (
                    f"; `firesteel logs --engine {slot.job_id[:8]}` has the end of its log" if record.spec.owner else ""
                )
                slot.lost.set_result(f"{reason}{where}\n{words}" if words else f"{reason}{where}")
        self._act()

    def _take_slots(self, engine_id: str) -> list[Slot]:
        """The engine is to be ended: its slots are no longer held. Returns the slots that were held."""
        return self._slots_of(self._state.stop(engine_id))

    def _slots_of(self, tickets: Sequence[Ticket]) -> list[Slot]:
        slots = [slot for t in tickets if (slot := self._slots.pop(t, None)) is not None]
        for slot in slots:
            self._tickets.pop(slot, None)
        return slots


def _fenced() -> FencingError:
    return FencingError("this node no longer hands out engines: it is not the leader")


def _plain(request: SlotRequest) -> SlotRequest:
    """An attached engine has the settings that it has; what a job would wish for it makes no other engine of it."""
    if not request.engine.attached:
        return request
    return replace(request, engine=EngineSpec(master=request.engine.master))
