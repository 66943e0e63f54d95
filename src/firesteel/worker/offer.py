"""What the worker of this host offers, as its configuration and its machine say."""

from __future__ import annotations

import os

from firesteel.config import Configuration
from firesteel.config.values import memory_bytes
from firesteel.engines.command import local_cores
from firesteel.engines.record import EngineSpec
from firesteel.hosts import this_host
from firesteel.resourcemanager.offers import WorkerOffer
from firesteel.sandbox import landlock
from firesteel.worker.sandboxing import sandbox_policy


def local_offer(
    configuration: Configuration, default_spec: EngineSpec, worker: str, name: str | None = None
) -> WorkerOffer:
    """The offer of the worker with this id and name. Where the options say nothing of a maximum, it is what this machine or the
    default engine has.

    Raises EnvironmentNotReadyError when a sandbox is asked for that this machine does not have.
    """
    options = configuration.engine
    return WorkerOffer(
        worker=worker,
        name=name or configuration.worker.name or this_host().name,
        max_engines=options.max_engines,
        max_cores=options.max_cores or max(os.cpu_count() or 1, local_cores(default_spec.master)),
        max_memory=options.max_memory or max(_machine_memory(), default_spec.memory, key=memory_bytes),
        labels=frozenset(configuration.worker.labels),
        sandbox=_sandbox(configuration),
    )


def _sandbox(configuration: Configuration) -> str:
    policy = sandbox_policy(configuration)
    if policy is None:
        return ""
    found = landlock.version() >= landlock.LEAST_VERSION
    return "+".join(["user"] * (policy.users is not None) + ["landlock"] * found)


def _machine_memory() -> str:
    """As an option says it."""
    total = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    return f"{total >> 20}m"
