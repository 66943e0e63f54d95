"""Determines whether a PySpark program needs a classic driver or Spark Connect is enough, by reading it, never running
it.

Spark Connect starts in milliseconds on a warm engine but has no SparkContext. A classic driver runs everything and
takes seconds to start. So a program counts as `classic` as soon as anything in it, or in a local module that it
imports, is one of these:

- the import of a module that lives on the driver's JVM, `pyspark.ml`, `pyspark.mllib`, `pyspark.streaming`
  (DStreams), ... (`CLASSIC_MODULES`), or of a package known to reach into it, such as `graphframes`
  (`CLASSIC_PACKAGES`). `pyspark.ml` runs on Connect in part only, so it is not trusted to;
- the use of a class: `SparkContext`, `RDD`, `SQLContext`, `HiveContext`, `StreamingContext`, `Accumulator`, ... An
  import that is never used does not count, nor does an annotation, nor what stands under `if TYPE_CHECKING`;
- an attribute, whatever it hangs on: `.sparkContext`, `.rdd`, `.toJSON` (an RDD in the classic API), `._jvm`,
  `._jsc`, `._sc`, `._jsparkSession`, `._jdf`, `.enableHiveSupport` (settled when a driver starts, so a shared engine
  cannot give it);
- a method of SparkContext on a variable called `sc` or `spark_context`: `sc.parallelize`, `sc.textFile`, ...

Strings and comments never count. Imports are followed to modules next to the script and in the given places, in
packages too. Where this is wrong it is wrong on the safe side: a classic driver runs Connect-only programs too, only
later. What cannot be seen this way is `getattr` with a computed name, `exec`, and installed libraries that use the
JVM inside.
"""

from __future__ import annotations

import ast
import re
import warnings
import zipfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal, NamedTuple

from firesteel.errors import InvalidPipelineError, Problem

ARCHIVES = frozenset({".zip", ".whl"})
"""Suffixes of programs that are an archive of modules."""

CLASSIC_MODULES = frozenset(
    {
        "py4j.java_gateway",
        "pyspark.java_gateway",
        "pyspark.ml",
        "pyspark.mllib",
        "pyspark.shell",
        "pyspark.sql.classic",
        "pyspark.streaming",
    }
)
"""Importing one of these, or a module below it, means that the driver's JVM is wanted."""

CLASSIC_PACKAGES = frozenset(
    {"geomesa_pyspark", "graphframes", "hail", "pydeequ", "pysparkling", "sedona", "sparknlp", "synapse"}
)
"""Installed libraries that reach into the driver's JVM."""

_CLASSES = {
    "SparkContext": "SparkContext",
    "SQLContext": "SQLContext",
    "HiveContext": "HiveContext",
    "StreamingContext": "DStreams",
    "RDD": "RDDs",
    "RDDBarrier": "RDDs",
    "Accumulator": "accumulators",
    "AccumulatorParam": "accumulators",
    "Broadcast": "broadcast variables",
    "StatusTracker": "the status tracker",
}
# These four are Spark's wherever they come from, for instance out of a local `common.py` that re-exports them; nothing
# else has such names. `RDD` or `Broadcast` may be anything and count only when they come from pyspark.
_UNMISTAKABLE = frozenset({"SparkContext", "SQLContext", "HiveContext", "StreamingContext"})

_ATTRIBUTES = {
    "sparkContext": "SparkContext",
    "_sc": "SparkContext",
    "rdd": "RDDs",
    "toJSON": "RDDs",
    "_jvm": "the driver's JVM",
    "_jsc": "the driver's JVM",
    "_jdf": "the driver's JVM",
    "_jsparkSession": "the driver's JVM",
    "_gateway": "the driver's JVM",
    "enableHiveSupport": "Hive support",
}
_CONTEXT_VARIABLES = frozenset({"sc", "spark_context"})
# fmt: off
_CONTEXT_METHODS = frozenset({
    "accumulator", "addArchive", "addFile", "addPyFile", "applicationId", "binaryFiles", "binaryRecords",
    "broadcast", "cancelAllJobs", "cancelJobGroup", "defaultMinPartitions", "defaultParallelism", "emptyRDD",
    "getConf", "getLocalProperty", "hadoopFile", "hadoopRDD", "newAPIHadoopFile", "newAPIHadoopRDD",
    "parallelize", "pickleFile", "runJob", "sequenceFile", "setCheckpointDir", "setJobDescription", "setJobGroup",
    "setLocalProperty", "setLogLevel", "statusTracker", "textFile", "uiWebUrl", "union", "wholeTextFiles",
})
# fmt: on
_LONGEST_QUOTE = 60
_MOST_SOURCE = 32 << 20
"""Bytes of modules in archives that are read, all together."""


