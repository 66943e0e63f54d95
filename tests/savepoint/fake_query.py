"""A streaming query as its files show it: a checkpoint and the output of a file sink, written batch by batch."""

from __future__ import annotations

import io
import json
import zipfile
from pathlib import Path

from firesteel.jobgraph.model import JobGraph
from firesteel.savepoint.manifest import SavepointRequest
from firesteel.types import JobID

JOB = JobID("ab" * 16)
QUERY = "11111111-2222-3333-4444-555555555555"
INTERVAL = 10


class FakeQuery:
    """RocksDB with changelog in one partition, with a snapshot every third version; a file source and a file sink."""

    def __init__(self, root: Path, sink: str = "o") -> None:
        self.sink = sink
        self.checkpoint = root / "checkpoints" / JOB / sink
        self.output = root / "out" / sink
        self.batch = -1
        self._write(self.checkpoint / "metadata", json.dumps({"id": QUERY}))

    def run(self, batches: int) -> None:
        for _ in range(batches):
            self.begin()
            self.commit()

    def begin(self) -> None:
        """The next batch, up to the moment before it is committed."""
        self.batch += 1
        n = self.batch
        self._write(self.checkpoint / "sources" / "0" / f"{n}", f"v1\nsource {n}")
        self._write(self.checkpoint / "offsets" / f"{n}", f"v1\noffset {n}")
        state = self.checkpoint / "state" / "0" / "0"
        self._write(self.checkpoint / "state" / "0" / "_metadata" / "metadata", "v1\noperator")
        self._write(state / "_metadata" / "schema", "v3\nschema")
        self._write(state / f"{n + 1}.changelog", f"changes of {n}")
        self._write(state / f".{n + 1}.changelog.crc", "hidden")
        if (n + 1) % 3 == 0:
            sst = f"{n:06}-uuid.sst"
            self._write(state / "SSTs" / sst, f"state after {n}")
            (state / f"{n + 1}.zip").write_bytes(archive(sst))
        data = self.output / f"part-{n}.parquet"
        self._write(data, f"rows of {n}")
        entry = json.dumps({"path": data.as_uri(), "size": data.stat().st_size, "isDir": False, "action": "add"})
        compact = (n + 1) % INTERVAL == 0
        log = self.output / "_spark_metadata"
        earlier = [p.read_text().splitlines()[1:] for p in self.entries()] if compact else []
        lines = [line for lines in earlier for line in lines]
        self._write(log / (f"{n}.compact" if compact else f"{n}"), "\n".join(["v1", *lines, entry]))

    def commit(self) -> None:
        self._write(self.checkpoint / "commits" / f"{self.batch}", f"v1\ncommit {self.batch}")

    def entries(self) -> list[Path]:
        """The entries of the sink's log that count."""
        found = [p for p in (self.output / "_spark_metadata").glob("*") if p.name.partition(".")[0].isdecimal()]
        found.sort(key=lambda p: int(p.name.partition(".")[0]))
        last = max((i for i, p in enumerate(found) if p.name.endswith(".compact")), default=0)
        return found[last:]

    def request(self, trigger: str = "t1") -> SavepointRequest:
        graph = JobGraph.model_validate(
            {
                "name": "numbers",
                "mode": "streaming",
                "vertices": [
                    {"kind": "source", "name": "s", "format": "rate", "options": {"password": "hunter2", "rows": 1}},
                    {
                        "kind": "sink",
                        "name": self.sink,
                        "input": "s",
                        "format": "parquet",
                        "path": str(self.output),
                    },
                ],
            }
        )
        return SavepointRequest.of(graph, JOB, trigger, {self.sink: str(self.checkpoint)})

    def _write(self, path: Path, text: str) -> None:
        path.parent.mkdir(parents=True, exist_ok=True)
        temporary = path.with_name(f".{path.name}.tmp")
        temporary.write_text(text)
        temporary.replace(path)


def archive(*ssts: str) -> bytes:
    """What a RocksDB snapshot is: its small files, and the names of the large ones."""
    raw = io.BytesIO()
    with zipfile.ZipFile(raw, "w") as opened:
        opened.writestr("CURRENT", "MANIFEST-000005\n")
        files = [{"localFileName": s[:6] + ".sst", "dfsSstFileName": s, "sizeBytes": 1} for s in ssts]
        opened.writestr("metadata", "v1\n" + json.dumps({"sstFiles": files, "numKeys": 4}))
    return raw.getvalue()


def files_below(root: Path) -> set[str]:
    return {str(p.relative_to(root)) for p in root.rglob("*") if p.is_file()}
