"""Asking a node of this machine for the token of its owner. The node checks the asking process, not what it sends."""

from __future__ import annotations

import os
import socket

from firesteel.processes import user_behind

SECONDS = 2.0
"""For a paused node the kernel accepts connections, but no answer comes; then other nodes are asked."""
MAX_TOKEN = 4096


def ask_for_token(address: str) -> str | None:
    """The token that the node at `address` (see `LocalCluster.socket`) hands to its own user.

    None when it hands out none: it is gone, it runs under another user or in another network namespace, or another
    process has taken its name. A caller then needs a token of its own.
    """
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as line:
        line.settimeout(SECONDS)
        try:
            line.connect(f"\0{address[1:]}" if address.startswith("@") else address)
            if user_behind(line) not in (os.geteuid(), None):
                return None  # another process has taken the name of a node that is gone
            token = b""
            while len(token) < MAX_TOKEN and (part := line.recv(MAX_TOKEN)):
                token += part
        except OSError:
            return None
    try:
        return token.decode("ascii") or None
    except UnicodeDecodeError:
        return None