class Reason(NamedTuple):
    """One place in a program that needs a classic driver."""

    file: str
    line: int
    what: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.what}"


@dataclass(frozen=True, slots=True)
class ScriptNeeds:
    """What a program needs from Spark."""

    api: Literal["connect", "classic"]
    reasons: tuple[Reason, ...]
    """Why it needs a classic driver, in order of file and line; empty for `connect`."""


def analyse_script(path: Path, search: Sequence[Path] = ()) -> ScriptNeeds:
    """Read the program at `path` and the local modules that it imports, and say which API they need.

    Args:
        search: where else its modules may be: directories, single `.py` files, or archives. The script's own directory
        comes first.

    Raises:
        InvalidPipelineError: the script cannot be read, or it or one of its modules is not valid Python; with all of
        them.
    """
    if path.suffix in ARCHIVES:
        return _analyse_archive(path)
    roots = _Roots(path.parent, search)
    reasons: list[Reason] = []
    problems: list[Problem] = []
    names: set[str] = set()
    waiting = [(path, "")]
    seen = {path.resolve()}
    while waiting:
        file, package = waiting.pop(0)
        try:
            tree = _parse(file)
        except _UnreadableError as error:
            problems.append(error.problem)
            continue
        except RecursionError:
            # Generated code, thousands of operators deep: Python itself can run it, we cannot see into it.
            reasons.append(Reason(str(file), 1, "is nested too deeply to be read"))
            continue
        nodes = list(_running_code(tree))
        names |= _top_names(nodes)
        reasons += sorted(set(_Module(str(file), nodes).reasons()))
        for found in roots.imported_files(nodes, package):
            if found[0].resolve() not in seen:
                seen.add(found[0].resolve())
                waiting.append(found)
    if problems:
        raise InvalidPipelineError(problems)
    reasons += _reasons_in_archives([place for place in search if place.suffix in ARCHIVES], names)
    return ScriptNeeds(api="classic" if reasons else "connect", reasons=tuple(reasons))


def _reasons_in_archives(archives: Sequence[Path], names: set[str]) -> list[Reason]:
    """Of the modules in archives those count that are imported, and of a package all of them."""
    modules: dict[str, list[tuple[str, bytes]]] = {}
    left = _MOST_SOURCE
    for path in archives:
        try:
            with zipfile.ZipFile(path) as archive:
                for member in sorted(archive.infolist(), key=lambda m: m.filename):
                    left -= member.file_size if member.filename.endswith(".py") else 0
                    if left < 0:
                        break  # larger than any real program; its directory says what it unpacks to (S25)
                    if member.filename.endswith(".py"):
                        top = member.filename.partition("/")[0].removesuffix(".py")
                        modules.setdefault(top, []).append((f"{path}/{member.filename}", archive.read(member)))
        except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError):
            continue  # for the one who unpacks it to say
    reasons: list[Reason] = []
    waiting, seen = set(names), set[str]()
    while waiting:
        name = waiting.pop()
        seen.add(name)
        for file, source in modules.get(name, ()):
            try:
                nodes = list(_running_code(_tree(source, file)))
            except (_UnreadableError, RecursionError):
                continue
            reasons += sorted(set(_Module(file, nodes).reasons()))
            waiting |= _top_names(nodes) - seen
    return sorted(reasons)


