"""A node with an engine and with a program that has a JVM of its own, both at work: every door of every process (S2, S23),
what they were started with (S11, S12, S33), and where their secrets are (S27)."""

from __future__ import annotations

import contextlib
import os
import re
import shutil
import socket
import stat
import struct
import tempfile
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from tests.attacks.attacked_node import (
    UNLIMITED,
    AttackedNode,
    People,
    argv_of,
    processes_of,
    routes,
    sockets_of,
    tcp_listeners,
    until,
)
from tests.attacks.canaries import ENVIRONMENT, MARK, canary
from tests.attacks.test_attacks_by_queries import RUNNING, SPELLED_OTHERWISE
from tests.support.engine_shape import QUICK_JAVA

from firesteel.attempts.attempt import AttemptDirectory
from firesteel.attempts.gateway_home import connection, connection_file
from firesteel.engines.api import EngineApi
from firesteel.engines.record import EngineDirectory, EngineRecord
from firesteel.spark_connect.query_text import as_query
from firesteel.spark_connect.session import EngineSession, quiet_client_logs

pytestmark = [pytest.mark.spark, pytest.mark.slow, pytest.mark.xdist_group("attacks-on-engines")]

LOOPBACK = {"0100007F", "0000000000000000FFFF00000100007F"}
CONNECT_PROGRAM = b"""
import sys
from pyspark.sql import SparkSession
from pyspark.sql.functions import udf
spark = SparkSession.builder.getOrCreate()
print(sys.argv[1:], flush=True)

@udf("int")
def wait(number):
    import time
    time.sleep(1)
    return 1

spark.range(600).select(wait("id")).collect()
"""
CLASSIC_PROGRAM = b"""
import sys
from pyspark import SparkContext
print(sys.argv[1:], flush=True)
SparkContext().parallelize(range(600), 1).foreach(lambda number: __import__("time").sleep(1))
"""

SECRETS = {
    "FIRESTEEL_CLIENT_TOKEN": canary("own"),
    "FIRESTEEL_HIGH_AVAILABILITY_ZOOKEEPER_CLIENT_AUTH": canary("store"),
    **ENVIRONMENT,
}
"""In the environment of the node."""


@dataclass
class Working:
    node: AttackedNode
    people: People
    engine: EngineRecord
    jobs: dict[str, str]
    """`connect` and `classic`."""
    mark: Path
    """What a command that was smuggled in would make."""
    arguments: list[str]

    def jvm(self) -> Path:
        """Home of the JVM that the classic program has."""
        attempt = self.node.cluster / "jobs" / self.jobs["classic"] / "attempts" / "1"
        return next(attempt.glob("jvm-*"))

    def jvm_pid(self) -> int:
        return int((self.jvm() / "pid").read_text())


@pytest.fixture(scope="module")
def working(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Working]:
    root = tmp_path_factory.mktemp("engines")
    overrides = {
        "engine.master": "local[1]",
        "engine.jvm-options": QUICK_JAVA,
        "engine.memory": "512m",
        "engine.reuse": "false",
        **UNLIMITED,
    }
    # Short: it stands several times in a name, and names have 200 characters at most.
    mark = Path(tempfile.mkdtemp(prefix="fs-")) / "m"
    names = {
        "connect": f"--conf spark.x=$(touch {mark})",
        "classic": f"x'; touch {mark}; `touch {mark}` | touch {mark} & #",
    }
    arguments = [
        "--conf",
        "spark.driver.extraClassPath=/evil",
        "--jars=/evil.jar",
        "--proxy-user",
        "root",
        f"$(touch {mark})",
        f"; touch {mark}",
        "-Xmx1",
        "--",
        "",
        "a\nb",
    ]
    with AttackedNode(root / "state", overrides, SECRETS) as node, node.people() as people:
        jobs = {}
        for kind, program in (("connect", CONNECT_PROGRAM), ("classic", CLASSIC_PROGRAM)):
            key = people.alice.upload(program)
            script = {"kind": "script", "name": "s", "file": f"blob:{key}/p.py", "args": arguments}
            jobs[kind] = people.alice.submit({"name": names[kind], "vertices": [script]})
        for job in jobs.values():
            until(lambda job=job: "--conf" in people.alice.get(f"/jobs/{job}/logs/stdout").text, 180)  # type: ignore[misc]
        engines = EngineDirectory(node.cluster)
        engine = until(lambda: next(iter(engines.alive()), None))
        working = Working(node, people, engine, jobs, mark, arguments)
        # Both run Python on their workers by now: all doors that there will be are there.
        until(lambda: len(_daemons(node)) == 2, 180)
        yield working
    shutil.rmtree(mark.parent)
    assert "Traceback" not in node.log_text()


