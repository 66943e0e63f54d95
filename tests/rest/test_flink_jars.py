"""Uploaded programs: up, listed, planned, run, gone; and what an attacker would upload."""

from __future__ import annotations

import asyncio
import io
import json
import os
import zipfile
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from tests.rest.desk import ADMIN, Desk
from tests.rest.test_flink_cluster import ALICE, BOB, VIEWER

from firesteel.flink_rest import multipart
from firesteel.flink_rest.run_requests import ProgramQuery, ProgramRequestBody, wish_of
from firesteel.jobgraph.model import Script
from firesteel.rest.errors import HttpError
from firesteel.rest.security.principals import Principal
from firesteel.savepoint.manifest import Manifest
from firesteel.stores.uploads import is_upload_id
from firesteel.types import JobID

PIPELINE = """
name: daily
variables: {day: monday}
vertices:
  - {kind: source, name: i, format: csv, path: "/in/${day}"}
  - {kind: sink, name: o, input: i, format: parquet, path: /out}
"""
STREAM = """
name: stream
mode: streaming
vertices:
  - {kind: source, name: i, format: rate}
  - {kind: sink, name: o, input: i, format: parquet, path: /out}
"""
UNKNOWN = "00000000-0000-4000-8000-000000000001_x.py"


def archive(**files: str) -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as z:
        for name, text in files.items():
            z.writestr(name.replace("__slash__", "/"), text)
    return out.getvalue()


ZIP = archive(**{"__main__.py": "print(1)", "pkg/job.py": "print(2)", "pkg/__init__.py": ""})


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def send(desk: Desk, name: str, content: bytes = b"print(1)", who: Principal = ALICE) -> httpx.Response:
    answer: httpx.Response = desk.client(who).post("/jars/upload", files={"jarfile": (name, content)})
    return answer


def uploaded(desk: Desk, name: str, content: bytes = b"print(1)", who: Principal = ALICE) -> str:
    answer = send(desk, name, content, who)
    assert answer.status_code == 200, answer.text
    assert answer.json()["status"] == "success"
    return str(answer.json()["filename"]).rpartition("/")[2]


def script_of(desk: Desk) -> Script:
    script = desk.gateway.submitted[-1].graph.script
    assert script is not None
    return script


class TestUpload:
    def test_a_program_goes_up_and_is_listed_for_its_owner(self, desk: Desk) -> None:
        jar = uploaded(desk, "etl.py")
        assert is_upload_id(jar)
        listed = desk.client(VIEWER).get("/jars").json()
        (shown,) = listed["files"]
        assert (shown["id"], shown["name"]) == (jar, "etl.py")
        assert shown["entry"] == [{"name": "__main__", "description": None}]
        assert listed["address"].startswith("http")
        assert desk.client(BOB).get("/jars").json()["files"] == []
        assert len(desk.client(ADMIN).get("/jars").json()["files"]) == 1

    def test_the_newest_stands_first(self, desk: Desk) -> None:
        first, second = uploaded(desk, "a.py"), uploaded(desk, "b.py", b"x = 1")
        assert [f["id"] for f in desk.client(ALICE).get("/jars").json()["files"]] == [second, first]

    def test_any_field_will_do_and_fields_beside_it_are_read_over(self, desk: Desk) -> None:
        answer = desk.client(ALICE).post("/jars/upload", files={"whatever": ("a.py", b"1")}, data={"note": "hello"})
        assert answer.status_code == 200

    @pytest.mark.parametrize("name", ["a.zip", "a-1.0-py3-none-any.whl"])
    def test_an_archive_is_looked_at(self, desk: Desk, name: str) -> None:
        uploaded(desk, name, ZIP)
        assert desk.client(ALICE).get("/jars").json()["files"][0]["entry"][0]["name"] == "__main__"
        uploaded(desk, name, archive(x="y"))
        assert desk.client(ALICE).get("/jars").json()["files"][0]["entry"] == []

    def test_what_was_copied_to_be_looked_at_is_gone(self, desk: Desk, tmp_path: Path) -> None:
        before = set(os.listdir(tmp_path))
        uploaded(desk, "a.zip", ZIP)
        assert send(desk, "b.zip", b"no zip").status_code == 400
        assert set(os.listdir(tmp_path)) == before

    def test_a_viewer_uploads_nothing(self, desk: Desk) -> None:
        assert send(desk, "a.py", who=VIEWER).status_code == 403
        assert desk.gateway.uploads == {}

    def test_a_java_archive_is_refused_in_words(self, desk: Desk) -> None:
        answer = send(desk, "job.jar", ZIP)
        assert answer.status_code == 400
        assert "not Flink programs" in answer.json()["errors"][0]
        assert desk.gateway.uploads == {}

    def test_other_files_are_no_programs(self, desk: Desk) -> None:
        for name in ("a.exe", "a", "a.py.txt"):
            answer = send(desk, name)
            assert answer.status_code == 400
            assert ".whl" in answer.json()["errors"][0]

    def test_exactly_one_file(self, desk: Desk) -> None:
        client = desk.client(ALICE)
        none = client.post("/jars/upload", json={"a": 1})
        assert none.json() == {"errors": ["Exactly 1 file must be sent, received 0."]}
        only_fields = client.post("/jars/upload", files={"a": (None, b"1")})
        assert only_fields.json() == {"errors": ["Exactly 1 file must be sent, received 0."]}
        two = client.post("/jars/upload", files=[("a", ("a.py", b"1")), ("b", ("b.py", b"2"))])
        assert (two.status_code, two.json()) == (400, {"errors": ["Exactly 1 file must be sent, received 2."]})
        assert desk.gateway.uploads == {}
        assert asyncio.run(desk.blobs.list(None)) == []

    def test_a_body_that_is_cut_off_leaves_nothing(self, desk: Desk) -> None:
        body = b'--b\r\nContent-Disposition: form-data; name="f"; filename="a.py"\r\n\r\nprint('
        headers = {"content-type": "multipart/form-data; boundary=b"}
        answer = desk.client(ALICE).post("/jars/upload", content=body, headers=headers)
        assert (answer.status_code, answer.json()) == (400, {"errors": ["The body is incomplete; send it again."]})
        assert asyncio.run(desk.blobs.list(None)) == []


