"""The examples of docs/reference/pipelines.md are one pipeline, and the page names every field."""

from __future__ import annotations

import re
from pathlib import Path

from pydantic import BaseModel

from firesteel.jobgraph import load_pipeline
from firesteel.jobgraph.model import JobGraph, Settings
from firesteel.jobgraph.parse import KINDS, RESTARTS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "pipelines.md"


def test_the_three_examples_are_one_pipeline(tmp_path: Path) -> None:
    text = PAGE.read_text("utf-8")
    graphs = []
    for language, suffix in (("yaml", "yaml"), ("sql", "sql"), ("python", "py")):
        (example,) = re.findall(rf"```{language}\n(.*?)```", text, re.DOTALL)
        file = tmp_path / f"pipeline.{suffix}"
        file.write_text(example.replace("from firesteel import", "from firesteel.jobgraph import"))
        graphs.append(load_pipeline(file).graph)
    assert graphs[0] == graphs[1] == graphs[2]


def test_every_field_is_on_the_page() -> None:
    text = PAGE.read_text("utf-8")
    models: tuple[type[BaseModel], ...] = (JobGraph, Settings, *KINDS.values(), *RESTARTS.values())
    for model in models:
        for name, field in model.model_fields.items():
            if name not in ("kind", "type"):
                assert re.search(rf"`{field.alias or name}\b", text), f"{model.__name__}.{name}"