def _daemons(node: AttackedNode) -> set[int]:
    """Parents of Python workers; those that they forked are called the same, and listen to nobody."""
    return {pid for pid in processes_of(node) if "pyspark.daemon" in argv_of(pid) and tcp_listeners(pid)}


def test_every_door_of_every_process_is_on_this_machine(working: Working) -> None:
    """S2, S23: the node, its drivers, the engine, the JVM of a program, and their workers."""
    assert working.engine.process is not None
    expected = {
        working.node.pid: {int(working.node.address.rpartition(":")[2])},
        working.engine.process.pid: {working.engine.port, working.engine.ui_port},
        working.jvm_pid(): {connection(working.jvm(), None, 5)[0]},
    }
    for pid, ports in expected.items():
        until(lambda pid=pid, ports=ports: ports <= set(tcp_listeners(pid)))  # type: ignore[misc]
    doors = {pid: tcp_listeners(pid) for pid in processes_of(working.node)}
    assert {address for found in doors.values() for address in found.values()} <= LOOPBACK
    assert set(doors[working.node.pid]) == expected[working.node.pid]


def test_sockets_with_a_name_are_in_closed_directories(working: Working) -> None:
    """S23: whoever may not enter the directory cannot knock."""
    named = set()
    for pid in processes_of(working.node):
        mine = sockets_of(pid)
        for line in Path("/proc/net/unix").read_text().splitlines()[1:]:
            fields = line.split(maxsplit=7)
            if len(fields) == 8 and fields[6] in mine:
                named.add(fields[7])
    # Those with an abstract name are open to everybody. The node has one, which looks at who asks (`rest.local_door`).
    assert len([name for name in named if name.startswith("@")]) <= 1, named
    assert all(name.startswith("@firesteel-") for name in named if name.startswith("@")), named
    doors = [p for p in working.node.directory.rglob("*") if stat.S_ISSOCK(p.lstat().st_mode)]
    assert doors
    for door in doors:
        assert not door.lstat().st_mode & (stat.S_IWGRP | stat.S_IWOTH)
        assert not door.parent.stat().st_mode & 0o077


def test_spark_connect_asks_for_its_token(working: Working) -> None:
    """S2: CVE-2020-9480"""
    import grpc
    from pyspark.sql.connect.proto import base_pb2, base_pb2_grpc

    request = base_pb2.ConfigRequest(session_id="0" * 32, operation=base_pb2.ConfigRequest.Operation())
    request.operation.get_all.SetInParent()
    request.user_context.user_id = "firesteel"
    for token in (None, "", "wrong", working.engine.ui_secret, working.engine.token[:-1]):
        with grpc.insecure_channel(f"127.0.0.1:{working.engine.port}") as channel:
            stub = base_pb2_grpc.SparkConnectServiceStub(channel)
            sent = [] if token is None else [("authorization", f"Bearer {token}")]
            for call in (stub.Config, stub.ReleaseSession):
                asked = request if call is stub.Config else base_pb2.ReleaseSessionRequest(session_id="0" * 32)
                with pytest.raises(grpc.RpcError) as caught:
                    call(asked, metadata=sent, timeout=30)
                assert caught.value.code() is grpc.StatusCode.UNAUTHENTICATED


def test_the_ui_asks_for_its_secret(working: Working) -> None:
    """S2"""
    for path in ("/", "/jobs/", "/environment/", "/api/v1/applications", "/executors/threadDump/?executorId=driver"):
        for headers in ({}, {"Authorization": "Bearer eyJhbGciOiJub25lIn0.e30."}, {"X-User": "root"}):
            request = urllib.request.Request(f"http://127.0.0.1:{working.engine.ui_port}{path}", headers=headers)
            with pytest.raises(urllib.error.HTTPError) as caught:
                urllib.request.urlopen(request, timeout=30)
            assert caught.value.code == 403
            caught.value.close()


