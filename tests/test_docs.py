"""The documentation is true: generated pages are fresh, links lead somewhere, examples load, named things exist."""

from __future__ import annotations

import importlib.util
import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import click
import pytest

from firesteel.cli.main import COMMANDS, cli
from firesteel.config import is_option
from firesteel.config.loader import known_keys
from firesteel.errors import InvalidPipelineError
from firesteel.failure import FailureKind
from firesteel.jobgraph.load import load_pipeline
from firesteel.status import JobStatus

ROOT = Path(__file__).resolve().parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "examples").rglob("*.md")])
NAMES = {str(p.relative_to(ROOT)): p for p in PAGES}

_FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_HEADING = re.compile(r"^#+ (.+)$", re.MULTILINE)
_COMMAND = re.compile(r"^(?:\$ |    )?((?:\S*/)?firesteel (?!\.\.\.).+)$", re.MULTILINE)

every_page = pytest.mark.parametrize("page", NAMES.values(), ids=NAMES.keys())


def blocks(page: Path) -> Iterator[tuple[str, str]]:
    """Language and text of each fenced block."""
    for match in _FENCE.finditer(page.read_text()):
        yield match[1], match[2]


def prose(page: Path) -> str:
    return _FENCE.sub("", page.read_text())


def anchors(page: Path) -> set[str]:
    """The ids that headings get on GitHub."""
    plain = (re.sub(r"[`*]", "", title).strip().lower() for title in _HEADING.findall(prose(page)))
    return {re.sub(r"[^\w\- ]", "", title).replace(" ", "-") for title in plain}


def reference_script() -> ModuleType:
    spec = importlib.util.spec_from_file_location("cli_reference", ROOT / "scripts" / "cli_reference.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_cli_page_is_what_the_commands_say() -> None:
    fresh = reference_script().page()
    stale = (ROOT / "docs" / "reference" / "cli.md").read_text()
    assert stale == fresh, "run: .venv/bin/python scripts/cli_reference.py > docs/reference/cli.md"


@every_page
def test_relative_links_lead_somewhere(page: Path) -> None:
    broken = []
    for target in _LINK.findall(prose(page)):
        if re.match(r"[a-z]+:", target):
            continue
        path, _, anchor = target.partition("#")
        file = (page.parent / path).resolve() if path else page
        if not file.exists() or (anchor and file.suffix == ".md" and anchor not in anchors(file)):
            broken.append(target)
    assert not broken


@pytest.mark.parametrize(
    ("page", "text"),
    [
        pytest.param(page, text, id=f"{name}-{n}")
        for name, page in NAMES.items()
        for n, (language, text) in enumerate(blocks(page))
        if language == "yaml" and re.search(r"^vertices:", text, re.MULTILINE)
    ],
)
def test_pipelines_in_the_text_load(page: Path, text: str, tmp_path: Path) -> None:
    file = tmp_path / "pipeline.yaml"
    file.write_text(text)
    # Modules that the same page shows as `name.py` are there, as they would be for its reader.
    for language, code in blocks(page):
        if language == "python" and (named := re.match(r"# (\w+\.py)\n", code)):
            (tmp_path / named[1]).write_text(code)
    try:
        loaded = load_pipeline(file)
    except InvalidPipelineError as error:
        pytest.fail(str(error))
    assert not loaded.problems


def commands_in(page: Path) -> Iterator[str]:
    for language, text in blocks(page):
        if language in ("", "sh", "console", "text"):
            yield from (m[1] for m in _COMMAND.finditer(text))
    yield from (m[1] for m in re.finditer(r"^    (firesteel .+)$", prose(page), re.MULTILINE))
    yield from re.findall(r"`(firesteel [^`]+)`", prose(page))


@every_page
def test_commands_and_their_options_exist(page: Path) -> None:
    wrong = [w for line in commands_in(page) for w in complaints(line)]
    assert not wrong


def complaints(line: str) -> Iterator[str]:
    words = shlex.split(line.partition("  #")[0].partition(" | ")[0])[1:]
    if not words or not words[0][:1].islower():
        return  # `firesteel COMMAND`, `firesteel --version`
    if words[0] not in COMMANDS:
        yield f"{line}: no command {words[0]}"
        return
    command: click.Command | None = cli
    called: list[str] = []
    for word in words:  # groups may have groups of their own: `firesteel cluster token create`
        if not isinstance(command, click.Group) or not word[:1].islower():
            break
        called.append(word)
        command = command.get_command(click.Context(command), word)
    if command is None:
        yield f"{line}: no command {' '.join(called)}"
        return
    known = {spelling for p in command.params for spelling in p.opts} | {"-h", "--help"}
    for word in own_words(words):
        if word.startswith("-") and not word.startswith("-D") and word.partition("=")[0] not in known:
            yield f"{line}: {words[0]} takes no {word}"


def own_words(words: list[str]) -> list[str]:
    """What is the command's own: what stands after a script, which `pipeline.py` is not here, is the script's."""
    scripts = [n for n, word in enumerate(words) if word.endswith(".py") and Path(word).name != "pipeline.py"]
    return words[: min([*scripts, *(n for n, word in enumerate(words) if word == "--")], default=len(words))]


@every_page
def test_settings_on_the_command_line_exist(page: Path) -> None:
    sections = "|".join({key.partition(".")[0] for key in known_keys()})  # the others are Spark's and Java's
    keys = re.findall(rf"-D ?((?:{sections})\.[\w.-]+)=", page.read_text())
    assert [key for key in keys if not is_option(key)] == []


@pytest.mark.parametrize("word", [*(k.value for k in FailureKind), *(s.value for s in JobStatus)])
def test_jobs_page_explains_every_state_and_failure(word: str) -> None:
    assert f"| `{word}` |" in (ROOT / "docs" / "concepts" / "jobs.md").read_text()


def test_contributing_lists_every_package() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text()
    packages = {p.parent.name for p in (ROOT / "src" / "firesteel").glob("*/__init__.py")}
    assert not {p for p in packages if f"| `{p}/` |" not in text}


def test_every_page_of_docs_is_reachable_from_the_readme() -> None:
    todo, seen = [ROOT / "README.md"], set()
    while todo:
        page = todo.pop()
        if page in seen or page.suffix != ".md" or not page.is_file():
            continue
        seen.add(page)
        todo += [(page.parent / t.partition("#")[0]).resolve() for t in _LINK.findall(prose(page)) if ":" not in t]
    assert {p for p in PAGES if (ROOT / "docs") in p.parents} <= seen
