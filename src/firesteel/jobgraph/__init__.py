"""The job graph, which says what to run: its model, the ways of writing it, and the checks that make it valid."""

from __future__ import annotations

from .api import Handle, Job
from .load import LoadedPipeline, load_pipeline, parse_graph
from .model import JobGraph
from .render import tree
from .validate import validate

__all__ = ["Handle", "Job", "JobGraph", "LoadedPipeline", "load_pipeline", "parse_graph", "tree", "validate"]
