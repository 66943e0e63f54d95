"""Column lineage, found in a process of its own: the queries are text of callers, and a parser may take long over them."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os
import sys
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

logger = logging.getLogger(__name__)

SECONDS = 20.0
_KEPT = 256


class ColumnProcess:
    """One process at a time; what was found is kept for graphs that come again."""

    def __init__(self, seconds: float = SECONDS) -> None:
        self._seconds = seconds
        self._found: OrderedDict[bytes, dict[str, Any]] = OrderedDict()
        self._one = asyncio.Lock()

    async def columns(self, vertices: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        """By sink, as `columns.column_lineage` finds them; empty when they cannot be known."""
        kinds = {v.get("kind") for v in vertices}
        if not {"source", "sink"} <= kinds:
            return {}
        raw = json.dumps(list(vertices)).encode()
        async with self._one:
            known = self._found.get(raw)
            if known is None:
                known = self._found[raw] = await self._run(raw)
                while len(self._found) > _KEPT:
                    self._found.popitem(last=False)
        return known

    async def _run(self, raw: bytes) -> dict[str, Any]:
        environment = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL")}
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-P", "-m", "firesteel.lineage.columns",
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.DEVNULL,
            env=environment,
        )  # fmt: skip
        try:
            async with asyncio.timeout(self._seconds):
                out, _ = await process.communicate(raw)
            found = json.loads(out) if process.returncode == 0 else {}
        except (TimeoutError, ValueError, OSError) as error:
            logger.info("column lineage was not found: %s", str(error) or "it took too long")
            return {}
        finally:
            if process.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    process.kill()
                await process.wait()
        return found if isinstance(found, dict) else {}
