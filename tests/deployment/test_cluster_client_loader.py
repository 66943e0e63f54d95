"""The ClusterClientServiceLoader: one factory for a configuration, and errors that list the others."""

from __future__ import annotations

from importlib.metadata import EntryPoint
from pathlib import Path

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.deployment.application_deployer import ApplicationDeployer
from firesteel.deployment.descriptors import (
    ClusterClientFactory,
    ClusterDescriptor,
    ClusterSpecification,
    UnsupportedTargetError,
)
from firesteel.deployment.effective import EffectiveConfiguration
from firesteel.deployment.loader import GROUP, OWN, PLANNED, ClusterClientServiceLoader, installed
from firesteel.deployment.local import LocalClusterClientFactory
from firesteel.deployment.standalone import StandaloneClientFactory
from firesteel.deployment.standalone_application import StandaloneApplicationClientFactory
from firesteel.jobgraph import parse_graph
from firesteel.jobgraph.application import ApplicationConfiguration
from firesteel.types import new_job_id


class RivalFactory(LocalClusterClientFactory):
    """Another distribution's idea of the target `local`."""


class BrokenFactory:
    def __init__(self) -> None:
        raise ImportError("no module named 'hadoop'")


def configured(tmp_path: Path, **settings: str) -> Configuration:
    settings = {"data.dir": str(tmp_path), **{k.replace("__", "."): v for k, v in settings.items()}}
    return load_configuration(overrides=settings, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("target", "kind"),
    [
        ("local", LocalClusterClientFactory),
        ("remote", StandaloneClientFactory),
        ("standalone-application", StandaloneApplicationClientFactory),
    ],
)
def test_target_has_exactly_one_factory(tmp_path: Path, target: str, kind: type) -> None:
    factory = ClusterClientServiceLoader().factory_for(configured(tmp_path, execution__target=target))
    assert type(factory) is kind
    assert list(factory.targets) == [target]


def test_unknown_target_is_an_error_that_lists_those_that_exist(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTargetError) as error:
        ClusterClientServiceLoader().factory_for(configured(tmp_path, execution__target="nowhere"))
    assert str(error.value) == (
        "the target 'nowhere' does not exist; choose one with -t or execution.target: "
        "local, remote, standalone-application"
    )


@pytest.mark.parametrize("target", PLANNED)
def test_target_of_a_cluster_manager_is_said_to_be_missing(tmp_path: Path, target: str) -> None:
    loader = ClusterClientServiceLoader(lambda: OWN)
    if any(target in loader._load(entry).targets for entry in OWN):
        pytest.skip(f"{target} has a factory")
    with pytest.raises(UnsupportedTargetError, match=r"is not available in this version; .* local, remote"):
        loader.factory_for(configured(tmp_path, execution__target=target))


def test_no_target_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UnsupportedTargetError, match=r"no target is set; .* local, remote"):
        ClusterClientServiceLoader().factory_for(configured(tmp_path))


def test_two_factories_for_one_target_are_both_named(tmp_path: Path) -> None:
    rival = EntryPoint("other", f"{__name__}:RivalFactory", GROUP)
    loader = ClusterClientServiceLoader(lambda: (*OWN, rival))
    with pytest.raises(UnsupportedTargetError) as error:
        loader.factory_for(configured(tmp_path, execution__target="local"))
    assert "local (firesteel.deployment.local:LocalClusterClientFactory)" in str(error.value)
    assert f"other ({__name__}:RivalFactory)" in str(error.value)
    # Where only one of them fits, the other is in nobody's way.
    assert type(loader.factory_for(configured(tmp_path, execution__target="remote"))) is StandaloneClientFactory


def test_factory_of_another_distribution_is_found_by_its_entry_point(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    site = tmp_path / "site"
    (site / "other-1.0.dist-info").mkdir(parents=True)
    (site / "other-1.0.dist-info" / "METADATA").write_text("Metadata-Version: 2.1\nName: other\nVersion: 1.0\n")
    (site / "other-1.0.dist-info" / "entry_points.txt").write_text(f"[{GROUP}]\nmoon = other_moon:MoonFactory\n")
    (site / "other_moon.py").write_text(
        "class MoonFactory:\n"
        "    targets = ('moon',)\n"
        "    deploys_sessions = deploys_applications = False\n"
        "    def is_compatible_with(self, configuration):\n"
        "        return configuration.execution.target == 'moon'\n"
    )
    monkeypatch.syspath_prepend(str(site))
    assert "moon" in {e.name for e in installed()}
    factory = ClusterClientServiceLoader().factory_for(configured(tmp_path, execution__target="moon"))
    assert type(factory).__name__ == "MoonFactory"


def test_factory_that_cannot_be_loaded_is_named(tmp_path: Path) -> None:
    broken = EntryPoint("yarn", f"{__name__}:BrokenFactory", GROUP)
    with pytest.raises(UnsupportedTargetError, match=r"factory yarn .* cannot be loaded: no module named 'hadoop'"):
        ClusterClientServiceLoader(lambda: (broken,)).factory_for(configured(tmp_path, execution__target="local"))


@pytest.mark.parametrize("entry", OWN, ids=lambda e: e.name)
def test_own_factories_keep_to_the_protocols(tmp_path: Path, entry: EntryPoint) -> None:
    factory: ClusterClientFactory = entry.load()()
    effective = EffectiveConfiguration(configured(tmp_path, execution__target=entry.name))
    descriptor: ClusterDescriptor = factory.descriptor(effective)
    assert factory.is_compatible_with(effective.configuration)
    assert factory.cluster_id(effective.configuration) is None
    for method in ("retrieve", "deploy_session", "deploy_application", "kill"):
        assert callable(getattr(descriptor, method))


def test_targets_that_cannot_deploy_say_which_can(tmp_path: Path) -> None:
    graph = parse_graph({"name": "x", "vertices": [{"name": "script", "kind": "script", "file": "/x.py"}]})
    application = ApplicationConfiguration(new_job_id(), graph)
    for target in ("local", "remote"):
        effective = EffectiveConfiguration(
            configured(tmp_path, execution__target=target, client__addresses="http://localhost:1")
        )
        with pytest.raises(UnsupportedTargetError, match="choose one that has: standalone-application"):
            ApplicationDeployer().run(effective, application)
        descriptor = ClusterClientServiceLoader().factory_for(effective.configuration).descriptor(effective)
        specification = ClusterSpecification.of(effective.configuration)
        with pytest.raises(UnsupportedTargetError):
            descriptor.deploy_application(specification, application)
        if target == "remote":
            with pytest.raises(UnsupportedTargetError, match="firesteel node start"):
                descriptor.deploy_session(specification)
