"""Real nodes with a bug each: what is seen of them from outside must give the bug away. Without a bug, nothing is seen."""

from __future__ import annotations

import random
import sys
import threading
import uuid
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.chaos.buggy_node import BUGS
from tests.support.waiting import until

from firesteel.client.cluster import ClusterClient
from firesteel.client.operations import SAVEPOINT, STOP
from firesteel.config import load_configuration
from firesteel.engines.launcher import start_engine, stop_engine
from firesteel.engines.record import EngineDirectory
from firesteel.jobmaster.plan import shared_engine_spec
from firesteel.types import JobID
from firesteel.worker.launch_options import launch_options
from firesteel_chaos.cluster import OPTIONS, StagedCluster
from firesteel_chaos.controlled import ControlledNode
from firesteel_chaos.history import History
from firesteel_chaos.invariants import Bounds, Violation, check
from firesteel_chaos.observer import Observer
from firesteel_chaos.store_view import open_store_view
from firesteel_chaos.workload.calls import RecordingClient
from firesteel_chaos.workload.errands import LoadErrands, Planned
from firesteel_chaos.workload.leftovers import leftovers, look_at_savepoints
from firesteel_chaos.workload.outputs import compare, ids_in, read_diary
from firesteel_chaos.workload.programs import PROGRAM, ScriptPlan, batch_graph, script_graph, stream_graph

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("chaos")]

SECONDS = 90.0
KNOCKS = 10
BOUNDS = Bounds(cancel=3.0, failover=2.0, reachable=3.0, hiccup=1.0, clean=5.0)
"""Short ones: a bug is not to be waited for. Those who have none are judged by the usual ones."""


