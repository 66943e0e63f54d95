"""Watches a cluster from outside during a run, and records changes.

It has three kinds of threads, because requests to a paused node block: one watches files, processes and the store; one asks
the nodes in turn for the jobs of the cluster; and each node has one that asks it for the leader.
"""

from __future__ import annotations

import json
import logging
import threading
import time
from collections.abc import Callable, Hashable
from functools import partial
from pathlib import Path
from typing import Any

import httpx

from firesteel.status import JobStatus
from firesteel_chaos.controlled import trust
from firesteel_chaos.handle import ClusterHandle, NodeHandle
from firesteel_chaos.history import History
from firesteel_chaos.sightings import Driver, Drivers, Engines, Witnesses, ancestor, usage
from firesteel_chaos.store_view import StoreUnreadableError, StoreView

LOOK_SECONDS = 0.4
ANSWER_SECONDS = 2.0
"""A node that is silent for longer counts as not answering."""
LOOKING = "chaos-looking"
LAG_SECONDS = 1.0
"""A look that comes later than this is late."""
SLOW_SECONDS = 5.0
"""How often numbers that change all the time are recorded."""
logger = logging.getLogger(__name__)


class Observer:
    """Start it before the load, close it after.

    Args:
        store: the store, read from outside; the observer closes it.
        witness: where wrapped nodes write down their writes, if there are any.
    """

    def __init__(
        self, cluster: ClusterHandle, history: History, *, store: StoreView | None = None, witness: Path | None = None
    ) -> None:
        self._cluster = cluster
        self._history = history
        self._store = store
        self._sites = [
            (site, Drivers(site.home / "jobs", site.lives), Engines(site.home, site.data_dir, lives=site.lives))
            for site in cluster.sites()
        ]
        self._witnesses = Witnesses(witness) if witness is not None else None
        self._said: dict[Hashable, Any] = {}
        self._said_at: dict[Hashable, float] = {}
        self._lock = threading.Lock()
        self._looking = threading.Lock()
        self._end = threading.Event()
        self._threads: list[threading.Thread] = []
        self._turn = 0

    # -- life -----------------------------------------------------------------------------------------------------

    def start(self) -> None:
        self._run(LOOKING, self._look_around)
        self._run("chaos-jobs", lambda: self._with_client(self._ask_for_jobs))
        for node in self._cluster.nodes():
            ask = partial(self._ask_who_leads, node)
            self._run(f"chaos-{node.name}", partial(self._with_client, ask))

    def look_once(self) -> None:
        """Look at everything now; returns when it is written down."""
        self._look_around()
        self._with_client(self._ask_for_jobs)
        for node in self._cluster.nodes():
            self._with_client(partial(self._ask_who_leads, node))

    def close(self) -> None:
        self._end.set()
        for thread in self._threads:
            thread.join()
        if self._store is not None:
            self._store.close()

    def _run(self, name: str, once: Callable[[], None]) -> None:
        def work() -> None:
            last = time.monotonic()
            while not self._end.is_set():
                began = time.monotonic()
                # A machine that delays us delays the cluster as well.
                if name == LOOKING and began - last > LOOK_SECONDS + LAG_SECONDS:
                    self._history.record("lag", seconds=round(began - last - LOOK_SECONDS, 1))
                last = began
                try:
                    once()
                except Exception:
                    # A watch that ended silently would make every run look good.
                    logger.exception("%s failed; continuing", name)
                    self._history.record("observer", thread=name, error=True)
                self._end.wait(max(0.05, LOOK_SECONDS - (time.monotonic() - began)))

        thread = threading.Thread(target=work, name=name, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _changed(self, key: Hashable, value: Any, *, every: float | None = None, also: Any = None) -> bool:
        """Whether to write this down: it is new, or `also` is new and it was written down some time ago."""
        now = time.monotonic()
        with self._lock:
            if self._said.get(key, _NOTHING) == (value, also):
                return False
            before = self._said.get(key, (_NOTHING, None))
            if before[0] == value and every is not None and now - self._said_at[key] < every:
                return False
            self._said[key], self._said_at[key] = (value, also), now
            return True

    # -- files, processes, the store --------------------------------------------------------------------------------

    def _look_around(self) -> None:
        with self._looking:
            nodes = {node.pid: node.name for node in self._cluster.nodes() if node.pid is not None}
            for site, drivers, engines in self._sites:
                for driver in drivers.look():
                    self._note_driver(driver, site.name, set(nodes))
                for name, process, alive in engines.look():
                    if self._changed(("engine", site.name, name), (process, alive)):
                        particulars = {"pid": process.pid, "started": process.started, "alive": alive}
                        self._history.record("engine", engine=name, site=site.name, **particulars)
            for node in self._cluster.nodes():
                self._note_node(node)
            self._note_store()
            for seen in self._witnesses.look() if self._witnesses is not None else ():
                times = {key: self._history.at(seen.pop(key)) for key in ("began", "ended")}
                self._history.record("write", **seen, **times)

    def _note_driver(self, driver: Driver, site: str, nodes: set[int]) -> None:
        taken = self._history.at_wall(driver.taken)
        key = ("driver", driver.job, driver.attempt, driver.process)
        with self._lock:
            # The pids of another host mean nothing here.
            by = self._said.setdefault(key, None if site else ancestor(driver.process.pid, nodes))
        self._history.record(
            "driver",
            job=driver.job,
            attempt=driver.attempt,
            pid=driver.process.pid,
            started=driver.process.started,
            alive=driver.working,
            taken=taken,
            over=None if driver.over is None else self._history.at_wall(driver.over),
            by=by,
            site=site,
        )

    def _note_node(self, node: NodeHandle) -> None:
        pid = node.pid
        used = None if pid is None else usage(pid)
        if self._changed(("node", node.name), (pid, node.alive), every=SLOW_SECONDS, also=used):
            said = {"node": node.name, "address": node.address, "pid": pid, "alive": node.alive}
            self._history.record("node", **said, **(used or {}))

    def _note_store(self) -> None:
        if self._store is None:
            return
        try:
            seen = self._store.look()
        except StoreUnreadableError as error:
            if self._changed("store", None):
                self._history.record("store", epoch=None, holder="", rows={}, error=str(error)[:200])
            return
        if self._changed("store", (seen.epoch, seen.holder), every=SLOW_SECONDS, also=dict(seen.rows)):
            self._history.record("store", epoch=seen.epoch, holder=seen.holder, rows=dict(seen.rows))
        with self._lock:
            gone = {key[1] for key in self._said if isinstance(key, tuple) and key[0] == "stored"} - set(seen.jobs)
        for job, rows in seen.jobs.items():
            if self._changed(("stored", job), rows.to_json()):
                self._history.record("stored", job=job, **rows.to_json())
        for job in gone:
            nothing: dict[str, Any] = {"parts": [], "digest": None, "attempt": None, "cancel": False, "result": None}
            if self._changed(("stored", job), nothing):
                self._history.record("stored", job=job, **nothing)

    # -- asking -----------------------------------------------------------------------------------------------------

    def _with_client(self, ask: Callable[[httpx.Client], None]) -> None:
        # New connections each time: an old one may lead to a node that is no more, or past a line that was cut.
        headers = {"authorization": f"Bearer {self._cluster.token}"}
        with httpx.Client(
            headers=headers, timeout=ANSWER_SECONDS, trust_env=False, verify=trust(self._cluster.ca)
        ) as client:
            ask(client)

    def _ask_who_leads(self, node: NodeHandle, client: httpx.Client) -> None:
        asked = round(self._history.now, 4)
        told = _get(client, node.address, "/cluster/status")
        leader = (told or {}).get("leader") or {}
        said = (leader.get("epoch"), leader.get("address"), told is not None)
        if self._changed(("leader", node.name), said):
            particulars = {"epoch": said[0], "address": said[1], "answered": said[2], "pid": _pid_of(told)}
            self._history.record("leader", node=node.name, asked=asked, **particulars)

    def _ask_for_jobs(self, client: httpx.Client) -> None:
        """At one node after another, so that those which only forward are asked as well; all of them before we give up."""
        nodes = list(self._cluster.nodes())
        self._turn += 1
        for n in range(len(nodes)):
            node = nodes[(self._turn + n) % len(nodes)]
            asked = round(self._history.now, 4)
            told = _get(client, node.address, "/jobs/overview")
            if told is not None and isinstance(told.get("jobs"), list):
                if self._changed("reach", True):
                    self._history.record("reach", ok=True, node=node.name)
                self._note_jobs(client, node, told["jobs"], asked)
                return
        if self._changed("reach", False):
            self._history.record("reach", ok=False, node=None)

    def _note_jobs(self, client: httpx.Client, node: NodeHandle, jobs: list[dict[str, Any]], asked: float) -> None:
        for job in jobs:
            job_id, status = str(job.get("jid")), str(job.get("state"))
            details = None
            if job.get("jobType") == "STREAMING" and status == JobStatus.RUNNING:
                details = _get(client, node.address, f"/jobs/{job_id}/execution-graph")
            told = (status, (details or {}).get("attempt"), (details or {}).get("restarts"))
            if details is not None:
                self._note_query(job_id, details)
            elif self._said.get(("job-state", job_id), ((None,), None))[0][0] == status:
                continue  # the same, told with less
            if self._changed(("job-state", job_id), told):
                particulars = {"status": told[0], "attempt": told[1], "restarts": told[2]}
                self._history.record("job-state", job=job_id, **particulars, node=node.name, asked=asked)

    def _note_query(self, job_id: str, details: dict[str, Any]) -> None:
        runs = (details.get("progress") or {}).get("query_runs")
        if runs and self._changed(("query", job_id, details.get("attempt")), runs):
            self._history.record("query", job=job_id, attempt=details.get("attempt"), runs=runs)


_NOTHING: Any = object()


def _pid_of(told: dict[str, Any] | None) -> int | None:
    pid = ((told or {}).get("node") or {}).get("pid")
    return pid if isinstance(pid, int) else None


def _get(client: httpx.Client, address: str, path: str) -> dict[str, Any] | None:
    """The JSON object of a good answer; None when there was none."""
    try:
        answer = client.get(f"{address}/v1{path}")
        told = answer.json() if answer.status_code == 200 else None
    except (httpx.HTTPError, json.JSONDecodeError):
        return None
    return told if isinstance(told, dict) else None
