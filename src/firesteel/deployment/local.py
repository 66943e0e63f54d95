"""The target `local`: the cluster of this machine and this user, which a command wakes up when it needs one."""

from __future__ import annotations

import dataclasses

from firesteel.client.discovery import connect, find_local
from firesteel.client.errors import ClusterUnreachableError
from firesteel.config import Configuration
from firesteel.deployment.descriptors import (
    ClusterClientProvider,
    ClusterSpecification,
    UnsupportedTargetError,
)
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.deployment.local_nodes import awake, end_with_jobs, wait_for_end
from firesteel.jobgraph.application import ApplicationConfiguration

LOCAL = "local"


class LocalClusterClientFactory:
    targets = (LOCAL,)
    deploys_sessions = True
    deploys_applications = False

    def is_compatible_with(self, configuration: Configuration) -> bool:
        return configuration.execution.target == LOCAL

    def cluster_id(self, configuration: Configuration) -> str | None:
        return configuration.high_availability.cluster_id if find_local(configuration) is not None else None

    def descriptor(self, effective: EffectiveConfiguration) -> LocalClusterDescriptor:
        return LocalClusterDescriptor(effective)


class LocalClusterDescriptor:
    """Clusters whose files are in the data directory of the configuration."""

    def __init__(self, effective: EffectiveConfiguration) -> None:
        self._effective = effective

    def retrieve(self, cluster_id: str) -> ClusterClientProvider:
        configuration = self._effective.configuration
        return ClusterClientProvider(cluster_id, lambda: connect(configuration), shares_files=True)

    def deploy_session(self, specification: ClusterSpecification) -> ClusterClientProvider:
        """Wake the cluster up, or take the one that is awake with these settings."""
        started = awake(self._effective)
        found = self.retrieve(self._effective.configuration.high_availability.cluster_id)
        return dataclasses.replace(found, anew=started.anew)

    def deploy_application(
        self,
        specification: ClusterSpecification,
        application: ApplicationConfiguration,
    ) -> ClusterClientProvider:
        raise UnsupportedTargetError(
            "the target 'local' is a cluster for many jobs; a cluster of its own on this machine is the target "
            "'standalone-application'"
        )

    def kill(self, cluster_id: str) -> None:
        configuration = self._effective.configuration
        if (found := find_local(configuration)) is None:
            raise ClusterUnreachableError(f"no cluster '{cluster_id}' is running on this machine")
        with connect(configuration) as client:
            end_with_jobs(client)
        wait_for_end(found)