@pytest.fixture(scope="module")
def ground(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A data directory with an engine that all clusters in it use."""
    root = tmp_path_factory.mktemp("bugs")
    configuration = load_configuration(overrides={**OPTIONS, "data.dir": str(root / "data")}, environ={})
    engines = EngineDirectory(configuration.data.dir)
    record = start_engine(engines, shared_engine_spec(configuration), launch_options(configuration), shared=True)
    yield root
    stop_engine(engines, record, grace=5)


class RestoreRefusedError(Exception):
    """The node did not take a job that was to go on from a savepoint."""


class Scene:
    """A small cluster, and one client that does something to it."""

    def __init__(self, root: Path, bug: str | None, *, nodes: int = 1, crash: str | None = None) -> None:
        self.bug = bug
        name = bug or f"sound-{uuid.uuid4().hex[:6]}"
        self.root = root / name
        self.root.mkdir()
        module = ["tests.chaos.buggy_node", bug] if bug else ["tests.chaos.failing_node"]
        environment = {"FIRESTEEL_CHAOS_WITNESS": str(self.root / "witness")}
        if crash is not None:
            environment["FIRESTEEL_CHAOS_CRASH"] = crash
            environment["FIRESTEEL_CHAOS_CRASH_ONCE"] = str(self.root / "crashed")
        self.cluster = StagedCluster(
            root,
            nodes=nodes,
            lease=3.0,
            options={"high-availability.cluster-id": name, "engine.reuse": "true", "engine.isolation": "session"},
            command=[sys.executable, "-m", *module],
            environment=environment,
        )
        self.history = History(self.root / "history.jsonl")
        self.observer: Observer | None = None
        self.errands = LoadErrands(self.history)
        self.client: RecordingClient | None = None
        self._ids = random.Random(name)

    def __enter__(self) -> Scene:
        self.cluster.__enter__()
        store = open_store_view(self.cluster.configuration)
        self.observer = Observer(self.cluster, self.history, store=store, witness=self.root / "witness")
        self.observer.start()
        self.client = RecordingClient("client", self.cluster, self.history, self._ids)
        return self

    def __exit__(self, *_: object) -> None:
        self.errands.over.set()
        assert self.client is not None
        assert self.observer is not None
        self.client.close()
        self.observer.close()
        self.cluster.__exit__()
        self.history.close()

    def new_id(self) -> str:
        return uuid.UUID(int=self._ids.getrandbits(128)).hex

    # -- what is done ---------------------------------------------------------------------------------------------

    def fail_over(self) -> None:
        for node in self.cluster.nodes():
            self.history.record("fault", id=1, name="F1", what="kill", target=node.name, harms=["nodes"])
            node.kill()
            node.start()
            self.history.record("healed", id=1, name="F1")

    def batch(self, rows: int = 20) -> Planned:
        job = self.new_id()
        planned = Planned(job, "batch", "FINISHED", self.root / job, rows)
        self.submit(planned, batch_graph(self.root / job, rows))
        return planned

    def script(self, plan: ScriptPlan) -> Planned:
        job = self.new_id()
        program = self.root / "program.py"
        program.write_text(PROGRAM)
        ref = self.ask("upload", None, lambda c: str(c.upload(program, "program.py")))
        planned = Planned(job, "script", plan.ends, diary=self.root / f"{job}.jsonl")
        assert planned.diary is not None
        self.submit(planned, script_graph(ref, planned.diary, plan), **plan.to_json())
        return planned

    def stream(self, restore: str | None = None, **plan: Any) -> Planned:
        source = self.root / "in"
        source.mkdir(exist_ok=True)
        (source / "1.json").write_text('{"id": 0}\n')
        planned = Planned(self.new_id(), "streaming", "FINISHED", self.root / "out")
        assert planned.out is not None
        self.submit(planned, stream_graph(source, planned.out, restore=restore), restore=restore, **plan)
        return planned

    def submit(self, planned: Planned, graph: dict[str, Any], **plan: Any) -> None:
        assert self.client is not None
        self.errands.declare(planned, graph, **plan)
        told = self.errands.submit(self.client, planned.job, graph)
        if plan.get("restore") and told.outcome == "refused":
            raise RestoreRefusedError(told.error)
        assert told.ok

    def ask(self, what: str, job: str | None, do: Callable[[ClusterClient], Any], **args: Any) -> Any:
        client = self.client
        assert client is not None
        return self.errands.until_known(client, lambda: client.ask(what, job, do, **args)).value

    def operate(self, what: str, operation: Any, planned: Planned, wish: dict[str, Any]) -> tuple[str, Any]:
        trigger = self.new_id()
        client = self.client
        assert client is not None
        told = self.errands.operate(client, what, operation, planned.job, trigger, wish)
        return trigger, told.value["location"] if told.ok else None

    def wait(self, planned: Planned) -> None:
        assert self.client is not None
        ended = self.errands.wait(self.client, planned)
        if ended is not None and planned.load == "batch" and planned.out is not None and ended["status"] == "FINISHED":
            self.history.record("output", job=planned.job, **compare(ids_in(planned.out), planned.rows).to_json())
        for number, run in enumerate(read_diary(planned.diary) if planned.diary else [], 1):
            ended_at = None if run.ended is None else self.history.at(run.ended)
            moments = {"began": self.history.at(run.began), "ended": ended_at}
            self.history.record("run", job=planned.job, number=number, pid=run.pid, how=run.how, **moments)

    # -- what is seen ---------------------------------------------------------------------------------------------

    def until(self, what: str, look: Callable[[], object], seconds: float = SECONDS) -> None:
        until(look, what, seconds)

    def seen(self, kind: str, **wanted: Any) -> bool:
        events = self.history.events()
        return any(e.kind == kind and all(e.get(k) == v for k, v in wanted.items()) for e in events)

    def violations(self, bounds: Bounds = BOUNDS) -> list[Violation]:
        return check(self.history.events(), bounds=bounds)

    def expect(self, *invariants: str) -> None:
        """Watch until each of them was seen to be violated."""
        wanted = set(invariants)

        def missing() -> set[str]:
            return wanted - {v.invariant for v in self.violations()}

        until(lambda: not missing(), lambda: f"of {self.bug}, {missing()} not seen", 40)


def a_failover(scene: Scene) -> None:
    stream = scene.stream()
    scene.until("the stream does not run", lambda: scene.seen("query", job=stream.job))
    scene.fail_over()
    scene.until("nobody leads", lambda: scene.ask("status", stream.job, lambda c: c.job(stream.job).status().value))


def a_batch_job(scene: Scene) -> None:
    batch = scene.batch()
    scene.wait(batch)

    def clean() -> bool:
        events = [e for e in scene.history.events() if e.kind == "stored" and e["job"] == batch.job]
        return bool(events) and events[-1]["result"] is not None and not events[-1]["result"]["dirty"]

    scene.until("the job is not cleaned up", clean)
    for what in leftovers(scene.cluster.sites()[0], batch):
        scene.history.record("left", job=batch.job, what=what)
    assert scene.client is not None
    scene.errands.ask_result(scene.client, batch)


def another_job_under_the_same_id(scene: Scene) -> None:
    batch = scene.batch(200)
    assert scene.client is not None
    scene.errands.submit(scene.client, batch.job, batch_graph(scene.root / "other", 7), what="submit-other")


def a_cancel(scene: Scene) -> None:
    script = scene.script(ScriptPlan(seconds=20.0, cancel=True))
    scene.until("it does not run", lambda: scene.seen("driver", job=script.job, alive=True))
    scene.ask("cancel", script.job, lambda c: c.job(script.job).cancel())


def a_stop_and_a_restore(scene: Scene) -> None:
    stream = scene.stream()
    scene.until("the stream does not run", lambda: scene.seen("query", job=stream.job))
    scene.until("it wrote nothing", lambda: stream.out is not None and ids_in(stream.out))
    _, location = scene.operate("stop", STOP, stream, {"drain": False, "savepoint": True})
    scene.wait(stream)
    look_at_savepoints(scene.history, [(stream.job, location)])
    try:
        again = scene.stream(location)
    except RestoreRefusedError:
        return  # there is nothing to go on from, which is for the invariants to say
    scene.until("it neither runs nor ends", lambda: scene.seen("query", job=again.job) or ended(scene, again))
    if ended(scene, again):
        scene.wait(again)


def ended(scene: Scene, planned: Planned) -> bool:
    return any(scene.seen("job-state", job=planned.job, status=s) for s in ("FAILED", "FINISHED", "CANCELED"))


def a_savepoint_asked_for_across_a_failover(scene: Scene) -> None:
    stream = scene.stream()
    scene.until("the stream does not run", lambda: scene.seen("query", job=stream.job))
    scene.until("it wrote nothing", lambda: stream.out is not None and ids_in(stream.out))
    trigger, location = scene.operate("savepoint", SAVEPOINT, stream, {})
    assert location
    scene.fail_over()
    args = {"trigger": trigger, "of": "savepoint"}
    scene.ask("operation", stream.job, lambda c: c.outcome(SAVEPOINT, trigger, job_id=JobID(stream.job)), **args)


def failures_across_a_failover(scene: Scene) -> None:
    script = scene.script(ScriptPlan(failures=9, restarts=1, seconds=4.0))
    diary = script.diary
    assert diary is not None
    scene.until("it does not run again", lambda: len(read_diary(diary)) == 2)
    scene.fail_over()
    scene.wait(script)


def a_kill_after_an_acknowledgement(scene: Scene) -> None:
    batch = scene.batch()
    scene.fail_over()
    scene.wait(batch)


def a_crash_before_the_result(scene: Scene) -> None:
    [node] = scene.cluster.nodes()
    scene.history.record("fault", id=1, name="F5", what="crash", target=node.name, harms=["nodes"])
    batch = scene.batch()
    scene.until("it did not crash", lambda: not node.alive)
    node.start()
    scene.history.record("healed", id=1, name="F5")
    scene.wait(batch)


def a_pause_of_the_leader(scene: Scene) -> None:
    def epochs() -> list[int]:
        return [e["epoch"] for e in scene.history.events() if e.kind == "store" and e.get("epoch")]

    scene.until("nobody leads", lambda: scene.seen("reach", ok=True))
    with scene.cluster.client() as client:
        leader = client.cluster_status().leader
    paused = next(n for n in scene.cluster.nodes() if n.address == leader)
    scene.history.record("fault", id=1, name="F4", what="pause", target=paused.name, harms=["nodes"])
    paused.pause()
    before = max(epochs())
    scene.until("nobody else leads", lambda: max(epochs()) > before)
    # Another leader is there and has written something; and the time is over that I7 gives to what was begun before.
    scene.until("the other one does not serve", lambda: scene.seen("leader", epoch=max(epochs()), answered=True))
    since = scene.history.now
    other = scene.batch()
    scene.until("time does not pass", lambda: scene.history.now > since + BOUNDS.fenced + 1)
    knocking(scene, paused, paused.resume)
    scene.history.record("healed", id=1, name="F4")
    scene.wait(other)
    # Whoever leads now sees in the store what it was not asked for, and may be the faster one; not every time.
    for _ in range(KNOCKS if scene.bug else 0):
        if scene.seen("driver", by=paused.pid):
            return
        knocking(scene, paused, lambda: None)


def knocking(scene: Scene, node: ControlledNode, meanwhile: Callable[[], None]) -> None:
    """Submit at the door of one node, asleep or awake, and wait for the jobs."""
    planned = [
        Planned(scene.new_id(), "batch", "FINISHED", scene.root / f"door-{scene.new_id()}", 100) for _ in range(4)
    ]
    heard: list[str] = []

    def knock(waiting: Planned) -> None:
        assert waiting.out is not None
        graph = batch_graph(waiting.out, waiting.rows)
        scene.errands.declare(waiting, graph)
        with ClusterClient(node.address, token=scene.cluster.token, timeout=SECONDS) as client:
            heard.append(client.submit(graph, job_id=waiting.job).job_id)

    threads = [threading.Thread(target=knock, args=(p,)) for p in planned]
    for thread in threads:
        thread.start()
    meanwhile()
    for thread in threads:
        thread.join()
    assert len(heard) == len(planned)
    for waiting in planned:
        scene.wait(waiting)


Play = Callable[[Scene], None]

CASES: list[tuple[str, Play, tuple[str, ...], dict[str, Any]]] = [
    ("fencing-skipped", a_pause_of_the_leader, ("I6", "I7"), {"nodes": 2}),
    ("acknowledged-before-the-write", a_kill_after_an_acknowledgement, ("I1",), {}),
    ("cleaned-before-the-result", a_crash_before_the_result, ("I1", "I13"), {"crash": "before:results/"}),
    ("restarted-on-adoption", a_failover, ("I8",), {}),
    ("started-twice", a_failover, ("I2",), {}),
    ("result-overwritten", a_batch_job, ("I5",), {}),
    ("cancel-forgotten", a_cancel, ("I10",), {}),
    ("duplicates-not-noticed", another_job_under_the_same_id, ("I3",), {}),
    ("cleaned-up-by-halves", a_batch_job, ("I12",), {}),
    ("savepoint-not-taken", a_stop_and_a_restore, ("I13", "I14"), {}),
    ("operations-forgotten", a_savepoint_asked_for_across_a_failover, ("I19",), {}),
    ("counters-not-durable", failures_across_a_failover, ("I11",), {}),
    ("epoch-granted-twice", a_failover, ("I6",), {}),
    ("slow-to-lead", a_failover, ("I9",), {}),
]


def test_every_bug_has_a_case() -> None:
    assert {case[0] for case in CASES} == set(BUGS)


@pytest.mark.parametrize(("bug", "play", "invariants", "options"), CASES, ids=[case[0] for case in CASES])
def test_bug_is_caught(
    ground: Path, bug: str, play: Play, invariants: tuple[str, ...], options: dict[str, Any]
) -> None:
    with Scene(ground, bug, **options) as scene:
        play(scene)
        scene.expect(*invariants)


@pytest.mark.parametrize("play", dict.fromkeys(case[1] for case in CASES), ids=lambda play: str(play.__name__))
def test_nothing_is_seen_of_a_sound_node(ground: Path, play: Play) -> None:
    options = next(case[3] for case in CASES if case[1] is play)
    with Scene(ground, None, **options) as scene:
        play(scene)
        assert scene.observer is not None
        scene.observer.look_once()
        assert scene.violations(Bounds()) == []