def said(port: int, sent: bytes, timeout: float = 10, end: bytes = b"\0" * 9) -> bytes:
    """What a door says until it closes, says `end`, or says nothing for so long."""
    found = b""
    with socket.create_connection(("127.0.0.1", port), timeout) as stranger, contextlib.suppress(OSError):
        stranger.sendall(sent)
        while len(found) < 4096 and not found.endswith(end) and (data := stranger.recv(4096)):
            found += data
    return found


def test_the_gateway_of_a_program_asks_for_its_secret(working: Working) -> None:
    """S23: CVE-2018-1334"""
    port, secret = connection(working.jvm(), None, 5)
    look = b"r\nu\njava.lang.Runtime\nrj\ne\n"
    for opening in (b"", b"A\nwrong\n", b"A\n\n", b"A\n%s\n" % secret[:-1].encode()):
        assert not said(port, opening + look, end=b"\n").startswith(b"!y")
    assert said(port, b"A\n%s\n" % secret.encode(), end=b"\n").startswith(b"!y")  # with it, there is one
    file = connection_file(working.jvm())
    assert not file.stat().st_mode & 0o077


def test_workers_ask_for_their_secret(working: Working) -> None:
    """S23"""
    for pid in _daemons(working.node):
        for port in tcp_listeners(pid):
            for secret in (b"wrong", b""):
                # The number of a process that was made for us, and that we are not the one it was made for.
                assert said(port, struct.pack("!i", len(secret)) + secret)[4:] == struct.pack("!i", 3) + b"err"


def test_drivers_ask_for_their_secret(working: Working) -> None:
    """S23: a classic driver listens for counts of its workers. The node's own children listen to nobody else."""
    drivers = [pid for pid in processes_of(working.node) if "firesteel.driver.zygote" in argv_of(pid)]
    assert len(drivers) >= 3
    ports = [port for pid in drivers for port in tcp_listeners(pid)]
    assert len(ports) <= 1
    for port in ports:
        # What would add one to a counter, if anybody listened.
        assert said(port, b"x" * 64 + struct.pack("!i", 1) + b"\x80\x04K\x01.") == b""


RPC_REQUEST = struct.pack(">qBqi", 8 + 1 + 8 + 4 + 8, 3, 7, 8) + b"\0\0\0\0" + b"\xac\xed\x00\x05"
"""A frame of Spark's own protocol: an RPC from nobody to nobody, whose content is the beginning of a Java object."""


def test_rpc_between_spark_processes_asks_for_a_secret(working: Working) -> None:
    """S2, S23: CVE-2020-9480. No object of a stranger's is read."""
    assert working.engine.process is not None
    known = {working.engine.port, working.engine.ui_port, connection(working.jvm(), None, 5)[0]}
    doors = {*tcp_listeners(working.engine.process.pid), *tcp_listeners(working.jvm_pid())} - known
    assert len(doors) >= 4
    for port in doors:
        assert b"ObjectInputStream" not in said(port, RPC_REQUEST, 2)


def test_names_and_arguments_run_nothing_and_reach_no_command_line(working: Working) -> None:
    """S11, S12: CVE-2022-33891, CVE-2023-6019. Arguments reach the program as they are, and nothing else."""
    for job in working.jobs.values():
        assert working.people.alice.get(f"/jobs/{job}/logs/stdout").text.strip() == str(working.arguments)
    assert not working.mark.exists()
    started = [argv for pid in processes_of(working.node) if (argv := argv_of(pid))]
    assert len(started) >= 6
    for argv in started:
        line = " ".join(argv)
        for text in ("touch", "evil", "--proxy-user", "--jars", "extraClassPath", "spark.x"):
            assert text not in line, argv
        # S33: nobody can look into the JVM, and nothing that a job says is an option of it.
        assert not re.search(r"jdwp|jmxremote|javaagent|agentlib|agentpath|-Xmx1\b", line), argv
    javas = [argv for argv in started if Path(argv[0]).name == "java"]
    assert len(javas) == 2
    for argv in javas:
        after = argv[argv.index("org.apache.spark.deploy.SparkSubmit") + 1 :]
        assert [part for part in after if part.startswith("--")] in (
            ["--master", "--properties-file", "--load-spark-defaults", "--class"],
            ["--master", "--properties-file", "--load-spark-defaults"],
        )