class TestAttacksOnUploads:
    @pytest.mark.parametrize(
        "name",
        [
            "../../evil.py",
            "..\\\\..\\\\evil.py",
            "/etc/cron.d/evil.py",
            "%2e%2e%2fevil.py",
            "a/b.py",
            ".hidden.py",
            "",
            "..py",
            "a\x07.py",
            "evil.py.",
            "$(touch evil).py",
            "a;b.py",
            "x" * 200 + ".py",
            "größe.py",
        ],
    )
    def test_a_name_is_never_a_path(self, desk: Desk, tmp_path: Path, name: str) -> None:
        """S5, S11"""
        before = _tree(tmp_path), set(tmp_path.parent.iterdir())
        head = f'--b\r\nContent-Disposition: form-data; name="f"; filename="{name}"\r\n\r\n'.encode()
        headers = {"content-type": "multipart/form-data; boundary=b"}
        answer = desk.client(ALICE).post("/jars/upload", content=head + b"print(1)\r\n--b--\r\n", headers=headers)
        assert answer.status_code == 400, answer.text
        assert desk.gateway.uploads == {}
        assert (_tree(tmp_path), set(tmp_path.parent.iterdir())) == before

    def test_where_a_file_is_stored_has_nothing_of_its_name(self, desk: Desk, tmp_path: Path) -> None:
        """S5"""
        uploaded(desk, "telltale.py")
        assert not [p for p in tmp_path.rglob("*") if "telltale" in str(p.relative_to(tmp_path))]

    def test_a_million_small_parts_end_with_the_first_few(self) -> None:
        """S24"""
        part = b'--bound\r\nContent-Disposition: form-data; name="f"\r\n\r\nx\r\n'
        request = _Request(part * 1_000_000, len(part))
        with pytest.raises(HttpError, match=f"more than {multipart.MAX_PARTS} parts"):
            asyncio.run(_received(request))
        assert request.read <= (multipart.MAX_PARTS + 1) * len(part)

    def test_small_parts_behind_the_file_end_too(self) -> None:
        """S24"""
        file = b'--bound\r\nContent-Disposition: form-data; name="f"; filename="a.py"\r\n\r\nx\r\n'
        request = _Request(file + b"--bound\r\n\r\n\r\n" * 1000, 50)
        with pytest.raises(HttpError, match="parts"):
            asyncio.run(_received(request))
        assert request.read < 1000

    def test_fields_that_are_large_are_not_read_to_their_end(self, desk: Desk) -> None:
        """S24"""
        files = [("note", (None, b"x" * (multipart.MAX_FIELDS + 1))), ("f", ("a.py", b"1"))]
        answer = desk.client(ALICE).post("/jars/upload", files=files)
        assert answer.status_code == 400
        assert "The other fields" in answer.json()["errors"][0]

    @pytest.mark.parametrize(
        "headers",
        [b"X-Long: " + b"a" * 10_000 + b"\r\n", b"".join(b"X-%d: 1\r\n" % n for n in range(100))],
        ids=["long", "many"],
    )
    def test_headers_of_a_part_are_few_and_short(self, desk: Desk, headers: bytes) -> None:
        """S24"""
        body = b"--b\r\n" + headers + b'Content-Disposition: form-data; name="f"; filename="a.py"\r\n\r\n1\r\n--b--\r\n'
        kind = {"content-type": "multipart/form-data; boundary=b"}
        answer = desk.client(ALICE).post("/jars/upload", content=body, headers=kind)
        assert answer.status_code == 400
        assert "Maximum header" in answer.json()["errors"][0]

    def test_more_bytes_than_a_file_may_have(self, desk: Desk) -> None:
        """S24"""
        answer = send(desk, "a.py", b"#" * ((1 << 20) + 1))
        assert answer.status_code == 413
        assert "blob.max-size" in answer.json()["errors"][0]
        assert asyncio.run(desk.blobs.list(None)) == []

    def test_more_bytes_than_an_owner_may_keep(self, desk: Desk) -> None:
        """S24"""
        for n in range(4):
            uploaded(desk, f"a{n}.py", bytes([35 + n]) * (1 << 20))
        assert send(desk, "b.py", b"more").status_code == 413
        assert send(desk, "b.py", b"more", who=BOB).status_code == 200

    def test_a_zip_bomb_is_told_before_anything_unpacks_it(self, desk: Desk) -> None:
        """S24"""
        answer = send(desk, "bomb.zip", archive(big="0" * (50 << 20)))
        assert answer.status_code == 400
        assert "times its packed size" in answer.json()["errors"][0]
        assert desk.gateway.uploads == {}

    def test_an_archive_that_would_unpack_elsewhere(self, desk: Desk) -> None:
        """S5"""
        answer = send(desk, "slip.whl", archive(**{"..__slash__evil.py": "1"}))
        assert answer.status_code == 400
        assert "evil.py" in answer.json()["errors"][0]

    @pytest.mark.parametrize(
        "kind",
        ["multipart/form-data", "multipart/form-data; boundary=", f"multipart/form-data; boundary={'b' * 300}", "x/y"],
    )
    def test_nonsense_is_an_error_of_the_client(self, desk: Desk, kind: str) -> None:
        for body in (b"", b"\x00" * 1000, b"--b--", b"--b\r\n\r\n\r\n--b--\r\n", b"--b\r\n:\r\n\r\n"):
            answer = desk.client(ALICE).post("/jars/upload", content=body, headers={"content-type": kind})
            assert answer.status_code == 400


