"""The local files of a graph: found, zipped, named, uploaded once."""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import sys
import zipfile
from pathlib import Path
from typing import Any

import pytest
from tests.client.fake_cluster import FakeCluster, Fault, Node
from tests.client.twins import Twin

from firesteel.blob.keys import BlobRef, is_blob_name
from firesteel.blob.names import acceptable_name
from firesteel.client import AsyncClusterClient
from firesteel.errors import InvalidPipelineError, InvalidRequestError
from firesteel.jobgraph.model import JobGraph
from firesteel.module_files import modules_in, zip_modules

HIDDEN = [
    ".git/config.py",
    "pkg/.cache/x.py",
    "pkg/__pycache__/a.py",
    "venv/lib/site.py",
    "orders.csv",
    "out/part.parquet",
]


@pytest.fixture
def modules(tmp_path: Path) -> Path:
    root = tmp_path / "my project"
    for name, text in {
        "helpers.py": "ANSWER = 42\n",
        "pkg/__init__.py": "",
        "pkg/core.py": "from helpers import ANSWER\n",
        "pkg/data/rates.json": "{}",
        "pkg/core.pyc": "old",
        "venv/pyvenv.cfg": "",
        **dict.fromkeys(HIDDEN, "no"),
    }.items():
        file = root / name
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_text(text)
    return root


def graph(**artifacts: Any) -> JobGraph:
    return JobGraph.model_validate(
        {
            "name": "orders",
            "settings": {"artifacts": artifacts},
            "vertices": [{"kind": "source", "name": "a", "format": "csv", "path": "/a.csv"}],
        }
    )


def script(file: str) -> dict[str, Any]:
    return {"name": "s", "vertices": [{"kind": "script", "name": "main", "file": file}]}


# -- archives -----------------------------------------------------------------------------------------------------------


def test_modules_travel_and_what_lies_beside_them_does_not(modules: Path) -> None:
    assert [p.as_posix() for p in modules_in(modules)] == [
        "helpers.py",
        "pkg/__init__.py",
        "pkg/core.py",
        "pkg/data/rates.json",
    ]


def test_same_modules_are_the_same_bytes_whenever_and_wherever(modules: Path, tmp_path: Path) -> None:
    zip_modules(modules, modules_in(modules), tmp_path / "1.zip")
    moved = modules.rename(tmp_path / "elsewhere")
    for n, file in enumerate(moved.rglob("*.py")):
        os.utime(file, (10**9 + n, 10**9 + n))
        file.chmod(0o600)
    zip_modules(moved, modules_in(moved), tmp_path / "2.zip")
    assert (tmp_path / "1.zip").read_bytes() == (tmp_path / "2.zip").read_bytes()
    (moved / "helpers.py").write_text("ANSWER = 43\n")
    zip_modules(moved, modules_in(moved), tmp_path / "3.zip")
    assert (tmp_path / "1.zip").read_bytes() != (tmp_path / "3.zip").read_bytes()


