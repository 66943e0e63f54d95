"""The target `standalone-application`: a cluster on this machine that lives and dies with one application."""

from __future__ import annotations

import contextlib
import dataclasses
import time
from pathlib import Path

from firesteel.client.discovery import LocalCluster, connect, find_local
from firesteel.client.errors import ClusterError, ClusterUnreachableError
from firesteel.config import Configuration
from firesteel.deployment.descriptors import (
    ApplicationEndedError,
    ApplicationOutcome,
    ClusterClientProvider,
    ClusterDeploymentError,
    ClusterSpecification,
    UnsupportedTargetError,
)
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.deployment.local_nodes import POLL_SECONDS, end_with_jobs, one_at_a_time, start_node
from firesteel.errors import JobNotFoundError
from firesteel.fs.files import read_json, tail
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.layout import NODE_LOG, ClusterLayout
from firesteel.types import JobID

STANDALONE_APPLICATION = "standalone-application"
CLUSTER_ID = "high-availability.cluster-id"


class StandaloneApplicationClientFactory:
    targets = (STANDALONE_APPLICATION,)
    deploys_sessions = False
    deploys_applications = True

    def is_compatible_with(self, configuration: Configuration) -> bool:
        return configuration.execution.target == STANDALONE_APPLICATION

    def cluster_id(self, configuration: Configuration) -> str | None:
        return configuration.high_availability.cluster_id if find_local(configuration) is not None else None

    def descriptor(self, effective: EffectiveConfiguration) -> StandaloneApplicationDescriptor:
        return StandaloneApplicationDescriptor(effective)


class StandaloneApplicationDescriptor:
    def __init__(self, effective: EffectiveConfiguration) -> None:
        self._effective = effective

    def retrieve(self, cluster_id: str) -> ClusterClientProvider:
        return _provider(of_cluster(self._effective, cluster_id), cluster_id)

    def deploy_session(self, specification: ClusterSpecification) -> ClusterClientProvider:
        raise UnsupportedTargetError(
            f"a cluster of the target '{STANDALONE_APPLICATION}' is started with its application, by "
            "`firesteel run-application`; one for many jobs is the target 'local'"
        )

    def deploy_application(
        self,
        specification: ClusterSpecification,
        application: ApplicationConfiguration,
    ) -> ClusterClientProvider:
        cluster_id = name_of(application.application_id)
        effective = of_application(self._effective, cluster_id)
        configuration = effective.configuration
        with one_at_a_time(effective):
            node = find_local(configuration)
            anew = node is None
            if node is None:
                if (outcome := outcome_of(configuration)) is not None:
                    raise ApplicationEndedError(application.application_id, outcome)
                node = start_node(effective, woken=False, application=application)
        provider = dataclasses.replace(_provider(effective, cluster_id, node), anew=anew)
        _await_acceptance(provider, application.application_id, node, ClusterLayout.of(configuration).home / NODE_LOG)
        return provider

    def kill(self, cluster_id: str) -> None:
        provider = self.retrieve(cluster_id)
        with provider.connect() as client:
            end_with_jobs(client)


def name_of(application_id: JobID) -> str:
    """The cluster id of an application, made from its own, so that it can be found again."""
    return f"application-{application_id[:16]}"


def of_cluster(effective: EffectiveConfiguration, cluster_id: str) -> EffectiveConfiguration:
    return effective.with_overrides({**effective.overrides, CLUSTER_ID: cluster_id, "client.addresses": ""})


def of_application(effective: EffectiveConfiguration, cluster_id: str) -> EffectiveConfiguration:
    """The settings of a cluster for one application: engines of its own, a free port."""
    own = {"rest.port": "0", "engine.reuse": "false"}
    overrides = {**own, **effective.overrides, CLUSTER_ID: cluster_id, "client.addresses": ""}
    return effective.with_overrides(overrides)


def outcome_of(configuration: Configuration) -> ApplicationOutcome | None:
    """What the last node of the cluster wrote when its application had ended; None when it has not."""
    said = read_json(ClusterLayout.of(configuration).application_end)
    if said is None:
        return None
    return ApplicationOutcome(str(said["status"]), int(said["exit_code"]), str(said["failure"]))


def _await_acceptance(provider: ClusterClientProvider, application_id: JobID, node: LocalCluster, log: Path) -> None:
    """Wait until the application is durable in its cluster: from then on it runs, whatever becomes of us.

    Raises ClusterDeploymentError when the node ends before that.
    """
    with provider.connect() as client:
        while node.process.alive:
            with contextlib.suppress(JobNotFoundError, ClusterError):
                client.job(application_id).status()
                return
            time.sleep(POLL_SECONDS)
    if provider.outcome() is None:
        raise ClusterDeploymentError(
            f"the cluster of the application has ended before it was accepted:\n{tail(log, 10)}"
        )


def _provider(
    effective: EffectiveConfiguration, cluster_id: str, node: LocalCluster | None = None
) -> ClusterClientProvider:
    configuration = effective.configuration
    node = node or find_local(configuration)
    if node is None:
        raise ClusterUnreachableError(
            f"no cluster '{cluster_id}' is running on this machine (data.dir is {configuration.data.dir})"
        )
    return ClusterClientProvider(
        cluster_id,
        lambda: connect(configuration),
        shares_files=True,
        ended=node.process.wait,
        outcome=lambda: outcome_of(configuration),
    )
