"""The network that tests break is the one that the chaos harness breaks."""

from firesteel_chaos.network import BOTH, TO_CLIENT, TO_SERVER, TcpProxy

__all__ = ["BOTH", "TO_CLIENT", "TO_SERVER", "TcpProxy"]