def test_zip_of_modules_can_be_imported(modules: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("pkg", "helpers"):
        monkeypatch.delitem(sys.modules, name, raising=False)
    zip_modules(modules, modules_in(modules), tmp_path / "modules.zip")
    monkeypatch.syspath_prepend(str(tmp_path / "modules.zip"))
    from pkg.core import ANSWER  # type: ignore[import-not-found]

    assert ANSWER == 42


@pytest.mark.parametrize(
    ("name", "accepted"),
    [
        ("orders.py", "orders.py"),
        ("my-lib_1.0+x.whl", "my-lib_1.0+x.whl"),
        ("my file.csv", "my_file.csv"),
        ("a..b...c", "a.b.c"),
        (".hidden", "hidden"),
        ("größe.csv", "große.csv".replace("ß", "_")),
        ("a/b\\c", "a_b_c"),
        ("end.", "end"),
        ("日本", "__"),
        ("...", "file"),
    ],
)
def test_names_become_acceptable(name: str, accepted: str) -> None:
    found = acceptable_name(name)
    assert is_blob_name(found)
    assert acceptable_name(found) == found
    assert found == (accepted if is_blob_name(accepted) else "file")


def test_long_name_keeps_its_suffix() -> None:
    found = acceptable_name("x" * 500 + ".whl")
    assert is_blob_name(found)
    assert found.endswith("x.whl")


# -- graphs -------------------------------------------------------------------------------------------------------------


def test_every_local_file_becomes_a_reference(
    twin: Twin, fake: FakeCluster, node: Node, modules: Path, tmp_path: Path
) -> None:
    for name in ("lib.whl", "data.zip", "rates.csv", "udf.jar"):
        (tmp_path / name).write_text(name)
    given = graph(
        py_files=[str(modules), str(modules / "helpers.py"), str(tmp_path / "lib.whl")],
        archives=[str(tmp_path / "data.zip")],
        files=[f"file://{tmp_path}/rates.csv"],
        jars=[str(tmp_path / "udf.jar")],
    )
    before = given.model_dump()
    changed = twin(twin.client(node.address).upload_artifacts(given))
    artifacts = changed.settings.artifacts
    refs = [BlobRef.parse(r) for r in (*artifacts.py_files, *artifacts.archives, *artifacts.files, *artifacts.jars)]
    assert [r.name for r in refs] == ["my_project.zip", "helpers.py", "lib.whl", "data.zip", "rates.csv", "udf.jar"]
    assert fake.blobs[refs[1].key] == b"ANSWER = 42\n"
    assert zipfile.ZipFile(io.BytesIO(fake.blobs[refs[0].key])).namelist()[0] == "helpers.py"
    assert given.model_dump() == before  # what was given is as it was
    assert changed.vertices == given.vertices


def test_what_is_there_is_not_uploaded_again(twin: Twin, fake: FakeCluster, node: Node, modules: Path) -> None:
    client = twin.client(node.address)
    first = twin(client.upload_artifacts(graph(py_files=[str(modules)])))
    second = twin(client.upload_artifacts(graph(py_files=[str(modules)])))
    assert first == second
    assert len(fake.asked("POST", "/blobs")) == 1
    assert twin(client.upload_artifacts(first)) == first


def test_upload_that_broke_off_is_repeated(twin: Twin, fake: FakeCluster, node: Node, tmp_path: Path) -> None:
    big = tmp_path / "big.bin"
    big.write_bytes(os.urandom(1 << 20))
    fake.faults += [Fault("/blobs", "drop"), Fault("/blobs", "lose answer")]
    ref = twin(twin.client(node.address).upload(big))
    assert fake.blobs[ref.key] == big.read_bytes()
    sent = fake.asked("POST", "/blobs")[-1]
    assert sent.headers["content-length"] == str(1 << 20)
    assert sent.headers["x-content-sha256"] == ref.key


def test_upload_of_bytes(twin: Twin, fake: FakeCluster, node: Node) -> None:
    ref = twin(twin.client(node.address).upload(b"content", "my notes.txt"))
    assert ref.name == "my_notes.txt"
    assert fake.blobs[ref.key] == b"content"


def test_upload_of_a_file_that_is_not_there(twin: Twin, fake: FakeCluster, node: Node, tmp_path: Path) -> None:
    with pytest.raises(InvalidRequestError, match="cannot read"):
        twin(twin.client(node.address).upload(tmp_path / "none"))
    assert not fake.seen


def test_module_whose_name_is_refused_keeps_it_in_a_zip(
    twin: Twin, fake: FakeCluster, node: Node, tmp_path: Path
) -> None:
    (tmp_path / "_größe.py").write_text("X = 1\n")
    changed = twin(twin.client(node.address).upload_artifacts(graph(py_files=[str(tmp_path / "_größe.py")])))
    ref = BlobRef.parse(changed.settings.artifacts.py_files[0])
    assert ref.name.endswith(".zip")
    assert zipfile.ZipFile(io.BytesIO(fake.blobs[ref.key])).namelist() == ["_größe.py"]


def test_submission_uploads_and_sends_references(twin: Twin, fake: FakeCluster, node: Node, tmp_path: Path) -> None:
    (tmp_path / "main.py").write_text("print(1)\n")
    given = script("main.py")
    twin(twin.client(node.address).submit(given, artifacts_from=tmp_path))
    (sent,) = fake.asked("POST", "/jobs")
    ref = BlobRef.parse(sent.json["graph"]["vertices"][0]["file"])
    assert (ref.name, fake.blobs[ref.key]) == ("main.py", b"print(1)\n")
    assert given == script("main.py")


def test_modules_beside_a_script_are_uploaded_with_it(
    twin: Twin, fake: FakeCluster, node: Node, modules: Path, tmp_path: Path
) -> None:
    (modules / "main.py").write_text("import os, pkg.core\n")
    (modules / "unused.py").write_text("")
    twin(twin.client(node.address).submit(script("main.py"), artifacts_from=modules))
    sent = fake.asked("POST", "/jobs")[-1].json["graph"]
    (ref,) = map(BlobRef.parse, sent["settings"]["artifacts"]["py_files"])
    assert ref.name == "main-modules.zip"
    assert zipfile.ZipFile(io.BytesIO(fake.blobs[ref.key])).namelist() == [
        "helpers.py",
        "pkg/__init__.py",
        "pkg/core.py",
        "pkg/data/rates.json",
    ]
    named = script("main.py") | {"settings": {"artifacts": {"py_files": [str(modules)]}}}
    twin(twin.client(node.address).submit(named, artifacts_from=modules))
    assert len(fake.asked("POST", "/jobs")[-1].json["graph"]["settings"]["artifacts"]["py_files"]) == 1


def test_files_that_are_elsewhere_are_left_to_the_cluster(twin: Twin, fake: FakeCluster, node: Node) -> None:
    ref = f"blob:{'a' * 64}/x.py"
    twin(twin.client(node.address).submit(script(ref)))
    twin(twin.client(node.address).submit(script("s3a://bucket/x.py")))
    sent = [s.json["graph"]["vertices"][0]["file"] for s in fake.asked("POST", "/jobs")]
    assert sent == [ref, "s3a://bucket/x.py"]


def test_everything_that_is_missing_is_told_before_anything_is_sent(
    twin: Twin, fake: FakeCluster, node: Node, tmp_path: Path
) -> None:
    (tmp_path / "empty").mkdir()
    (tmp_path / "there.py").touch()
    given = {
        **script("none.py"),
        "settings": {"artifacts": {"py_files": ["there.py", "empty"], "jars": ["empty"], "files": ["none.csv"]}},
    }
    with pytest.raises(InvalidPipelineError) as refused:
        twin(twin.client(node.address).submit(given, artifacts_from=tmp_path))
    assert {(p.vertex, p.field) for p in refused.value.problems} == {
        ("main", "file"),
        (None, "settings.artifacts.py_files[1]"),
        (None, "settings.artifacts.jars[0]"),
        (None, "settings.artifacts.files[0]"),
    }
    assert not fake.seen


@pytest.mark.parametrize(
    "broken",
    [{}, {"settings": 1, "vertices": 2}, {"settings": {"artifacts": {"jars": "x", "files": [1]}}, "vertices": [3]}],
)
def test_graph_that_is_none_is_left_to_the_cluster(
    twin: Twin, fake: FakeCluster, node: Node, broken: dict[str, Any]
) -> None:
    twin(twin.client(node.address).submit(broken))
    assert fake.asked("POST", "/jobs")[0].json["graph"] == broken


def test_reading_files_does_not_hold_up_the_event_loop(node: Node, tmp_path: Path) -> None:
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)

    async def upload() -> None:
        async with AsyncClusterClient(node.address) as client:
            uploading = asyncio.create_task(client.upload(pipe))
            # Whoever reads a pipe waits for the one who writes, which is this very loop.
            writer = await asyncio.to_thread(os.open, pipe, os.O_WRONLY)
            os.close(writer)
            uploading.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await uploading

    asyncio.run(upload())
