"""An existing cluster, described by a YAML file: the addresses of its nodes, and the commands that harm and heal them."""

from __future__ import annotations

import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Self

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from firesteel.client.cluster import ClusterClient
from firesteel.processes import ProcessIdentity
from firesteel_chaos.controlled import ChaosError, ask_leader
from firesteel_chaos.sites import Site

COMMAND_SECONDS = 120
_NODE_COMMANDS = ("start", "kill", "terminate", "pause", "resume")
_LINE_COMMANDS = ("cut-clients", "restore-clients", "cut-store", "restore-store")
_ABILITIES = {
    "kill": ("kill", "start"),
    "terminate": ("terminate", "start"),
    "pause": ("pause", "resume"),
    "clients": ("cut-clients", "restore-clients"),
    "store": ("cut-store", "restore-store"),
}


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)


class NodeDescription(_Strict):
    name: str
    address: str
    commands: Mapping[str, str] = Field(default_factory=dict)
    """Commands for /bin/sh; a failing command ends the game."""
    pid_file: Annotated[Path | None, Field(alias="pid-file")] = None
    """The process id, if the node runs on this host."""


class ClusterDescription(_Strict):
    """The file."""

    nodes: tuple[NodeDescription, ...] = Field(min_length=1)
    token_file: Annotated[Path, Field(alias="token-file")]
    work_dir: Annotated[Path, Field(alias="work-dir")]
    """The directory for inputs and outputs of jobs, at the same path for engines and this host."""
    data_dir: Annotated[Path | None, Field(alias="data-dir")] = None
    """`data.dir` of the nodes, if this host can see it; then drivers and engines are observed as well."""
    cluster_id: Annotated[str, Field(alias="cluster-id")] = "default"
    lease: float = Field(default=10.0, gt=0)
    ca: Path | None = None
    harm_processes: Annotated[bool, Field(alias="harm-processes")] = False
    """Whether drivers and engines may be killed too. They must run on this host, as this user."""


def read_description(file: Path) -> ClusterDescription:
    """Read the file. Raises ChaosError with its problem."""
    try:
        data = yaml.safe_load(file.read_text(encoding="utf-8"))
        described = ClusterDescription.model_validate(data)
    except (OSError, yaml.YAMLError, ValidationError) as error:
        raise ChaosError(f"{file} does not describe a cluster: {error}") from error
    for node in described.nodes:
        unknown = set(node.commands) - {*_NODE_COMMANDS, *_LINE_COMMANDS}
        if unknown:
            known = ", ".join((*_NODE_COMMANDS, *_LINE_COMMANDS))
            raise ChaosError(
                f"{file}: node {node.name} has unknown commands: {sorted(unknown)}; valid commands are {known}"
            )
    if described.harm_processes and described.data_dir is None:
        raise ChaosError(f"{file}: harm-processes needs data-dir, to find drivers and engines")
    return described


class CommandLine:
    """A line that is cut and restored by commands."""

    def __init__(self, node: OwnNode, which: str) -> None:
        self._node = node
        self._which = which

    def cut(self) -> None:
        self._node.run(f"cut-{self._which}")

    def restore(self) -> None:
        self._node.run(f"restore-{self._which}")


class OwnNode:
    def __init__(self, described: NodeDescription, token: str) -> None:
        self._described = described
        self._token = token
        self._ended = False
        self.clients = CommandLine(self, "clients") if "cut-clients" in described.commands else None
        self.store = CommandLine(self, "store") if "cut-store" in described.commands else None

    @property
    def name(self) -> str:
        return self._described.name

    @property
    def address(self) -> str:
        return self._described.address.rstrip("/")

    @property
    def commands(self) -> Mapping[str, str]:
        return self._described.commands

    @property
    def pid(self) -> int | None:
        file = self._described.pid_file
        try:
            process = ProcessIdentity.of(int(file.read_text())) if file is not None else None
        except (OSError, ValueError):
            return None
        return None if process is None else process.pid

    @property
    def alive(self) -> bool:
        return not self._ended

    def start(self, *, command: Sequence[str] | None = None, environment: Mapping[str, str] | None = None) -> None:
        assert command is None
        assert environment is None
        if self._ended:
            self.run("start")
            self._ended = False

    def kill(self) -> None:
        self.run("kill")
        self._ended = True

    def terminate(self) -> None:
        self.run("terminate")
        self._ended = True

    def pause(self) -> None:
        self.run("pause")

    def resume(self) -> None:
        self.run("resume")

    def run(self, which: str) -> None:
        """Run a command. Raises CommandFailedError when it fails, as the node may then be in the wrong state."""
        command = self._described.commands[which]
        try:
            done = subprocess.run(
                ["/bin/sh", "-c", command], capture_output=True, text=True, timeout=COMMAND_SECONDS, check=False
            )
        except subprocess.TimeoutExpired:
            raise CommandFailedError(f"{which} of {self.name} took more than {COMMAND_SECONDS} s: {command}") from None
        if done.returncode != 0:
            said = (done.stdout + done.stderr).strip()[-500:]
            raise CommandFailedError(f"{which} of {self.name} ended with code {done.returncode}: {command}\n{said}")


class CommandFailedError(Exception):
    """A command of the user failed. This is not a ChaosError, after which a game continues."""


class OwnCluster:
    """Nodes that were started elsewhere. They run when the game begins, and must run when it ends."""

    def __init__(self, described: ClusterDescription) -> None:
        self.described = described
        try:
            self.token = described.token_file.read_text(encoding="utf-8").strip()
        except OSError as error:
            raise ChaosError(
                f"the token cannot be read: {error}; make one with `firesteel cluster token create`"
            ) from error
        self._nodes = [OwnNode(node, self.token) for node in described.nodes]
        self.lease = described.lease
        self.cluster_id = described.cluster_id
        self.ca = described.ca
        self.data_dir = described.data_dir or described.work_dir / "no-data-dir"
        self.abilities = frozenset(
            ability
            for ability, commands in _ABILITIES.items()
            if all(command in node.commands for node in self._nodes for command in commands)
        ) | ({"processes"} if described.harm_processes else set())

    @property
    def addresses(self) -> list[str]:
        return [node.address for node in self._nodes]

    def nodes(self) -> list[OwnNode]:
        return list(self._nodes)

    def sites(self) -> list[Site]:
        return [Site("", self.data_dir, self.cluster_id)]

    def client(self) -> ClusterClient:
        return ClusterClient(self.addresses, token=self.token, ca=self.ca)

    def close(self) -> None:
        for node in self._nodes:
            node.start()

    def __enter__(self) -> Self:
        if not any(ask_leader(address, self.token, self.ca) for address in self.addresses):
            raise ChaosError(
                f"no node reports a leader: {', '.join(self.addresses)}; start the cluster, and check the token"
            )
        return self

    def __exit__(self, *_: object) -> None:
        self.close()