def _top_names(nodes: Sequence[ast.AST]) -> set[str]:
    """The first parts of what is imported, but for what is relative."""
    imported = {alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    imported |= {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module and not n.level}
    return {name.partition(".")[0] for name in imported}


def _analyse_archive(path: Path) -> ScriptNeeds:
    """Of a program in an archive all modules count, whether it imports them or not."""
    reasons: list[Reason] = []
    try:
        with zipfile.ZipFile(path) as archive:
            for name in sorted(n for n in archive.namelist() if n.endswith(".py")):
                try:
                    tree = _tree(archive.read(name), name)
                    reasons += sorted(set(_Module(f"{path}/{name}", list(_running_code(tree))).reasons()))
                except (_UnreadableError, RecursionError):
                    # Some packages carry files that are no Python of ours, or of another version: they may never be run.
                    continue
    except (OSError, zipfile.BadZipFile, RuntimeError, NotImplementedError) as error:
        problem = Problem(f"cannot read the archive: {error}", fix="name a zip file or a wheel", file=str(path))
        raise InvalidPipelineError([problem]) from error
    return ScriptNeeds(api="classic" if reasons else "connect", reasons=tuple(reasons))


class _UnreadableError(Exception):
    def __init__(self, problem: Problem) -> None:
        self.problem = problem


def _parse(file: Path) -> ast.Module:
    try:
        source = file.read_bytes()
    except OSError as error:
        message = f"cannot read the script: {error.strerror or error}"
        raise _UnreadableError(Problem(message, fix="check the path", file=str(file))) from error
    return _tree(source, str(file))


def _tree(source: bytes, file: str) -> ast.Module:
    try:
        with warnings.catch_warnings(action="ignore"):  # such as "\d" in a string: the program's own business
            return ast.parse(source, filename=file)
    except SyntaxError as error:
        message = f"this is not valid Python: {error.msg}"
        raise _UnreadableError(Problem(message, fix="correct the syntax", file=file, line=error.lineno)) from error
    except ValueError as error:  # null bytes: a compiled or binary file
        raise _UnreadableError(Problem(f"this is not a Python file: {error}", file=file)) from error


def _running_code(tree: ast.Module) -> Iterator[ast.AST]:
    """All nodes but annotations and what stands under `if TYPE_CHECKING`. Iterative: expressions may be very deep."""
    stack: list[ast.AST] = [tree]
    while stack:
        node = stack.pop()
        yield node
        for field, value in ast.iter_fields(node):
            if field in ("annotation", "returns"):
                continue
            if field == "body" and isinstance(node, ast.If) and _is_type_checking(node.test):
                continue
            children = value if isinstance(value, list) else [value]
            stack += [child for child in reversed(children) if isinstance(child, ast.AST)]


def _is_type_checking(test: ast.expr) -> bool:
    return (isinstance(test, ast.Name) and test.id == "TYPE_CHECKING") or (
        isinstance(test, ast.Attribute) and test.attr == "TYPE_CHECKING"
    )


class _Module:
    """One file: which name stands for what, and what in it needs a classic driver."""

    def __init__(self, file: str, nodes: Sequence[ast.AST]) -> None:
        self._file = file
        self._nodes = nodes
        self._origins: dict[str, str] = {}
        """Local name to dotted origin, of everything imported anywhere in the file."""
        self._defined = {node.name for node in nodes if isinstance(node, ast.ClassDef | ast.FunctionDef)}
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    first = alias.name.partition(".")[0]
                    self._origins[alias.asname or first] = alias.name if alias.asname else first
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                names = _CLASSES if node.names[0].name == "*" and _is_pyspark(node.module) else ()
                self._origins |= {name: f"{node.module}.{name}" for name in names}
                self._origins |= {alias.asname or alias.name: f"{node.module}.{alias.name}" for alias in node.names}

    def reasons(self) -> Iterator[Reason]:
        for node in self._nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._import_reason(node, alias.name)
            elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
                for alias in node.names:
                    # `from pyspark import ml` and `from pyspark.ml import Pipeline` both.
                    yield from self._import_reason(node, node.module, f"{node.module}.{alias.name}")
            elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                yield from self._name_reason(node)
            elif isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load):
                yield from self._attribute_reason(node)

    def _import_reason(self, node: ast.stmt, *modules: str) -> Iterator[Reason]:
        for module in modules:
            parts = module.split(".")
            prefixes = {".".join(parts[: end + 1]) for end in range(len(parts))}
            if parts[0] in CLASSIC_PACKAGES or prefixes & CLASSIC_MODULES:
                yield Reason(self._file, node.lineno, f"imports {module}")
                return

    def _name_reason(self, node: ast.Name) -> Iterator[Reason]:
        origin = self._origins.get(node.id, "")
        last = origin.rpartition(".")[2] or node.id
        from_spark = _is_pyspark(origin) and last in _CLASSES
        if from_spark or (last in _UNMISTAKABLE and node.id not in self._defined):
            yield self._use(node, _CLASSES[last])

    def _attribute_reason(self, node: ast.Attribute) -> Iterator[Reason]:
        if node.attr in _ATTRIBUTES:
            yield self._use(node, _ATTRIBUTES[node.attr])
        elif isinstance(node.value, ast.Name) and node.value.id in _CONTEXT_VARIABLES and node.attr in _CONTEXT_METHODS:
            yield self._use(node, "SparkContext")
        elif node.attr in _CLASSES:
            dotted = _dotted(node)
            origin = self._origins.get(dotted.partition(".")[0], "")
            if _is_pyspark(origin):
                yield self._use(node, _CLASSES[node.attr])

    def _use(self, node: ast.Name | ast.Attribute, what: str) -> Reason:
        quote = _dotted(node)
        if len(quote) > _LONGEST_QUOTE:
            quote = "..." + re.sub(r"^.*?\.(?=\w)", "", quote[-_LONGEST_QUOTE:])
        return Reason(self._file, node.end_lineno or node.lineno, f"uses {what} ({quote})")


