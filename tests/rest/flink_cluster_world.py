"""What the golden answers of cluster-wide resources need: a program, an engine that tells its threads, logs."""

from __future__ import annotations

import asyncio
import atexit
import http.server
import io
import json
import threading
import zipfile
from collections.abc import AsyncIterator, Mapping
from functools import cache
from typing import Any

from tests.rest.desk import Desk

from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.flink_rest.guards import new_trigger
from firesteel.layout import NODE_LOG, NODE_OUTPUT
from firesteel.stores.uploads import Upload

PROGRAM = "7970b2a6-927b-4c70-8896-0da2ce748e95_gen.zip"
"""With the module that the golden requests name as its main class."""
SECOND_PROGRAM = "ccc6deb9-5430-4467-b6bc-ca741b71b454_gen.zip"
DATA_SET_TRIGGER = new_trigger()
_LOG_OF_FLINK = "flink--standalonesession-0-vm.out"

SUBSTITUTIONS: dict[str, str] = {
    "gen.jar": "gen.zip",
    "26cceb294562f7b163e5fa0333b1a183": DATA_SET_TRIGGER,
    f"/jobmanager/logs/{_LOG_OF_FLINK}": f"/jobmanager/logs/{NODE_OUTPUT}",
    f"/logs/{_LOG_OF_FLINK}": "/logs/engine.log",
}


def fill(desk: Desk, engine_id: str) -> None:
    """Put everything there. The world is filled often: what is on disk is put there once."""
    directory = EngineDirectory(desk.context.directory)
    if not directory.log(engine_id).exists():
        record = EngineRecord(
            engine_id,
            EngineSpec("local[2]"),
            "127.0.0.1",
            1,
            ui_port=_spark_api(),
            ui_secret="eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHh4eHg=",
        )
        directory.save(record)
        directory.log(engine_id).write_text("WARN\n")
        for name in (NODE_LOG, NODE_OUTPUT):
            (desk.context.directory / name).write_text("begun\n")
    if PROGRAM not in desk.gateway.uploads:
        key = _stored(desk)
        for upload_id in (PROGRAM, SECOND_PROGRAM):
            upload = Upload(upload_id, "gen.zip", key, len(program()), 1794726392.5, "root", "Gen")
            desk.gateway.uploads[upload_id] = upload


def files_of(desk: Desk, name: str) -> Mapping[str, Any] | None:
    """See `flink_world.prepare`."""
    match name:
        case "post_jars_upload_ok":
            return {"jarfile": ("gen.zip", program())}
        case "post_jars_upload_other-field-name":
            return {"whatever": ("gen2.zip", program())}
        case "get_jars_empty":
            desk.gateway.uploads.clear()
    return None


def request_for(method: str, path: str) -> dict[str, Any]:
    """What a request needs that is not in its path."""
    return {"files": {"jarfile": ("gen.zip", program())}} if (method, path) == ("POST", "/jars/upload") else {}


@cache
def program() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as archive:
        archive.writestr("Gen.py", "print(1)")
    return out.getvalue()


def _stored(desk: Desk) -> str:
    async def chunks() -> AsyncIterator[bytes]:
        yield program()

    return asyncio.run(desk.blobs.put(chunks(), owner="root")).key


@cache
def _spark_api() -> int:
    """The part of Spark's monitoring API that tells threads; its port."""
    threads = [{"threadId": 1, "threadName": "main", "threadState": "RUNNABLE", "stackTrace": {"elems": ["a.B.run()"]}}]

    class Handler(http.server.BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(threads if "/threads" in self.path else [{"id": "app-1"}]).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()

    def close() -> None:
        server.shutdown()
        server.server_close()

    atexit.register(close)
    return server.server_port
