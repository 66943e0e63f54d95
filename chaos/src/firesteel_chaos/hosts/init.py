"""The first process of a host: makes the host's view of the world, then waits for the end. Only the standard library.

    python init.py '{"hostname": ..., "mounts": [[source, target], ...], "hidden": [directory, ...]}'

It writes a line when the host is up. When its standard input ends, so does it, and with it everything on the host: the
kernel kills what is left of a pid namespace. So a test that is killed leaves no process behind.
"""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys


def main() -> None:
    wish = json.loads(sys.argv[1])
    socket.sethostname(wish["hostname"])
    _mount("-t", "proc", "proc", "/proc")
    for source, target in wish["mounts"]:
        _mount("--bind", source, target)
    for directory in wish["hidden"]:
        _mount("-t", "tmpfs", "-o", "size=1m,mode=755", "tmpfs", directory)
    # Orphans of the host are children of this process; ignored, they leave no zombies.
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)
    sys.stdout.write("up\n")
    sys.stdout.flush()
    sys.stdin.read()


def _mount(*arguments: str) -> None:
    subprocess.run(["mount", *arguments], check=True)


if __name__ == "__main__":
    main()