class _Request:
    """A request whose body comes in pieces of a size."""

    def __init__(self, body: bytes, size: int) -> None:
        self.headers = {"content-type": "multipart/form-data; boundary=bound"}
        self.read = 0
        self._body = body
        self._size = size

    async def stream(self) -> AsyncIterator[bytes]:
        for start in range(0, len(self._body), self._size):
            piece = self._body[start : start + self._size]
            self.read += len(piece)
            yield piece
        yield b""


async def _received(request: _Request) -> tuple[str, bytes]:
    part = await multipart.file_part(request)  # type: ignore[arg-type]
    return part.name, b"".join([c async for c in part.chunks])


@pytest.mark.parametrize("size", [1, 2, 7, 64, 10_000])
def test_the_file_is_the_same_however_the_body_is_cut(size: int) -> None:
    content = b"\r\n--boun\r\n--bounD\r\n\r--\r\n" + bytes(range(256)) + b"\r\n"
    body = (
        b'--bound\r\nContent-Disposition: form-data; name="note"\r\n\r\nhello\r\n'
        b'--bound\r\ncontent-DISPOSITION: form-data; name="f"; filename="a.py"\r\nContent-Type: x/y\r\n\r\n'
        + content
        + b"\r\n--bound--\r\nand an epilogue"
    )
    assert asyncio.run(_received(_Request(body, size))) == ("a.py", content)


