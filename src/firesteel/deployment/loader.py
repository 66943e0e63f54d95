"""The ClusterClientServiceLoader: the one ClusterClientFactory for a configuration."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from importlib.metadata import EntryPoint, entry_points

from firesteel.config import Configuration
from firesteel.deployment.descriptors import ClusterClientFactory, UnsupportedTargetError

GROUP = "firesteel.cluster_client_factories"
OWN = (
    EntryPoint("local", "firesteel.deployment.local:LocalClusterClientFactory", GROUP),
    EntryPoint("remote", "firesteel.deployment.standalone:StandaloneClientFactory", GROUP),
    EntryPoint(
        "standalone-application",
        "firesteel.deployment.standalone_application:StandaloneApplicationClientFactory",
        GROUP,
    ),
)
"""Listed here and not in the metadata of the distribution, which a copy of the code that was sent to a cluster lacks."""
PLANNED = ("yarn-session", "yarn-application", "kubernetes-session", "kubernetes-application")
"""Targets that users of Flink may ask for and that no factory offers yet."""


def installed() -> Iterable[EntryPoint]:
    """Our own factories, and those of other distributions."""
    return (*OWN, *entry_points(group=GROUP))


class ClusterClientServiceLoader:
    """Finds factories by the entry points of the group `firesteel.cluster_client_factories`."""

    def __init__(self, candidates: Callable[[], Iterable[EntryPoint]] = installed) -> None:
        self._candidates = candidates

    def factory_for(self, configuration: Configuration) -> ClusterClientFactory:
        """Raises UnsupportedTargetError, which lists the candidates, unless exactly one factory is compatible."""
        found = [(entry, self._load(entry)) for entry in self._candidates()]
        fitting = [(entry, factory) for entry, factory in found if factory.is_compatible_with(configuration)]
        target = configuration.execution.target
        if len(fitting) == 1:
            return fitting[0][1]
        if fitting:
            names = ", ".join(f"{entry.name} ({entry.value})" for entry, _ in fitting)
            raise UnsupportedTargetError(
                f"several factories serve the target '{target}': {names}; uninstall all but one of them"
            )
        raise UnsupportedTargetError(_nobody(target, [factory for _, factory in found]))

    def application_targets(self) -> list[str]:
        """The targets for `run-application`."""
        factories = map(self._load, self._candidates())
        return sorted(target for f in factories if f.deploys_applications for target in f.targets)

    @staticmethod
    def _load(entry: EntryPoint) -> ClusterClientFactory:
        try:
            factory: ClusterClientFactory = entry.load()()
        except Exception as error:
            # Another distribution's: what it raises can be anything.
            raise UnsupportedTargetError(
                f"the cluster client factory {entry.name} ({entry.value}) cannot be loaded: {error}; "
                "reinstall the package that it is from, or uninstall it"
            ) from error
        return factory


def _nobody(target: str | None, factories: Sequence[ClusterClientFactory]) -> str:
    here = ", ".join(sorted(name for factory in factories for name in factory.targets))
    if target is None:
        return f"no target is set; choose one with -t or execution.target: {here}"
    missing = "is not available in this version" if target in PLANNED else "does not exist"
    return f"the target '{target}' {missing}; choose one with -t or execution.target: {here}"
