"""Nodes and engines: configuration, metrics, logs, threads."""

from __future__ import annotations

import http.server
import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from tests.rest.desk import ADMIN, Desk
from tests.rest.test_flink_cluster import ALICE, BOB, ONE, TWO, VIEWER, engine, running

from firesteel.config.sections import Role
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.processes import ProcessIdentity
from firesteel.resourcemanager.overview import ResourceOverview
from firesteel.resourcemanager.state import EngineState
from firesteel.rest.security.principals import Principal

ALL = Principal("eye", Role.VIEWER, "*")
CANARY = "canary-3f9a1c"

TRAVERSALS = [
    "..%2fsecret.txt",
    "%2e%2e%2fsecret.txt",
    "..%252fsecret.txt",
    "..%5csecret.txt",
    "secret.txt",
    "node.log%00.txt",
    "%2fetc%2fpasswd",
    "NODE.LOG",
    "node.log%2f..%2f..%2fsecret.txt",
    "....%2f%2fsecret.txt",
    "a" * 300,
]


def with_engine(desk: Desk, **more: Any) -> Path:
    """An engine `e1` with a directory; the directory."""
    desk.gateway.resources = ResourceOverview((engine(**more),), 2, 0)
    directory = EngineDirectory(desk.context.directory)
    home = directory.home("e1")
    home.mkdir()
    return home