class TestRun:
    def test_a_script_runs_with_its_arguments_as_they_are(self, desk: Desk) -> None:
        """S11, S12"""
        jar = uploaded(desk, "etl.py")
        args = ["--conf", "spark.master=evil", "--jars", "$(touch x)", "; rm -rf /", "--proxy-user", "a b", "", "`id`"]
        answer = desk.client(ALICE).post(f"/v1/jars/{jar}/run", json={"programArgsList": args, "parallelism": 3})
        assert answer.status_code == 200
        (submission,) = desk.gateway.submitted
        assert answer.json() == {"jobid": submission.job_id, "applicationId": submission.job_id}
        assert submission.owner == "alice"
        assert (submission.graph.name, submission.graph.parallelism) == ("etl", 3)
        script = script_of(desk)
        assert list(script.args) == args
        assert script.file.startswith("blob:")
        assert script.file.endswith("/etl.py")
        assert submission.graph.settings.spark == {}

    def test_an_archive_runs_its_main_or_the_module_that_is_named(self, desk: Desk) -> None:
        jar = uploaded(desk, "app.zip", ZIP)
        client = desk.client(ALICE)
        assert client.post(f"/jars/{jar}/run", json={"entryClass": "__main__"}).status_code == 200
        assert script_of(desk).module is None
        assert client.post(f"/jars/{jar}/run?entry-class=pkg.job").status_code == 200
        assert script_of(desk).module == "pkg.job"
        assert desk.gateway.submitted[-1].graph.settings.artifacts.py_files == (script_of(desk).file,)

    def test_an_archive_without_a_main_wants_a_module(self, desk: Desk) -> None:
        jar = uploaded(desk, "lib.whl", archive(**{"pkg.py": "1"}))
        client = desk.client(ALICE)
        refused = client.post(f"/jars/{jar}/run")
        assert refused.status_code == 400
        assert "entryClass" in refused.json()["errors"][0]
        assert client.post(f"/jars/{jar}/run", json={"entryClass": "pkg"}).status_code == 200

    @pytest.mark.parametrize("what", ["run", "run-application", "plan"])
    def test_a_module_that_the_archive_lacks_is_refused(self, desk: Desk, what: str) -> None:
        jar = uploaded(desk, "lib.whl", archive(**{"pkg/job.py": "1", "tool/__main__.py": "1"}))
        client = desk.client(ALICE)
        for entry in ("pkg.jobs", "pkg", "os", "tool.x"):
            refused = client.post(f"/jars/{jar}/{what}", json={"entryClass": entry})
            assert refused.status_code == 400
            assert f"entry point class '{entry}' was not found in lib.whl" in refused.json()["errors"][0]
        assert desk.gateway.submitted == []
        assert [client.post(f"/jars/{jar}/{what}", json={"entryClass": e}).is_success for e in ("pkg.job", "tool")] == [
            True,
            True,
        ]

    @pytest.mark.parametrize("entry", ["--conf", "a b", "../x", "a;b", "os.system('x')", "a..b", "1a", "a:b"])
    def test_an_entry_that_is_no_module_is_refused(self, desk: Desk, entry: str) -> None:
        """S11, S12"""
        jar = uploaded(desk, "app.zip", ZIP)
        answer = desk.client(ALICE).post(f"/jars/{jar}/run", json={"entryClass": entry})
        assert answer.status_code == 400
        assert "module" in answer.json()["errors"][0]
        assert desk.gateway.submitted == []

    def test_programs_of_one_file_have_no_entry(self, desk: Desk) -> None:
        for name, content in (("a.py", b"1"), ("p.yaml", PIPELINE.encode())):
            answer = desk.client(ALICE).post(f"/jars/{uploaded(desk, name, content)}/run", json={"entryClass": "Main"})
            assert answer.status_code == 400
            assert "entry point class 'Main' was not found" in answer.json()["errors"][0]

    def test_a_pipeline_of_an_admin_names_no_files_of_the_node(self, desk: Desk) -> None:
        """It was written by whoever uploaded it, and runs on a node that nobody chose."""
        pipeline = (
            b"name: x\nsettings: {artifacts: {jars: [/etc/passwd]}}\nvertices:\n"
            b"- {kind: sql, name: q, query: SELECT 1 a}\n- {kind: sink, name: o, input: q, format: noop, mode: overwrite}\n"
        )
        jar = uploaded(desk, "x.yaml", pipeline, ADMIN)
        answer = desk.client(ADMIN).post(f"/jars/{jar}/run")
        assert answer.status_code == 400
        assert "settings.artifacts.jars[0]" in answer.text
        assert not desk.gateway.submitted

    @pytest.mark.parametrize("kind", ["yaml", "yml", "json"])
    def test_a_pipeline_is_what_it_says_with_variables_as_arguments(self, desk: Desk, kind: str) -> None:
        text = PIPELINE if kind != "json" else json.dumps(_pipeline_json())
        jar = uploaded(desk, f"p.{kind}", text.encode())
        client = desk.client(ALICE)
        assert client.post(f"/jars/{jar}/run").status_code == 200
        assert desk.gateway.submitted[-1].graph.vertices[0].path == "/in/monday"  # type: ignore[union-attr]
        answer = client.post(f"/jars/{jar}/run", json={"programArgsList": ["day=friday=x"], "parallelism": -1})
        assert answer.status_code == 200
        graph = desk.gateway.submitted[-1].graph
        assert (graph.name, graph.parallelism) == ("daily", None)
        assert graph.vertices[0].path == "/in/friday=x"  # type: ignore[union-attr]

    def test_what_is_wrong_with_a_pipeline_is_told(self, desk: Desk) -> None:
        client = desk.client(ALICE)
        for name, content, words in (
            (
                "p.yaml",
                b"name: x\nvertices: [{kind: sink, name: o, input: nope, format: csv, path: /y}]",
                "no vertex 'nope'",
            ),
            ("p.yaml", b"name: [", "not YAML"),
            ("p.json", b"{", "not JSON"),
            ("p.json", b"\xff\xfe", "UTF-8"),
            ("p.yaml", PIPELINE.replace("/in/", "in/").encode(), "relative path"),
            ("p.yaml", b"name: x\nvertices: [{kind: script, name: s, file: /etc/passwd}]", "not an uploaded file"),
        ):
            answer = client.post(f"/jars/{uploaded(desk, name, content)}/run")
            assert answer.status_code == 400
            assert words in "\n".join(answer.json()["errors"])
        assert desk.gateway.submitted == []

    def test_arguments_that_are_no_variables(self, desk: Desk) -> None:
        jar = uploaded(desk, "p.yaml", PIPELINE.encode())
        answer = desk.client(ALICE).post(f"/jars/{jar}/run", json={"programArgsList": ["--day", "friday"]})
        assert answer.status_code == 400
        assert "name=value" in answer.json()["errors"][0]

    def test_a_pipeline_that_expands_to_a_giant_is_refused(self, desk: Desk) -> None:
        """S24, S25"""
        bomb = "a: &a [x,x,x,x,x,x,x,x,x]\n" + "\n".join(
            f"{chr(98 + n)}: &{chr(98 + n)} [{','.join(['*' + chr(97 + n)] * 9)}]" for n in range(9)
        )
        answer = desk.client(ALICE).post(f"/jars/{uploaded(desk, 'p.yaml', bomb.encode())}/run")
        assert answer.status_code == 400

    def test_yaml_makes_no_objects(self, desk: Desk, tmp_path: Path) -> None:
        """S16"""
        text = f"name: !!python/object/apply:os.system ['touch {tmp_path}/evil']\nvertices: []"
        assert desk.client(ALICE).post(f"/jars/{uploaded(desk, 'p.yaml', text.encode())}/run").status_code == 400
        assert not (tmp_path / "evil").exists()

    def test_settings_are_sparks_and_those_that_the_caller_may_set(self, desk: Desk) -> None:
        """S7"""
        jar = uploaded(desk, "etl.py")
        client = desk.client(ALICE)

        def run(**configuration: str) -> httpx.Response:
            answer: httpx.Response = client.post(f"/jars/{jar}/run", json={"flinkConfiguration": configuration})
            return answer

        assert run(**{"spark.sql.shuffle.partitions": "5", "pipeline.name": "nightly"}).status_code == 200
        graph = desk.gateway.submitted[-1].graph
        assert (graph.name, dict(graph.settings.spark)) == ("nightly", {"spark.sql.shuffle.partitions": "5"})
        for key in (
            "taskmanager.memory.size",
            "spark.driver.extraClassPath",
            "spark.hadoop.fs.s3a.endpoint",
            "Spark.x",
        ):
            refused = run(**{key: "1"})
            assert refused.status_code == 400
            assert key in refused.json()["errors"][0]
        assert len(desk.gateway.submitted) == 1

    def test_a_savepoint_to_go_on_from(self, desk: Desk, tmp_path: Path) -> None:
        jar = uploaded(desk, "p.yaml", STREAM.encode())
        manifest = Manifest(JobID("a" * 32), "etl", "f" * 32, 1.0, {}, "data-00000000", {})
        (tmp_path / "_savepoint.json").write_bytes(manifest.to_bytes())
        body = {"savepointPath": str(tmp_path), "allowNonRestoredState": True, "claimMode": "CLAIM"}
        assert desk.client(ALICE).post(f"/jars/{jar}/run", json=body).status_code == 400  # no job of hers made it (S36)
        answer = desk.client(ADMIN).post(f"/jars/{jar}/run", json=body)
        assert answer.status_code == 200, answer.text
        restore = desk.gateway.submitted[-1].graph.settings.restore
        assert restore is not None
        assert (restore.path, restore.allow_non_restored_state) == (str(tmp_path), True)

    def test_a_job_id_makes_a_repeated_run_the_same_run(self, desk: Desk) -> None:
        jar = uploaded(desk, "etl.py")
        wanted = "AB" * 16
        answer = desk.client(ALICE).post(f"/jars/{jar}/run", json={"jobId": wanted})
        assert answer.json()["jobid"] == wanted.lower()
        assert desk.client(ALICE).post(f"/jars/{jar}/run", json={"jobId": "xyz"}).status_code == 400

    def test_run_application_is_a_run(self, desk: Desk) -> None:
        jar = uploaded(desk, "etl.py")
        answer = desk.client(ALICE).post(f"/jars/{jar}/run-application", json={"programArgsList": ["x"]})
        assert answer.status_code == 202
        assert answer.json() == {"applicationid": desk.gateway.submitted[-1].job_id}

    def test_who_may_not_run_does_not(self, desk: Desk) -> None:
        """S20"""
        jar = uploaded(desk, "etl.py")
        assert desk.client(VIEWER).post(f"/jars/{jar}/run").status_code == 403
        other = desk.client(BOB).post(f"/jars/{jar}/run")
        assert (other.status_code, other.json()) == (404, {"errors": [f"Jar file {jar} does not exist"]})
        assert desk.gateway.submitted == []
        assert desk.client(ADMIN).post(f"/jars/{jar}/run").status_code == 200

    @pytest.mark.parametrize("jar", [UNKNOWN, "nope.jar", "..%2f..%2fetc%2fpasswd", "%00", "a" * 250])
    def test_one_that_is_not_there(self, desk: Desk, jar: str) -> None:
        """S4"""
        client = desk.client(ADMIN)
        for path in ("run", "run-application", "plan"):
            assert client.post(f"/jars/{jar}/{path}").status_code in (400, 404)
        assert client.delete(f"/jars/{jar}").status_code in (400, 404)

    @pytest.mark.parametrize(
        "body",
        [b"{", b"[]", b'"x"', b'{"parallelism": "many"}', b'{"parallelism": 0}', b'{"programArgsList": "x"}',
         b'{"claimMode": "MINE"}', b'{"flinkConfiguration": []}', b'{"programArgs": "\'"}'],
    )  # fmt: skip
    def test_a_body_that_is_none(self, desk: Desk, body: bytes) -> None:
        jar = uploaded(desk, "etl.py")
        assert desk.client(ALICE).post(f"/jars/{jar}/run", content=body).status_code == 400
        assert desk.gateway.submitted == []


