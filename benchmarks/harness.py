"""What every benchmark stands on: engines that surely end, rounds that interleave, and numbers with their spread.

A shared machine is noisy, so a time by itself says little. Variants are run by turns in one round, their ratio is taken
within the round, and the median over the rounds is what is reported, with the lowest and the highest beside it.
"""

from __future__ import annotations

import contextlib
import os
import platform
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from rich.console import Console
from rich.markup import escape
from rich.table import Table

from firesteel.engines.java import find_java, spark_home
from firesteel.engines.launcher import LaunchOptions, engine_environment, start_engine, stop_engine
from firesteel.engines.record import EngineDirectory, EngineRecord, EngineSpec
from firesteel.processes import ProcessIdentity, end

HERE = Path(__file__).resolve().parent
GRACE_SECONDS = 15.0
"""How long an engine may take to end by itself before it is killed."""

# Into a file or a pipe rich would squeeze the tables to 80 columns.
console = Console(width=None if sys.stdout.isatty() else 170)
_progress = Console(stderr=True, highlight=False, markup=False, soft_wrap=True)

T = TypeVar("T")


def say(text: str) -> None:
    """Progress, apart from the tables."""
    _progress.print(f"{time.strftime('%H:%M:%S')} {text}")


# -- numbers --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Sample:
    """Measurements of one thing, in the order of the rounds."""

    values: tuple[float, ...]

    @staticmethod
    def of(values: Sequence[float]) -> Sample:
        return Sample(tuple(values))

    @property
    def median(self) -> float:
        return statistics.median(self.values)

    @property
    def low(self) -> float:
        return min(self.values)

    @property
    def high(self) -> float:
        return max(self.values)

    def over(self, other: Sample) -> Sample:
        """Ratios to `other`, each within its own round."""
        return Sample(tuple(a / b for a, b in zip(self.values, other.values, strict=True)))

    def show(self, unit: str = "", digits: int = 2, scale: float = 1.0) -> str:
        median, low, high = (f"{v * scale:.{digits}f}" for v in (self.median, self.low, self.high))
        return f"{median}{unit} [{low}-{high}]" if len(self.values) > 1 else f"{median}{unit}"

    def verdict(self, budget: float) -> str:
        """Whether the median keeps the budget; with a question mark where that could be chance.

        The true median lies between the lowest and the highest of six values with 97 % certainty.
        """
        sure = len(self.values) >= 6 and (self.high <= budget or self.low > budget)
        return ("within" if self.median <= budget else "over") + ("" if sure else "?")

    def as_json(self) -> dict[str, Any]:
        return {"median": self.median, "low": self.low, "high": self.high, "n": len(self.values), "values": self.values}


def settle() -> None:
    """Let what the last run left behind (pages to write, sessions to close, code to compile) not fall on the next one.

    It would not fall on all alike: the end of a graph's driver is waited for, so whoever comes after one starts rested.
    """
    os.sync()
    time.sleep(0.5)


def interleave(
    variants: Mapping[str, Callable[[], T]],
    rounds: int,
    told: Callable[[int, str, T], None] = lambda *_: None,
    *,
    between: Callable[[], None] = lambda: None,
) -> dict[str, list[T]]:
    """Each variant once a round. Every round begins with the next one, so that what drifts falls on all alike, and every other
    time around they go backwards, so that none always bears what the same other one leaves behind.

    `between` is called before each run.
    """
    names = list(variants)
    out: dict[str, list[T]] = {name: [] for name in names}
    for number in range(rounds):
        around, shift = divmod(number, len(names))
        order = names[shift:] + names[:shift]
        for name in reversed(order) if around % 2 else order:
            between()
            measured = variants[name]()
            out[name].append(measured)
            told(number + 1, name, measured)
    return out


def cpu_seconds(process: ProcessIdentity | None) -> float:
    """Processor time that a process has used so far. Neighbours on the machine stretch the clock, but hardly this.

    Zero where there is no /proc.
    """
    try:
        text = Path(f"/proc/{process.pid}/stat").read_text() if process else ""
    except OSError:
        return 0.0
    fields = text.rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK") if fields else 0.0


def table(title: str, columns: Sequence[str], rows: Sequence[Sequence[str]], note: str) -> None:
    grid = Table(title=title, title_justify="left")
    for number, name in enumerate(columns):
        grid.add_column(escape(name), justify="left" if number == 0 else "right", no_wrap=number == 0)
    for row in rows:
        grid.add_row(*map(escape, row))
    console.print(grid)
    console.print(note, markup=False, highlight=False, style="dim")
    console.print()


