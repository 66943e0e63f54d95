"""Finding user functions without importing user code.

A `module:function` is looked up where a driver would find it: in the job's py_files, beside the pipeline, then in the
Python environment. Its source is read as a syntax tree, never executed.
"""

from __future__ import annotations

import ast
import importlib.util
import zipfile
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

_ARCHIVES = (".zip", ".whl", ".egg")


@dataclass(frozen=True)
class Module:
    """A module that exists.

    Without source (an extension, a namespace package) nothing is known about its content.
    """

    where: str
    source: str | None = None

    @cached_property
    def tree(self) -> ast.Module | None:
        """Raises SyntaxError."""
        return ast.parse(self.source, self.where) if self.source is not None else None


def find_module(
    name: str, *, py_files: Sequence[str], base_dir: Path | None, environment: bool = True
) -> Module | None:
    for entry in py_files:
        found = _in_entry(name, Path(entry.removeprefix("file://").removeprefix("file:")))
        if found:
            return found
    if base_dir is not None:
        found = _in_directory(name, base_dir)
        if found:
            return found
    return _in_environment(name) if environment else None


def in_directory(name: str, directory: Path) -> bool:
    """Whether the module `name` lies in `directory`."""
    return _in_directory(name, directory) is not None


def _in_entry(name: str, entry: Path) -> Module | None:
    if entry.is_dir():
        return _in_directory(name, entry)
    if entry.suffix == ".py" and entry.stem == name and entry.is_file():
        return _read(entry)
    if entry.suffix in _ARCHIVES and entry.is_file():
        return _in_archive(name, entry)
    return None


def _in_directory(name: str, directory: Path) -> Module | None:
    stem = directory.joinpath(*name.split("."))
    for file in (stem.with_name(f"{stem.name}.py"), stem / "__init__.py"):
        if file.is_file():
            return _read(file)
    return None


def _in_archive(name: str, archive: Path) -> Module | None:
    stem = name.replace(".", "/")
    try:
        with zipfile.ZipFile(archive) as content:
            members = set(content.namelist())
            for member in (f"{stem}.py", f"{stem}/__init__.py"):
                if member in members:
                    return Module(f"{archive}/{member}", content.read(member).decode("utf-8", "replace"))
    except (OSError, zipfile.BadZipFile):
        return None
    return None


def _in_environment(name: str) -> Module | None:
    """Find a module step by step from its top package: `importlib.util.find_spec` would import the parents."""
    top, *rest = name.split(".")
    try:
        spec: ModuleSpec | None = importlib.util.find_spec(top)
    except (ImportError, ValueError):
        spec = None
    path = top
    for part in rest:
        if spec is None or spec.submodule_search_locations is None:
            return None
        path = f"{path}.{part}"
        spec = PathFinder.find_spec(path, list(spec.submodule_search_locations))
    if spec is None:
        return None
    if spec.origin and spec.origin.endswith(".py"):
        return _read(Path(spec.origin))
    return Module(spec.origin or name)


def _read(file: Path) -> Module | None:
    try:
        return Module(str(file), file.read_text("utf-8", "replace"))
    except OSError:
        return None


@dataclass(frozen=True)
class ModuleNames:
    defined: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | None]
    """Top-level names, with the definition of those that only a `def` defines."""
    open_ended: bool
    """Whether there is a `from x import *` or a module `__getattr__`, so that any name may exist."""


def names_in(tree: ast.Module) -> ModuleNames:
    defined: dict[str, ast.FunctionDef | ast.AsyncFunctionDef | None] = {}
    open_ended = False
    for node in _top_level(tree.body):
        match node:
            case ast.FunctionDef(name="__getattr__"):
                open_ended = True
            case ast.FunctionDef() | ast.AsyncFunctionDef():
                defined[node.name] = None if node.name in defined else node
            case ast.ClassDef():
                defined[node.name] = None
            case ast.Import() | ast.ImportFrom():
                open_ended |= any(alias.name == "*" for alias in node.names)
                defined.update({(a.asname or a.name.split(".")[0]): None for a in node.names})
            case ast.Assign() | ast.AnnAssign() | ast.AugAssign():
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names = (n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name))
                defined.update(dict.fromkeys(names))
    return ModuleNames(defined, open_ended)


def _top_level(body: Iterable[ast.stmt]) -> Iterable[ast.stmt]:
    """Statements that run when the module is imported, inside `if`, `try` and `with` too."""
    for node in body:
        yield node
        for field in ("body", "orelse", "finalbody"):
            if isinstance(node, ast.If | ast.Try | ast.With):
                yield from _top_level(getattr(node, field, []))
        if isinstance(node, ast.Try):
            for handler in node.handlers:
                yield from _top_level(handler.body)


def misfit(
    function: ast.FunctionDef | ast.AsyncFunctionDef, inputs: int, args: Iterable[str], *, session: bool = True
) -> str | None:
    """Why `function([spark,] *inputs, **args)` cannot be called, or None when it can.

    A first parameter named `spark` gets the session, if `session`. A decorated function may take anything.
    """
    if function.decorator_list:
        return None
    spec = function.args
    positional = [a.arg for a in (*spec.posonlyargs, *spec.args)]
    optional = set(positional[len(positional) - len(spec.defaults) :]) if spec.defaults else set()
    if session and positional[:1] == ["spark"]:
        positional = positional[1:]
    if inputs > len(positional) and spec.vararg is None:
        return f"takes {_count(len(positional), 'DataFrame')} but the vertex has {_count(inputs, 'input')}"
    left = positional[inputs:]
    given = set(args)
    only_positional = {a.arg for a in spec.posonlyargs}
    keyword = [a.arg for a in spec.kwonlyargs]
    twice = sorted(given & set(positional[:inputs]))
    if twice:
        return f"gets '{twice[0]}' both as an input and in args"
    if spec.kwarg is None:
        unknown = sorted(given - set(left) - set(keyword))
        if unknown:
            return f"has no parameter '{unknown[0]}'"
    required = [n for n in left if n not in optional]
    required += [a.arg for a, default in zip(spec.kwonlyargs, spec.kw_defaults, strict=True) if default is None]
    unfilled = [n for n in required if n not in given or n in only_positional]
    if unfilled:
        return f"needs a value for '{unfilled[0]}', which is neither an input nor in args"
    return None


def _count(number: int, noun: str) -> str:
    return f"{number} {noun}" if number == 1 else f"{number} {noun}s"