class TestPlan:
    def test_a_script_is_one_node(self, desk: Desk) -> None:
        jar = uploaded(desk, "etl.py")
        plan = desk.client(VIEWER).get(f"/jars/{jar}/plan").json()["plan"]
        assert (plan["name"], plan["type"], len(plan["nodes"])) == ("etl", "BATCH", 1)

    def test_a_pipeline_is_its_graph_and_nothing_runs(self, desk: Desk) -> None:
        jar = uploaded(desk, "p.yaml", PIPELINE.encode())
        client = desk.client(VIEWER)
        body = {"programArgsList": ["day=friday"], "parallelism": 2, "jobId": "1" * 32}
        plan = client.post(f"/jars/{jar}/plan", json=body).json()["plan"]
        assert (plan["jid"], plan["name"]) == ("1" * 32, "daily")
        source, sink = plan["nodes"]
        assert sink["inputs"][0]["id"] == source["id"]
        assert "/in/friday" in source["description"]
        assert "inputs" not in source
        asked_by_query = client.get(f"/jars/{jar}/plan?programArg=day%3Dfriday&parallelism=2").json()["plan"]
        assert asked_by_query["nodes"] == plan["nodes"]
        assert desk.gateway.submitted == []


class TestDelete:
    def test_it_is_gone_for_all(self, desk: Desk) -> None:
        jar = uploaded(desk, "etl.py")
        assert desk.client(VIEWER).delete(f"/jars/{jar}").status_code == 403
        answer = desk.client(ALICE).delete(f"/jars/{jar}")
        assert (answer.status_code, answer.json()) == (200, {})
        assert desk.client(ADMIN).get("/jars").json()["files"] == []
        again = desk.client(ALICE).delete(f"/jars/{jar}")
        assert (again.status_code, again.json()) == (400, {"errors": [f"File {jar} does not exist in jars."]})

    def test_somebody_elses_is_not_there(self, desk: Desk) -> None:
        """S19, S20"""
        jar = uploaded(desk, "etl.py")
        assert desk.client(BOB).delete(f"/jars/{jar}").status_code == 400
        assert list(desk.gateway.uploads) == [jar]
        assert desk.client(ADMIN).delete(f"/jars/{jar}").status_code == 200


