"""Checks of the Python functions and files that a job names: do they exist and fit? No user code is imported."""

from __future__ import annotations

from pathlib import Path

from firesteel.jobgraph.complete import is_local
from firesteel.jobgraph.model import Python, Script, Sink
from firesteel.jobgraph.nearest import listed, suggest
from firesteel.jobgraph.pymodules import find_module, misfit, names_in

from .context import Context


def check(c: Context) -> None:
    if c.base_dir is None:
        return
    _files(c, c.base_dir)
    for v in c.graph.vertices:
        if isinstance(v, Python):
            _function(c, v, "function", v.function)
        elif isinstance(v, Sink) and v.foreach_batch:
            _function(c, v, "foreach_batch", v.foreach_batch)
        elif isinstance(v, Script) and is_local(v.file) and not _path(v.file, c.base_dir).is_file():
            c.add(v, "file", f"no such file: {v.file}", "check the path; it is relative to the pipeline file")


def _files(c: Context, base_dir: Path) -> None:
    artifacts = c.graph.settings.artifacts
    for field in ("py_files", "archives", "files", "jars"):
        for i, entry in enumerate(getattr(artifacts, field)):
            if is_local(entry) and not _path(entry.partition("#")[0], base_dir).exists():
                fix = "check the path; it is relative to the pipeline file"
                c.add_top(("settings", "artifacts", field, i), f"no such file: {entry}", fix)


def _path(text: str, base_dir: Path) -> Path:
    if text.startswith("file:"):
        text = "/" + text.removeprefix("file:").lstrip("/")
    return base_dir / text


def _function(c: Context, v: Python | Sink, field: str, reference: str) -> None:
    module_name, _, function_name = reference.partition(":")
    module = find_module(module_name, py_files=c.graph.settings.artifacts.py_files, base_dir=c.base_dir)
    if module is None:
        top = module_name.partition(".")[0]
        fix = f"put {top}.py beside the pipeline, or list its path in settings.artifacts.py_files"
        c.add(v, field, f"there is no module '{module_name}'", fix)
        return
    try:
        tree = module.tree
    except (SyntaxError, ValueError) as error:
        line = f" on line {error.lineno}" if isinstance(error, SyntaxError) and error.lineno else ""
        what = error.msg if isinstance(error, SyntaxError) else str(error)
        c.add(v, field, f"the module '{module_name}' is not Python{line}: {what}", f"correct {Path(module.where).name}")
        return
    if tree is None:
        return
    names = names_in(tree)
    if function_name not in names.defined:
        if not names.open_ended:
            functions = [n for n, node in names.defined.items() if node is not None]
            otherwise = f"its functions are {listed(functions)}" if functions else "define it at the top level"
            message = f"the module '{module_name}' has no function '{function_name}'"
            c.add(v, field, message, suggest(function_name, functions, otherwise))
        return
    definition = names.defined[function_name]
    if definition is None:
        return
    if isinstance(v, Python):
        why = misfit(definition, len(v.inputs), v.args)
        fix = "make inputs and args fit its parameters"
    else:
        why = misfit(definition, 2, (), session=False)
        fix = "define it with two parameters: batch_df, batch_id"
        if why and why.startswith("takes"):
            why = "does not take a DataFrame and a batch id"
    if why:
        c.add(v, field, f"the function '{function_name}' {why}", fix)
