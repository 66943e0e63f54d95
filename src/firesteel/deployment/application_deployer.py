"""The ApplicationDeployer: a program to a cluster of its own, on whichever target the configuration names."""

from __future__ import annotations

from firesteel.deployment.descriptors import (
    ClusterClientProvider,
    ClusterSpecification,
    UnsupportedTargetError,
)
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.deployment.loader import ClusterClientServiceLoader
from firesteel.jobgraph.application import ApplicationConfiguration


class ApplicationDeployer:
    def __init__(self, loader: ClusterClientServiceLoader | None = None) -> None:
        self._loader = loader or ClusterClientServiceLoader()

    def run(self, effective: EffectiveConfiguration, application: ApplicationConfiguration) -> ClusterClientProvider:
        """Deploy the application. Raises UnsupportedTargetError for a target that has no application clusters."""
        factory = self._loader.factory_for(effective.configuration)
        if not factory.deploys_applications:
            targets = ", ".join(self._loader.application_targets())
            raise UnsupportedTargetError(
                f"the target '{effective.configuration.execution.target}' has no clusters for single applications; "
                f"choose one that has: {targets}"
            )
        specification = ClusterSpecification.of(effective.configuration)
        return factory.descriptor(effective).deploy_application(specification, application)

    def deploys_applications(self, effective: EffectiveConfiguration) -> bool:
        """Whether the target of the configuration is one for single applications."""
        return self._loader.factory_for(effective.configuration).deploys_applications