class TestWish:
    def test_the_body_counts_before_the_query(self) -> None:
        query = ProgramQuery(entry="q", args="a,b", line="c d", parallelism=2, savepoint="/q", partial="true")
        wish = wish_of(query, ProgramRequestBody())
        assert (wish.entry, wish.args, wish.parallelism, wish.savepoint) == ("q", ("a", "b"), 2, "/q")
        assert wish.allow_non_restored_state
        body = ProgramRequestBody(
            entryClass="b", programArgsList=[], parallelism=4, savepointPath="/b", allowNonRestoredState=False
        )
        wish = wish_of(query, body)
        assert (wish.entry, wish.args, wish.parallelism, wish.savepoint) == ("b", (), 4, "/b")
        assert not wish.allow_non_restored_state

    def test_what_flinks_dashboard_sends(self) -> None:
        """It sends the arguments as one line, twice, and once more in place of the savepoint."""
        line = "--day 'last monday'"
        wish = wish_of(ProgramQuery(line=line, savepoint=line), ProgramRequestBody(programArgs=line))
        assert (wish.args, wish.savepoint) == (("--day", "last monday"), None)
        assert wish_of(ProgramQuery(line=line, savepoint=line), ProgramRequestBody()).args == wish.args

    def test_a_line_is_split_and_nothing_more(self) -> None:
        """S11"""
        wish = wish_of(ProgramQuery(), ProgramRequestBody(programArgs='$HOME `id` *.py a;b "x y"'))
        assert wish.args == ("$HOME", "`id`", "*.py", "a;b", "x y")
        with pytest.raises(HttpError, match="quotes"):
            wish_of(ProgramQuery(line="'"), ProgramRequestBody())


def _tree(root: Path) -> set[str]:
    """Names below `root`, without the files of the blob store itself."""
    return {str(p) for p in root.rglob("*") if "blobs" not in p.parts}


def _pipeline_json() -> dict[str, Any]:
    return {
        "name": "daily",
        "variables": {"day": "monday"},
        "vertices": [
            {"kind": "source", "name": "i", "format": "csv", "path": "/in/${day}"},
            {"kind": "sink", "name": "o", "input": "i", "format": "parquet", "path": "/out"},
        ],
    }
