"""The record of an engine, by which it can be found after the process that started it has died.

One private directory per engine: `engine.json` (this record), `pid` (written by the engine's own process before it becomes
Java, so a running engine can always be found), `spark.properties`, `engine.log`.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass, field
from pathlib import Path

from firesteel.fs.files import private_dir, read_json, write_json
from firesteel.hosts import this_host
from firesteel.processes import ProcessIdentity
from firesteel.records import from_json, to_json
from firesteel.types import ANONYMOUS_USER

RECORD = "engine.json"
HOST = "host"
"""File next to the record: the host of the process. It is separate because earlier versions know a fixed set of
fields."""


@dataclass(frozen=True, slots=True)
class EngineSpec:
    """The kind of an engine: two engines of one spec are interchangeable for a job."""

    master: str
    memory: str = "1g"
    spark: tuple[tuple[str, str], ...] = ()
    jvm_options: tuple[str, ...] = ()
    owner: str | None = None
    """The owner whose jobs alone may use it: its process, token, catalogue and directory are theirs. None: all owners
    (`engine.isolation: session`, or attached), or none assigned yet (a warm one)."""

    @property
    def attached(self) -> bool:
        """Whether it is attached by its address, and not started by us."""
        return self.master.startswith("sc://")


@dataclass(frozen=True, slots=True)
class EngineRecord:
    engine_id: str
    spec: EngineSpec
    host: str
    port: int
    token: str = field(repr=False, default="")
    ui_port: int = 0
    ui_secret: str = field(repr=False, default="")
    cores: int = 1
    process: ProcessIdentity | None = None
    started_at: float = 0.0
    tls: bool = False
    shared: bool = False
    """Started to be used by many runs (`firesteel engine start`); a run never stops it."""
    worker: str = ""
    """The id of the worker that has it, as far as a leader knows. It is not in the engine's own file, which that worker
    reads."""

    @property
    def shares_files(self) -> bool:
        """Whether a path means the same file here and on the engine."""
        return self.spec.master.startswith(("local", "spark://"))

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"

    def remote(self, session_id: str, user_id: str = ANONYMOUS_USER) -> str:
        """The Spark Connect URL of one session on this engine."""
        parts = [f"user_id={user_id}", f"session_id={session_id}"]
        if self.tls:
            parts.append("use_ssl=true")
        if self.token:
            parts.append(f"token={self.token}")
        return f"sc://{self.host}:{self.port}/;{';'.join(parts)}"

    def as_json(self) -> dict[str, object]:
        data = to_json(self)
        del data["worker"]
        return data

    @staticmethod
    def from_json(data: object) -> EngineRecord:
        """Raises ValueError."""
        return from_json(data, EngineRecord)


class EngineDirectory:
    """The engines that were started from one data directory, alive or left behind."""

    def __init__(self, data_dir: Path) -> None:
        self.root = private_dir(data_dir / "engines")

    def home(self, engine_id: str) -> Path:
        return self.root / engine_id

    def log(self, engine_id: str) -> Path:
        return self.home(engine_id) / "engine.log"

    def save(self, record: EngineRecord) -> None:
        private_dir(self.home(record.engine_id))
        (self.home(record.engine_id) / HOST).write_text(str(this_host()))
        write_json(self.home(record.engine_id) / RECORD, record.as_json())

    def host(self, engine_id: str) -> str:
        """The host that the engine was started on; empty when that was not noted."""
        try:
            return (self.home(engine_id) / HOST).read_text()
        except (OSError, UnicodeDecodeError):
            return ""

    def load(self, engine_id: str) -> EngineRecord | None:
        """The record, completed with the pid that the engine's process wrote itself; None if there is none readable."""
        home = self.home(engine_id)
        try:
            data = read_json(home / RECORD)
            record = EngineRecord.from_json(data) if data else None
        except (ValueError, TypeError, KeyError):
            return None
        if record is None or record.process is not None:
            return record
        return dataclasses.replace(record, process=self.written_process(engine_id))

    def written_process(self, engine_id: str) -> ProcessIdentity | None:
        """The process that wrote the `pid` file: (pid, start) of the shell that became Java by exec, which keeps
        both."""
        try:
            pid = int((self.home(engine_id) / "pid").read_text())
        except (FileNotFoundError, ValueError):
            return None
        found = ProcessIdentity.of(pid)
        if found is None:
            return None
        try:
            marked = f"FIRESTEEL_ENGINE_ID={engine_id}".encode() in Path(f"/proc/{pid}/environ").read_bytes()
        except OSError:
            marked = True  # no /proc here: the pid file is all there is
        return found if marked else None

    def all(self) -> list[EngineRecord]:
        return [r for d in sorted(self.root.iterdir()) if d.is_dir() and (r := self.load(d.name)) is not None]

    def alive(self) -> list[EngineRecord]:
        return [r for r in self.all() if r.process is not None and r.process.alive]
