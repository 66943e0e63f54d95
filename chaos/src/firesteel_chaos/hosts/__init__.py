"""Hosts of our own making on one machine: network namespaces on a bridge, each with a name, an address and files of its own.

links       bridges, links and namespaces, made and removed by `ip`
network     the bridge, the addresses, and who hears whom
host        one host: its processes, and how it dies, stands still and comes back
init        what runs as the first process of a host

It needs Linux, root, and the commands `ip`, `unshare`, `nsenter` and `mount`.
"""

from __future__ import annotations

from firesteel_chaos.hosts.host import HostProcess, StagedHost
from firesteel_chaos.hosts.links import Direction
from firesteel_chaos.hosts.network import HostNetwork, missing

__all__ = ["Direction", "HostNetwork", "HostProcess", "StagedHost", "missing"]