@pytest.mark.parametrize("query", [*RUNNING, *SPELLED_OTHERWISE])
def test_an_engine_runs_no_program_and_calls_no_java_for_a_query(working: Working, query: str) -> None:
    """S39"""
    quiet_client_logs()
    session = EngineSession(working.engine.remote(str(uuid.uuid4())))
    try:
        with pytest.raises(Exception, match="SQL_RESTRICTED_MODE"):
            session.sql(as_query(query), {}).collect()
    finally:
        session.close()


def test_sessions_of_others_cannot_be_guessed(working: Working) -> None:
    """S41, S22: what an attempt is called on its engine follows from a secret; who knows the job knows nothing."""
    job = working.jobs["connect"]
    attempt = AttemptDirectory(working.node.cluster / "jobs" / job / "attempts" / "1")
    names = attempt.read_spec().ids
    tags = until(lambda: " ".join(tag for j in EngineApi(working.engine).get("jobs") for tag in j.get("jobTags", ())))
    assert f"User_{names.user_id}_Session_{names.session_id}_" in tags
    public = uuid.UUID("6f1b6f0e-5d0f-5f3c-9a51-66697265737f")
    assert str(uuid.uuid5(public, f"{job}/1")) not in tags
    assert "User_firesteel_" not in tags
    for route in routes():
        if route.method == "GET" and not route.streams and not route.changes:
            shown = working.people.bob.get(route.filled(jobid=job, taskmanagerid=working.engine.engine_id)).text
            assert names.session_id not in shown


def test_no_process_of_a_job_inherits_a_secret_of_the_node(working: Working) -> None:
    """S40: the zygote, drivers, the engine, the JVM of a program, and Python workers."""
    environments = {pid: Path(f"/proc/{pid}/environ").read_bytes() for pid in processes_of(working.node)}
    assert environments[working.node.pid].count(MARK.encode()) == len(SECRETS)
    others = {pid: text for pid, text in environments.items() if pid != working.node.pid}
    assert len(others) >= 5
    for pid, text in others.items():
        assert MARK.encode() not in text, argv_of(pid)
        names = {line.partition(b"=")[0].decode() for line in text.split(b"\0")}
        assert {name for name in names if name.startswith("FIRESTEEL_")} <= {"FIRESTEEL_ENGINE_ID"}


def test_secrets_of_engines_are_shown_nowhere(working: Working) -> None:
    """S27: neither to an admin, nor to the owner of a job; in no argument, no log, and no file that others can read."""
    secrets = [working.engine.token, working.engine.ui_secret, connection(working.jvm(), None, 5)[1]]
    assert all(len(s) > 20 for s in secrets)
    shown = " ".join(part for pid in processes_of(working.node) for part in argv_of(pid)) + working.node.log_text()
    for caller in (working.people.root, working.people.alice):
        for route in routes():
            if route.method == "GET" and not route.streams and not route.changes:
                for job in working.jobs.values():
                    for name in ("stdout", "stderr", "events", "jvm"):
                        filled = route.filled(
                            jobid=job, applicationid=job, name=name, taskmanagerid=working.engine.engine_id
                        )
                        shown += caller.get(filled).text
                        if "{name}" not in route.path:
                            break
    assert working.engine.engine_id in shown
    for secret in secrets:
        assert secret not in shown
    for path in working.node.cluster.rglob("*"):
        if path.is_file() and path.lstat().st_mode & (stat.S_IRGRP | stat.S_IROTH):
            content = path.read_bytes()
            assert not [s for s in secrets if s.encode() in content], path
    for pid in processes_of(working.node):
        assert not os.stat(f"/proc/{pid}/environ").st_mode & 0o077
