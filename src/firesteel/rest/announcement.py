"""Where clients of the same user find this machine's node, and the token of its owner: a file that only the owner can read.

Several nodes of one cluster may run on a machine. The last one that came is announced; when it is gone, another one of them is.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from pathlib import Path
from typing import Any

from firesteel.files import read_json, write_json
from firesteel.processes import ProcessIdentity

logger = logging.getLogger(__name__)

LOCAL_FILE = "rest.json"
"""In the cluster's directory."""
LOOK_SECONDS = 2.0


class Announcement:
    def __init__(self, directory: Path, content: dict[str, Any]) -> None:
        me = ProcessIdentity.of(os.getpid())
        assert me is not None
        self._file = directory / LOCAL_FILE
        self._content = {**content, "pid": me.pid, "started": me.started}
        self._over = False

    def write(self) -> None:
        write_json(self._file, self._content, durable=False)

    async def keep(self) -> None:
        """Stand in for another node that was announced and is gone."""
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if self._over:
                return
            try:
                if await asyncio.to_thread(self._is_nobodys):
                    await asyncio.to_thread(self.write)
            except OSError as error:
                logger.warning("this node cannot be announced in %s: %s", self._file, error)

    def take_back(self) -> None:
        """This node ends: whoever looks for one from now on wakes up another."""
        self._over = True
        with contextlib.suppress(OSError, ValueError):
            if (read_json(self._file) or {}).get("pid") == self._content["pid"]:
                self._file.unlink()

    def _is_nobodys(self) -> bool:
        try:
            said = read_json(self._file)
            return said is None or not ProcessIdentity(said["pid"], said["started"]).alive
        except (ValueError, KeyError, TypeError):
            return True
