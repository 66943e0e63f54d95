"""Which engine and which kind of driver a graph and the configuration ask for."""

from __future__ import annotations

import math
import sys
from dataclasses import dataclass
from pathlib import Path

from firesteel.config import Configuration
from firesteel.config.sections import Isolation
from firesteel.config.values import memory_bytes
from firesteel.engines.command import local_cores
from firesteel.engines.record import EngineSpec
from firesteel.hosts import this_user
from firesteel.jobgraph.model import JobGraph, ScriptApi
from firesteel.spark_connect.script_api import ScriptNeeds, analyse_script
from firesteel.spark_connect.settings import split_settings


@dataclass(frozen=True, slots=True)
class RunPlan:
    engine: EngineSpec
    classic: bool
    """The job is a script that needs a JVM of its own."""
    driver_only: bool
    """The job is a program that uses no Spark itself."""
    needs: ScriptNeeds | None
    """Why, for a script whose API was determined by reading it."""
    python: str
    driver_environment: dict[str, str]

    @staticmethod
    def of(graph: JobGraph, configuration: Configuration) -> RunPlan:
        needs: ScriptNeeds | None = None
        classic = False
        if graph.script is not None:
            if graph.script.api is ScriptApi.AUTO:
                search = [Path(p) for p in graph.settings.artifacts.py_files]
                needs = analyse_script(Path(graph.script.file), search)
                classic = needs.api == "classic"
            else:
                classic = graph.script.api is ScriptApi.CLASSIC
        python = str(configuration.driver.python or sys.executable)
        spark = dict(configuration.spark) | dict(graph.settings.spark)
        if classic and graph.settings.artifacts.jars:
            named = [*filter(None, [spark.get("spark.jars")]), *graph.settings.artifacts.jars]
            spark["spark.jars"] = ",".join(named)
        kept = spark if classic else split_settings(spark).engine
        return RunPlan(
            engine=EngineSpec(
                master=_master(graph, configuration.engine.master),
                memory=_memory(graph, configuration.engine.memory),
                spark=tuple(sorted(kept.items())),
                jvm_options=tuple(configuration.engine.jvm_options),
                owner=owner_of_early_engines(configuration),
            ),
            classic=classic,
            driver_only=graph.script is not None and graph.script.api is ScriptApi.NONE,
            needs=needs,
            python=python,
            driver_environment={"PYSPARK_PYTHON": python, "PYTHONUNBUFFERED": "1"},
        )


def _master(graph: JobGraph, master: str) -> str:
    """A graph whose vertices ask for more cores than the master has gets more: the largest vertex has to fit."""
    return _fixed_cores(master, max((math.ceil(v.resources.cpu) for v in graph.vertices if v.resources), default=0))


def _fixed_cores(master: str, at_least: int) -> str:
    """Local masters get a fixed number of cores, so that the record of an engine says what it has."""
    cores = local_cores(master)
    return f"local[{max(cores, at_least)}]" if cores else master


def _memory(graph: JobGraph, memory: str) -> str:
    asked = [v.resources.memory for v in graph.vertices if v.resources]
    return max([memory, *asked], key=memory_bytes)


def shared_engine_spec(configuration: Configuration) -> EngineSpec:
    """The engine that a job of the node's user gets when it asks for nothing special."""
    return EngineSpec(
        master=_fixed_cores(configuration.engine.master, 0),
        memory=configuration.engine.memory,
        spark=tuple(sorted(split_settings(configuration.spark).engine.items())),
        jvm_options=tuple(configuration.engine.jvm_options),
        owner=owner_of_early_engines(configuration),
    )


def owner_of_early_engines(configuration: Configuration) -> str | None:
    """The owner of engines that are started before their first job: what an engine may open is decided when it
    starts."""
    return None if configuration.engine.isolation is Isolation.SESSION else this_user()
