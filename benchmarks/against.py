"""This checkout against another one, by turns: `python -m benchmarks.against CHECKOUT --only rest --only control`.

The other checkout has been set up (`make setup`) at the commit to compare with. Each turn runs `benchmarks/run.py` of both, and
each turn begins with the other one; a number that both report is compared by its median over the turns.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
from benchmarks.harness import HERE, Sample, say, table

HERE_NAME, THERE_NAME = "here", "there"


@click.command(context_settings={"max_content_width": 120, "ignore_unknown_options": True})
@click.argument("checkout", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.option("--turns", type=click.IntRange(min=1), default=2, show_default=True)
@click.option("--json", "json_file", type=click.Path(path_type=Path), help="Write every measurement to this file.")
@click.argument("options", nargs=-1, type=click.UNPROCESSED)
def main(checkout: Path, turns: int, json_file: Path | None, options: tuple[str, ...]) -> None:
    """Run the benchmarks of this checkout and of CHECKOUT by turns; OPTIONS are those of benchmarks/run.py."""
    trees = {HERE_NAME: HERE.parent, THERE_NAME: checkout.resolve()}
    measured: dict[str, list[dict[str, float]]] = {name: [] for name in trees}
    for turn in range(turns):
        for name in sorted(trees, reverse=bool(turn % 2)):
            say(f"turn {turn + 1} of {turns}: {name} ({trees[name]})")
            measured[name].append(measure(trees[name], options))
            if json_file:
                json_file.write_text(json.dumps(measured, indent=1) + "\n")
    show(measured)


def measure(tree: Path, options: tuple[str, ...]) -> dict[str, float]:
    with tempfile.TemporaryDirectory(prefix="firesteel-against-") as work:
        report = Path(work, "report.json")
        command = [str(tree / ".venv/bin/python"), "benchmarks/run.py", "--json", str(report), *options]
        subprocess.run(command, cwd=tree, check=True, stdout=sys.stderr)
        document = json.loads(report.read_text())
    return dict(numbers({k: v for k, v in document.items() if k not in ("at", "quick", "machine")}))


def numbers(value: Any, path: str = "") -> Iterator[tuple[str, float]]:
    """Every number of a report, by its path; of a sample only the median, since the rest only says how it scattered."""
    if isinstance(value, dict):
        if "median" in value:
            yield path, float(value["median"])
            return
        for key, inner in value.items():
            yield from numbers(inner, f"{path} / {key}" if path else key)
    elif isinstance(value, list):  # rounds of one thing
        rounds = [dict(numbers(one, path)) for one in value]
        for key in dict.fromkeys(key for one in rounds for key in one):
            yield key, Sample.of([one[key] for one in rounds if key in one]).median
    elif isinstance(value, (int, float)) and not isinstance(value, bool):
        yield path, float(value)


def show(measured: dict[str, list[dict[str, float]]]) -> None:
    rows = []
    for path in measured[HERE_NAME][0]:
        if not all(path in turn for turns in measured.values() for turn in turns):
            continue  # only one of the two measures it
        ours, theirs = ([turn[path] for turn in measured[name]] for name in (HERE_NAME, THERE_NAME))
        ratios = [a / b for a, b in zip(ours, theirs, strict=True) if b]
        ratio = Sample.of(ratios).show() if ratios else "-"
        rows.append([path, Sample.of(theirs).show(), Sample.of(ours).show(), ratio])
    table("this checkout against another one", ["what", THERE_NAME, HERE_NAME, "ratio within the turn"], rows, "")


if __name__ == "__main__":
    main()