def machine() -> dict[str, Any]:
    """What the numbers were measured on, without naming the machine."""
    import pyspark

    return {
        "cores": os.cpu_count(),
        "memory_gb": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30),
        "load": round(os.getloadavg()[0], 2),
        "system": f"{platform.system()} {platform.machine()}",
        "python": platform.python_version(),
        "spark": pyspark.__version__,
        "java": ".".join(map(str, find_java().version)),
    }


# -- time limits ------------------------------------------------------------------------------------------------------


@contextlib.contextmanager
def deadline(seconds: float, what: str) -> Iterator[None]:
    """Raise TimeoutError in the main thread when the block takes longer: a PySpark client itself waits for ever."""

    def expired(*_: object) -> None:
        raise TimeoutError(f"{what} took more than {seconds:g} s; raise --timeout or lower --rows")

    previous = signal.signal(signal.SIGALRM, expired)
    signal.setitimer(signal.ITIMER_REAL, seconds)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)


# -- engines and other processes -----------------------------------------------------------------------------------------


class Workbench:
    """A folder of its own for engines, jobs and outputs. Whatever was started from it ends with it, on Ctrl-C too."""

    def __init__(self, *, cores: int, memory: str, timeout: float) -> None:
        self.timeout = timeout
        self.spec = EngineSpec(master=f"local[{cores}]", memory=memory)
        self.root = Path(tempfile.mkdtemp(prefix="firesteel-bench-"))
        self.engines = EngineDirectory(self.root / "state")
        self._processes: list[ProcessIdentity] = []

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, *_: object) -> None:
        # A second Ctrl-C must not leave a JVM behind.
        previous = signal.signal(signal.SIGINT, signal.SIG_IGN)
        try:
            for process in self._processes:
                if process.alive:
                    end(process, grace=GRACE_SECONDS)
            for record in self.engines.alive():
                stop_engine(self.engines, record, grace=GRACE_SECONDS)
            shutil.rmtree(self.root, ignore_errors=True)
        finally:
            signal.signal(signal.SIGINT, previous)

    def folder(self, name: str) -> Path:
        path = self.root / name
        path.mkdir(parents=True, exist_ok=True)
        return path

    def options(self, **changes: Any) -> LaunchOptions:
        """Without a class archive, unless asked for: it shortens the start and nothing else."""
        return LaunchOptions(**{"cache_dir": self.root / "cache", "class_archive": False, **changes})

    @contextlib.contextmanager
    def engine(self, spec: EngineSpec | None = None, options: LaunchOptions | None = None) -> Iterator[EngineRecord]:
        record = start_engine(self.engines, spec or self.spec, options or self.options())
        try:
            yield record
        finally:
            stop_engine(self.engines, record, grace=GRACE_SECONDS)

    def spark_submit(self, arguments: Sequence[str], *, log: Path) -> subprocess.Popen[bytes]:
        """`spark-submit` as a user calls it, in a process group of its own; end it with `finish`."""
        home, java = spark_home(), find_java()
        with log.open("ab") as output:
            child = subprocess.Popen(
                [str(home / "bin" / "spark-submit"), "--master", self.spec.master, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                cwd=self.folder("submit"),
                env=engine_environment(
                    {"SPARK_HOME": str(home), "JAVA_HOME": str(java.home), "PYSPARK_PYTHON": sys.executable}
                ),
                start_new_session=True,
            )
        if identity := ProcessIdentity.of(child.pid):
            self._processes.append(identity)
        return child

    def finish(self, child: subprocess.Popen[bytes]) -> None:
        """End a process of `spark_submit` and its group, and collect it."""
        mine = [p for p in self._processes if p.pid == child.pid]
        for process in mine:
            if process.alive:
                end(process, grace=GRACE_SECONDS)
            self._processes.remove(process)
        with contextlib.suppress(subprocess.TimeoutExpired):
            child.wait(timeout=GRACE_SECONDS)


@contextlib.contextmanager
def plain_client(engine: EngineRecord) -> Iterator[Any]:
    """A new session of the PySpark Connect client as it comes, released at the end."""
    from pyspark.sql.connect.session import SparkSession

    spark = SparkSession.builder.remote(engine.remote(str(uuid.uuid4()))).create()
    try:
        yield spark
    finally:
        with contextlib.suppress(Exception):
            spark.stop()
