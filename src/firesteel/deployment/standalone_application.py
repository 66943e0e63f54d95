"""The target `standalone-application`: a cluster on this machine that lives and dies with one application."""

from __future__ import annotations

import dataclasses

from firesteel.client.discovery import connect, find_local
from firesteel.client.errors import ClusterUnreachableError
from firesteel.config import Configuration
from firesteel.deployment.descriptors import (
    ApplicationConfiguration,
    ClusterClientProvider,
    ClusterSpecification,
    UnsupportedTargetError,
)
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.deployment.local_nodes import end_with_jobs, one_at_a_time, start_node
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
        with one_at_a_time(effective):
            anew = find_local(effective.configuration) is None
            if anew:
                start_node(effective, woken=False, arguments=("--application", application.application_id))
        return dataclasses.replace(_provider(effective, cluster_id), anew=anew)

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
    own = {"rest.port": "0", "engine.reuse": "false", "engine.max": "1"}
    overrides = {**own, **effective.overrides, CLUSTER_ID: cluster_id, "client.addresses": ""}
    return effective.with_overrides(overrides)


def _provider(effective: EffectiveConfiguration, cluster_id: str) -> ClusterClientProvider:
    node = find_local(effective.configuration)
    if node is None:
        raise ClusterUnreachableError(
            f"no cluster '{cluster_id}' is running on this machine (data.dir is {effective.configuration.data.dir})"
        )
    return ClusterClientProvider(
        cluster_id, lambda: connect(effective.configuration), shares_files=True, ended=node.process.wait
    )