def _is_pyspark(dotted: str) -> bool:
    return dotted == "pyspark" or dotted.startswith("pyspark.")


def _dotted(node: ast.expr) -> str:
    """`spark.sparkContext` of such a chain; what is not a name in it, such as a call, is shown as `(...)`."""
    parts: list[str] = []
    while True:
        if isinstance(node, ast.Attribute):
            parts.append(f".{node.attr}")
            node = node.value
        elif isinstance(node, ast.Call):
            parts.append("(...)")
            node = node.func
        else:
            parts.append(node.id if isinstance(node, ast.Name) else "(...)")
            return "".join(reversed(parts))


class _Roots:
    """Where local modules are: the counterpart of sys.path, without anything installed."""

    def __init__(self, script_directory: Path, search: Sequence[Path]) -> None:
        self._directories = [script_directory, *(place for place in search if place.is_dir())]
        self._single_files = {place.stem: place for place in search if place.suffix == ".py" and place.is_file()}

    def imported_files(self, nodes: Sequence[ast.AST], package: str) -> Iterator[tuple[Path, str]]:
        """Each local file that `nodes` import, with the package that it is in (for its own relative imports)."""
        for node in nodes:
            if isinstance(node, ast.Import):
                for alias in node.names:
                    yield from self._files_of(alias.name)
            elif isinstance(node, ast.ImportFrom):
                module = _absolute(node, package)
                if module is not None:
                    for alias in node.names:
                        # The imported name may be a submodule or just a name in the module; both files count if there.
                        yield from self._files_of(module if alias.name == "*" else f"{module}.{alias.name}".strip("."))

    def _files_of(self, module: str) -> Iterator[tuple[Path, str]]:
        """The files that importing `module` executes: the `__init__.py` of each package on the way and its own."""
        if _is_pyspark(module):
            return
        parts = module.split(".")
        root = self._root_of(parts[0])
        if root is None:
            return
        if root.is_file():
            yield root, ""
            return
        for end in range(1, len(parts) + 1):
            place = root.joinpath(*parts[:end])
            if (place / "__init__.py").is_file():
                yield place / "__init__.py", ".".join(parts[:end])
            elif place.with_suffix(".py").is_file():
                yield place.with_suffix(".py"), ".".join(parts[: end - 1])

    def _root_of(self, name: str) -> Path | None:
        """The directory or single file that the top-level module `name` comes from, as Python would choose."""
        for directory in self._directories:
            if (directory / name / "__init__.py").is_file() or (directory / f"{name}.py").is_file():
                return directory
        if name in self._single_files:
            return self._single_files[name]
        return next((directory for directory in self._directories if (directory / name).is_dir()), None)


def _absolute(node: ast.ImportFrom, package: str) -> str | None:
    """The full name of the module in `from ..a import b`; None for a relative import outside a package, which would
    fail.
    """
    if not node.level:
        return node.module
    parts = package.split(".") if package else []
    if len(parts) < node.level:
        return None
    base = parts[: len(parts) - node.level + 1]
    return ".".join([*base, *([node.module] if node.module else [])])