class TestJobManager:
    def test_configuration_is_what_is_in_force_without_secrets(self, tmp_path: Path) -> None:
        """S27"""
        overrides = {
            "engine.token": CANARY,
            "client.token": CANARY,
            "high-availability.sql.url": f"postgresql://u:{CANARY}@db/x",
            "spark.hadoop.fs.s3a.secret.key": CANARY,
            "spark.hadoop.fs.azure.account.key.x": CANARY,
            "spark.sql.shuffle.partitions": "7",
        }
        answer = Desk(tmp_path, overrides).client(VIEWER).get("/jobmanager/config")
        assert CANARY not in answer.text
        shown = {row["key"]: row["value"] for row in answer.json()}
        assert shown["spark.sql.shuffle.partitions"] == "7"
        assert shown["engine.memory"] == "1g"

    def test_environment_is_the_runtime_and_nothing_of_its_variables(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
    ) -> None:
        """S27"""
        monkeypatch.setenv("SOME_PASSWORD", CANARY)
        answer = Desk(tmp_path).client(VIEWER).get("/jobmanager/environment")
        assert CANARY not in answer.text
        shown = answer.json()
        assert shown["jvm"]["version"].startswith("CPython 3.")
        assert (shown["jvm"]["options"], shown["classpath"]) == ([], [])

    def test_metrics_are_names_and_then_values(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        desk.gateway.resources = ResourceOverview((engine(),), 2, 0)
        client = desk.client(VIEWER)
        names = [m["id"] for m in client.get("/jobmanager/metrics").json()]
        assert {"taskSlotsTotal", "Status.JVM.Threads.Count", "Status.JVM.Memory.Heap.Used"} <= set(names)
        values = {m["id"]: m["value"] for m in client.get(f"/jobmanager/metrics?get={','.join(names)},x").json()}
        assert set(values) == set(names)
        assert (values["taskSlotsTotal"], values["taskSlotsAvailable"], values["numWaitingJobs"]) == ("8", "6", "2")
        for name in ("Status.JVM.Threads.Count", "Status.JVM.Memory.Heap.Used", "Status.JVM.FileDescriptor.Open"):
            assert int(values[name]) > 0

    def test_logs_are_those_of_the_node(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        client = desk.client(ALL)
        assert client.get("/jobmanager/logs").json() == {"logs": []}
        for path in ("log", "stdout"):
            empty = client.get(f"/jobmanager/{path}")
            assert (empty.status_code, empty.text, empty.headers["content-type"]) == (200, "", "text/plain")
        (tmp_path / "node.log").write_text("begun\n")
        (tmp_path / "secret.txt").write_text(CANARY)
        (entry,) = client.get("/jobmanager/logs").json()["logs"]
        assert (entry["name"], entry["size"]) == ("node.log", 6)
        for path in ("log", "logs/node.log"):
            shown = client.get(f"/jobmanager/{path}")
            assert (shown.text, shown.headers["content-type"]) == ("begun\n", "text/plain")

    def test_no_other_file_can_be_had(self, tmp_path: Path) -> None:
        """S4"""
        desk = Desk(tmp_path)
        (tmp_path / "node.log").write_text("begun\n")
        (tmp_path / "secret.txt").write_text(CANARY)
        (tmp_path.parent / "secret.txt").write_text(CANARY)
        client = desk.client(ADMIN)
        for name in TRAVERSALS:
            answer = client.get(f"/jobmanager/logs/{name}")
            assert answer.status_code in (400, 404), name
            assert CANARY not in answer.text
            assert "root:" not in answer.text

    def test_a_link_is_not_followed(self, tmp_path: Path) -> None:
        """S4"""
        (tmp_path / "secret.txt").write_text(CANARY)
        (tmp_path / "node.log").symlink_to(tmp_path / "secret.txt")
        client = Desk(tmp_path).client(ADMIN)
        assert client.get("/jobmanager/logs").json() == {"logs": []}
        assert client.get("/jobmanager/logs/node.log").status_code == 404
        assert client.get("/jobmanager/log").text == ""

    def test_who_sees_one_owners_jobs_does_not_read_what_tells_of_all(self, tmp_path: Path) -> None:
        """S19"""
        desk = Desk(tmp_path)
        (tmp_path / "node.log").write_text("job of bob\n")
        for principal in (ALICE, VIEWER):
            for path in ("logs", "log", "stdout", "logs/node.log"):
                refused = desk.client(principal).get(f"/jobmanager/{path}")
                assert refused.status_code == 403
                assert "ask an admin" in refused.json()["errors"][0]

    def test_a_thread_dump_is_for_admins_and_only_when_it_is_on(self, tmp_path: Path) -> None:
        """S33"""
        off = Desk(tmp_path).client(ADMIN).get("/jobmanager/thread-dump")
        assert off.status_code == 403
        assert "security.rest.debug-endpoints" in off.json()["errors"][0]
        desk = Desk(tmp_path, {"security.rest.debug-endpoints": "true"})
        for principal in (ALICE, VIEWER, ALL):
            assert desk.client(principal).get("/jobmanager/thread-dump").status_code == 403
        infos = desk.client(ADMIN).get("/jobmanager/thread-dump").json()["threadInfos"]
        names = {i["threadName"] for i in infos}
        assert "MainThread" in names
        assert any(n.startswith("task ") for n in names)
        assert any("dump_node" in i["stringifiedThreadInfo"] for i in infos)

    def test_there_is_no_profiler(self, tmp_path: Path) -> None:
        """S33"""
        client = Desk(tmp_path).client(ADMIN)
        for path in ("/jobmanager/profiler", "/taskmanagers/e1/profiler"):
            assert client.get(path).json() == {"errors": [f"Unable to load requested file {path}."]}
            assert client.post(path).status_code == 404


class TestTaskManagers:
    def test_engines_that_are_ready_are_listed_with_what_they_have(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        starting = engine("start-1", state=EngineState.STARTING)
        desk.gateway.resources = ResourceOverview((engine(), starting), 0, 0)
        (shown,) = desk.client(VIEWER).get("/taskmanagers").json()["taskmanagers"]
        assert (shown["id"], shown["path"], shown["dataPort"]) == ("e1", "sc://127.0.0.1:15002", 15002)
        assert (shown["slotsNumber"], shown["freeSlots"]) == (8, 6)
        assert shown["totalResource"]["taskHeapMemory"] == 2048
        assert shown["freeResource"]["cpuCores"] == 3.0
        assert shown["hardware"]["physicalMemory"] > 0
        assert shown["memoryConfiguration"]["taskHeap"] == 2 << 30

    def test_an_attached_engine_has_no_heap_that_is_known(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        desk.gateway.resources = ResourceOverview((engine(master="sc://spark:15002", cores=0, foreign=True),), 0, 0)
        details = desk.client(VIEWER).get("/taskmanagers/e1").json()
        assert details["totalResource"]["taskHeapMemory"] == details["metrics"]["heapMax"] == 0

    def test_details_name_the_jobs_that_the_caller_sees(self, tmp_path: Path) -> None:
        """S19"""
        desk = Desk(tmp_path)
        jobs = (running(desk, ONE), running(desk, TWO, owner="bob"), "e" * 32)
        desk.gateway.resources = ResourceOverview((engine(jobs=jobs),), 0, 0)

        def slots(principal: Principal) -> list[str]:
            details = desk.client(principal).get("/taskmanagers/e1").json()
            assert details["assignedTasks"] == 3
            return [s["jobId"] for s in details["allocatedSlots"]]

        assert slots(ALICE) == [ONE]
        assert slots(BOB) == [TWO]
        assert slots(ADMIN) == [ONE, TWO]

    def test_metrics_know_what_the_kernel_tells_of_the_process(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        with_engine(desk)
        client = desk.client(VIEWER)
        known = {m["id"] for m in client.get("/taskmanagers/e1/metrics").json()}
        assert "Status.JVM.Memory.Heap.Max" in known
        assert "Status.JVM.Threads.Count" not in known
        me = ProcessIdentity.of(os.getpid())
        record = EngineRecord("e1", EngineSpec("local[4]"), "127.0.0.1", 15002, process=me)
        EngineDirectory(desk.context.directory).save(record)
        (threads,) = client.get("/taskmanagers/e1/metrics?get=Status.JVM.Threads.Count").json()
        assert int(threads["value"]) > 0

    def test_metrics_over_all_engines(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        desk.gateway.resources = ResourceOverview((engine(), engine("e2", slots=2)), 0, 0)
        client = desk.client(VIEWER)
        assert {"id": "Status.Slots.Total"} in client.get("/taskmanagers/metrics").json()
        of_all = client.get("/taskmanagers/metrics?get=Status.Slots.Total&agg=sum,MAX").json()
        assert of_all == [{"id": "Status.Slots.Total", "max": 8.0, "sum": 10.0}]
        of_one = client.get("/taskmanagers/metrics?get=Status.Slots.Total&agg=sum&taskmanagers=e2,x").json()
        assert of_one == [{"id": "Status.Slots.Total", "sum": 2.0}]
        wrong = client.get("/taskmanagers/metrics?agg=median")
        assert wrong.status_code == 400
        assert "query parameter (agg)" in wrong.json()["errors"][0]

    def test_logs_are_the_engines(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        (with_engine(desk) / "engine.log").write_text("WARN\n")
        client = desk.client(ALL)
        (entry,) = client.get("/taskmanagers/e1/logs").json()["logs"]
        assert (entry["name"], entry["size"]) == ("engine.log", 5)
        for path in ("log", "logs/engine.log"):
            shown = client.get(f"/taskmanagers/e1/{path}")
            assert (shown.text, shown.headers["content-type"]) == ("WARN\n", "text/plain")
        assert client.get("/taskmanagers/e1/stdout").text == ""

    def test_the_log_of_somebody_elses_engine_is_where_that_one_put_it(self, tmp_path: Path) -> None:
        desk = Desk(tmp_path)
        with_engine(desk, foreign=True)
        directory = EngineDirectory(desk.configuration.data.dir)
        directory.home("e1").mkdir(exist_ok=True)
        directory.log("e1").write_text("shared\n")
        assert desk.client(ALL).get("/taskmanagers/e1/log").text == "shared\n"

    def test_the_record_of_an_engine_with_its_token_cannot_be_had(self, tmp_path: Path) -> None:
        """S4, S27"""
        desk = Desk(tmp_path)
        home = with_engine(desk)
        for name in ("engine.json", "spark.properties", "pid"):
            (home / name).write_text(CANARY)
        client = desk.client(ADMIN)
        for name in ("engine.json", "spark.properties", "pid", *TRAVERSALS):
            answer = client.get(f"/taskmanagers/e1/logs/{name}")
            assert answer.status_code in (400, 404)
            assert CANARY not in answer.text
        for name in ("..%2fengines%2fe1", "%2e%2e", "e1%2f", "e1%00"):
            for path in ("log", "logs", "logs/engine.log", "stdout"):
                assert client.get(f"/taskmanagers/{name}/{path}").status_code in (400, 404)

    def test_who_sees_one_owners_jobs_does_not_read_what_tells_of_all(self, tmp_path: Path) -> None:
        """S19"""
        desk = Desk(tmp_path)
        (with_engine(desk) / "engine.log").write_text("SELECT of bob\n")
        for path in ("log", "logs", "logs/engine.log", "stdout"):
            assert desk.client(ALICE).get(f"/taskmanagers/e1/{path}").status_code == 403

    def test_an_engine_is_seen_by_its_owner_and_by_those_who_see_all(self, tmp_path: Path) -> None:
        """S19, S22: to anybody else it is not there."""
        desk = Desk(tmp_path)
        (with_engine(desk, owner="bob") / "engine.log").write_text("SELECT of bob\n")
        paths = ("", "/log", "/logs", "/logs/engine.log", "/stdout")
        for principal, status in ((ALICE, 404), (BOB, 200), (ALL, 200), (ADMIN, 200)):
            client = desk.client(principal)
            assert {client.get(f"/taskmanagers/e1{path}").status_code for path in paths} == {status}
            count = 0 if status == 404 else 1
            assert len(client.get("/taskmanagers").json()["taskmanagers"]) == count
            assert client.get("/overview").json()["taskmanagers"] == count
            assert bool(client.get("/taskmanagers/metrics").json()) == bool(count)
            assert bool(client.get("/taskmanagers/e1/metrics").json()) == bool(count)

    def test_an_engine_that_is_not_there(self, tmp_path: Path) -> None:
        client = Desk(tmp_path).client(ADMIN)
        for path, words in (
            ("", "No TaskExecutor registered under x."),
            ("/logs", "Could not find TaskExecutor x"),
            ("/log", "Failed to transfer file from TaskExecutor x because it was unknown."),
        ):
            answer = client.get(f"/taskmanagers/x{path}")
            assert (answer.status_code, answer.json()["errors"]) == (404, [words])
        assert client.get("/taskmanagers/x/metrics").json() == []


class TestEngineThreads:
    ON = {"security.rest.debug-endpoints": "true"}  # noqa: RUF012

    def test_they_are_for_admins_and_only_when_it_is_on(self, tmp_path: Path) -> None:
        """S33"""
        desk = Desk(tmp_path)
        with_engine(desk)
        assert desk.client(ADMIN).get("/taskmanagers/e1/thread-dump").status_code == 403
        on = Desk(tmp_path, self.ON)
        for principal in (ALICE, VIEWER, ALL):
            assert on.client(principal).get("/taskmanagers/e1/thread-dump").status_code == 403

    def test_spark_tells_them(self, tmp_path: Path, spark_api: int) -> None:
        desk = Desk(tmp_path, self.ON)
        with_engine(desk)
        record = EngineRecord(
            "e1",
            EngineSpec("local[4]"),
            "127.0.0.1",
            1,
            ui_port=spark_api,
            ui_secret="eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=",
        )
        EngineDirectory(desk.context.directory).save(record)
        (info,) = desk.client(ADMIN).get("/taskmanagers/e1/thread-dump").json()["threadInfos"]
        assert info["threadName"] == "main"
        assert info["stringifiedThreadInfo"].startswith('"main" Id=1 RUNNABLE\n\tat a.b.C.run(C.java:1)\n')

    @pytest.mark.parametrize("port", [0, 1])
    def test_an_engine_that_does_not_tell(self, tmp_path: Path, port: int) -> None:
        desk = Desk(tmp_path, self.ON)
        with_engine(desk)
        record = EngineRecord(
            "e1",
            EngineSpec("local[4]"),
            "127.0.0.1",
            1,
            ui_port=port,
            ui_secret="eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=",
        )
        EngineDirectory(desk.context.directory).save(record)
        answer = desk.client(ADMIN).get("/taskmanagers/e1/thread-dump")
        assert answer.status_code == 404
        assert "engine e1" in answer.json()["errors"][0]


@pytest.fixture
def spark_api() -> Iterator[int]:
    """The part of Spark's monitoring API that tells threads; its port."""
    answers = {
        "/api/v1/applications": [{"id": "app-1"}],
        "/api/v1/applications/app-1/executors/driver/threads": [
            {
                "threadId": 1,
                "threadName": "main",
                "threadState": "RUNNABLE",
                "stackTrace": {"elems": ["a.b.C.run(C.java:1)\n"]},
            }
        ],
    }

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(answers[self.path.partition("?")[0]]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield server.server_port
    server.shutdown()
    server.server_close()
    thread.join()
