"""A real PostgreSQL of a test's own: made in seconds in a temporary directory, and stopped in every way that hurts."""

from __future__ import annotations

import contextlib
import os
import pwd
import shutil
import signal
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from firesteel.ports import unused_port

HOW_TO_GET_IT = "scripts/install-postgresql"
USER = "firesteel"
PASSWORD = "s3cret%/@:pass"
QUOTED_PASSWORD = "s3cret%25%2F%40%3Apass"
"""As it stands in a URL."""
DATABASE = "firesteel"
PATIENCE = 60.0

_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    "max_connections": "60",
    "shared_buffers": "16MB",
    "wal_level": "replica",
    "max_wal_senders": "4",
    "log_line_prefix": "%m %p %a ",
    # Off, the deadlocks of tests would be found only after a second.
    "deadlock_timeout": "100ms",
}


def binaries() -> Path | None:
    """Where initdb and postgres are; None when there are none. Debian does not put them on the path."""
    on_path = shutil.which("initdb")
    if on_path:
        return Path(on_path).resolve().parent
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


class PostgreSqlServer:
    """One server on loopback, with durable commits. `close` ends it and removes its directory.

    Made by `create`, or by `standby` of another one.
    """

    def __init__(self, root: Path, port: int, bin_: Path) -> None:
        self.root = root
        self.port = port
        self._bin = bin_
        self._process: subprocess.Popen[bytes] | None = None

    @staticmethod
    def create(settings: Mapping[str, str] | None = None) -> PostgreSqlServer:
        """A new server, started."""
        server = _new()
        try:
            password = server.root / "password"
            password.write_text(PASSWORD)
            if os.geteuid() == 0:
                shutil.chown(password, *owner())
            server._run(
                "initdb",
                f"--pgdata={server.data}",
                f"--username={USER}",
                f"--pwfile={password}",
                "--auth=scram-sha-256",
                "--encoding=UTF8",
                "--no-sync",
            )
            server.configure({**_SETTINGS, "port": str(server.port), **(settings or {})})
            server.start()
            # In an order of people's, not of bytes: that of paths must not depend on it.
            order = "LOCALE_PROVIDER icu ICU_LOCALE 'en'" if server.version >= 15 else ""
            server.sql(f"CREATE DATABASE {DATABASE} TEMPLATE template0 {order}", database="postgres")
        except BaseException:
            server.close()
            raise
        return server

    def standby(self, name: str = "standby") -> PostgreSqlServer:
        """A hot standby that streams from this server under `name`, started."""
        server = _new()
        try:
            source = f"host=127.0.0.1 port={self.port} user={USER} application_name={name}"
            server._run("pg_basebackup", f"--pgdata={server.data}", f"--dbname={source}", "-R", "--checkpoint=fast")
            server.configure({"port": str(server.port)})
            server.start()
        except BaseException:
            server.close()
            raise
        return server

    @property
    def data(self) -> Path:
        return self.root / "data"

    @property
    def log(self) -> str:
        return (self.root / "log").read_text(errors="replace") if (self.root / "log").exists() else ""

    @property
    def version(self) -> int:
        return int((self.data / "PG_VERSION").read_text())

    @property
    def url(self) -> str:
        return url_of(self.port)

    @property
    def running(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def configure(self, settings: Mapping[str, str]) -> None:
        """Append to the configuration; it counts after the next `start` or `reload`."""
        with (self.data / "postgresql.conf").open("a") as f:
            f.writelines(f"{key} = '{value}'\n" for key, value in settings.items())

    def admit(self, network: str) -> None:
        """Let clients of a network in, with their passwords."""
        with (self.data / "pg_hba.conf").open("a") as f:
            f.write(f"host all all {network} scram-sha-256\n")
        self.reload()

    def reload(self) -> None:
        self._signal(signal.SIGHUP)

    # -- life and death -------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start, and wait until it answers."""
        assert not self.running
        with (self.root / "log").open("ab") as log:
            self._process = subprocess.Popen(
                [str(self._bin / "postgres"), "-D", str(self.data)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=self.root,
                **_unprivileged(),
            )
        deadline = time.monotonic() + PATIENCE
        while True:
            if not self.running or time.monotonic() > deadline:
                raise RuntimeError(f"PostgreSQL did not start:\n{self.log[-3000:]}")
            # Also a standby answers; a server that is still starting says so with another code.
            asked = subprocess.run(
                [str(self._bin / "pg_isready"), "-q", "-h", "127.0.0.1", "-p", str(self.port)], check=False
            )
            if asked.returncode == 0:
                return
            time.sleep(0.05)

    def stop(self) -> None:
        """In order: sessions are ended, everything is written."""
        self._end(signal.SIGINT)

    def stop_immediately(self) -> None:
        """As in a crash, but of PostgreSQL's own doing: it recovers at the next start."""
        self._end(signal.SIGQUIT)

    def kill(self) -> None:
        """kill -9 of the server and of every process of it, as when its machine goes away."""
        for pid in [*self._children(), *self._own()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self._process is not None:
            self._process.wait()

    def restart(self) -> None:
        self.stop()
        self.start()

    def pause(self) -> None:
        """Nobody is answered any more, and no connection breaks. The server first, so that it makes no new process."""
        self._signal(signal.SIGSTOP)
        for pid in self._children():
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGSTOP)

    def resume(self) -> None:
        for pid in [*self._children(), *self._own()]:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGCONT)

    def promote(self) -> None:
        """Make a standby the primary."""
        self._run("pg_ctl", "promote", f"--pgdata={self.data}", "--wait")

    def close(self) -> None:
        if self.running:
            self.resume()
            self.kill()
        shutil.rmtree(self.root, ignore_errors=True)

    # -- asking ---------------------------------------------------------------------------------------------------

    def sql(self, statement: str, *, database: str = DATABASE) -> list[str]:
        """The rows, as psql prints them with `|` between columns. Raises RuntimeError with what it said."""
        url = url_of(self.port, database=database)
        asked = subprocess.run(
            [str(self._bin / "psql"), "-XAtq", "-v", "ON_ERROR_STOP=1", "-d", url, "-c", statement],
            capture_output=True,
            text=True,
            timeout=PATIENCE,
            check=False,
        )
        if asked.returncode != 0:
            raise RuntimeError(f"{statement}: {asked.stdout}{asked.stderr}")
        return asked.stdout.splitlines()

    @contextlib.contextmanager
    def setting(self, name: str, value: str) -> Iterator[None]:
        """Set for all sessions, also those that are there, until the block ends."""
        before = self.sql(f"SHOW {name}")[0]
        self.set(name, value)
        try:
            yield
        finally:
            self.set(name, before)

    def set(self, name: str, value: str) -> None:
        """Set for all sessions, also those that are there."""
        self.sql(f"ALTER SYSTEM SET {name} = '{value}'")
        self.reload()
        self._until(lambda: self.sql(f"SHOW {name}") == [value], f"{name} = {value}")

    @contextlib.contextmanager
    def database(self, name: str) -> Iterator[str]:
        """A database of its own, by its URL."""
        self.sql(f"CREATE DATABASE {name}")
        try:
            yield url_of(self.port, database=name)
        finally:
            self.sql(f"DROP DATABASE {name} WITH (FORCE)")

    def sessions(self) -> list[str]:
        """The marks of those that Firesteel has here, one for each connection."""
        return self.sql("SELECT application_name FROM pg_stat_activity WHERE application_name LIKE 'firesteel-%'")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + PATIENCE
        while not condition():
            if time.monotonic() > deadline:
                raise TimeoutError(f"did not come: {what}")
            time.sleep(0.02)

    # -- processes ------------------------------------------------------------------------------------------------

    def _run(self, program: str, *arguments: str) -> None:
        done = subprocess.run(
            [str(self._bin / program), *arguments],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            cwd=self.root,
            timeout=PATIENCE,
            check=False,
            env={**os.environ, "PGPASSWORD": PASSWORD},
            **_unprivileged(),
        )
        if done.returncode != 0:
            raise RuntimeError(f"{program} failed: {done.stdout}{done.stderr}{self.log[-3000:]}")

    def _end(self, number: signal.Signals) -> None:
        self.resume()
        self._signal(number)
        if self._process is not None:
            self._process.wait(PATIENCE)

    def _signal(self, number: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(number)  # does nothing when it is gone

    def _own(self) -> list[int]:
        return [self._process.pid] if self._process is not None and self.running else []

    def _children(self) -> list[int]:
        """The processes of the server; each is a session leader of its own, so that no signal reaches all."""
        asked = subprocess.run(["ps", "-axo", "pid=,ppid="], capture_output=True, text=True, check=True)
        pairs = (line.split() for line in asked.stdout.splitlines())
        return [int(pid) for pid, parent in pairs if [int(parent)] == self._own()]


def url_of(
    *ports: int, database: str = DATABASE, user: str = USER, password: str = QUOTED_PASSWORD, **parameters: str
) -> str:
    """The URL of a database on one or several of our servers."""
    hosts = ",".join(f"127.0.0.1:{port}" for port in ports)
    query = "&".join(f"{key}={value}" for key, value in parameters.items())
    return f"postgresql://{user}:{password}@{hosts}/{database}{'?' if query else ''}{query}"


@contextlib.contextmanager
def servers(settings: Mapping[str, str] | None = None) -> Iterator[PostgreSqlServer]:
    server = PostgreSqlServer.create(settings)
    try:
        yield server
    finally:
        server.close()


def _new() -> PostgreSqlServer:
    bin_ = binaries()
    if bin_ is None:
        raise FileNotFoundError(f"no PostgreSQL server is installed; to get it: {HOW_TO_GET_IT}")
    root = Path(tempfile.mkdtemp(prefix="firesteel-postgresql-"))
    if os.geteuid() == 0:
        shutil.chown(root, *owner())
    return PostgreSqlServer(root, unused_port(), bin_)


def owner() -> tuple[str, int]:
    """Whom the server runs as, when we are root, which PostgreSQL refuses to be."""
    for name in ("postgres", "nobody"):
        try:
            return name, pwd.getpwnam(name).pw_gid
        except KeyError:
            continue
    raise RuntimeError(
        "there is no user 'postgres' or 'nobody' to run PostgreSQL as; run the tests as an ordinary user"
    )


def _unprivileged() -> dict[str, Any]:
    if os.geteuid() != 0:
        return {}
    user, group = owner()
    return {"user": user, "group": group, "extra_groups": []}
