"""One real node of a cluster, asked over its standard input and answering on its standard output, a JSON object a line.

It stands in for a client's door; everything behind it is the product.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
from typing import Any

from firesteel.config import load_configuration
from firesteel.dispatcher.dispatcher import Dispatcher
from firesteel.entrypoint.cluster_entrypoint import ClusterEntrypoint
from firesteel.entrypoint.component import DispatcherResourceManagerComponent
from firesteel.errors import FiresteelError, NotLeadingError
from firesteel.hosts import this_user
from firesteel.jobgraph.admission import digest_of
from firesteel.jobgraph.model import JobGraph
from firesteel.records import to_json
from firesteel.stores.job_graphs import Submission
from firesteel.types import JobID


async def answer(dispatcher: Dispatcher, call: str, a: dict[str, Any]) -> Any:
    match call:
        case "submit":
            graph = JobGraph.model_validate(a["graph"])
            submission = Submission(
                JobID(a["job_id"]), graph, a["at"], digest_of(graph), owner=this_user(), priority=a.get("priority", 0)
            )
            await dispatcher.submit_job(submission)
            return None
        case "list":
            return [
                {"job_id": j.job_id, "status": j.status.value, "attempt": j.attempt, "restarts": j.restarts}
                for j in await dispatcher.list_jobs()
            ]
        case "job":
            return await dispatcher.request_job(JobID(a["job_id"]))
        case "status":
            return (await dispatcher.request_job_status(JobID(a["job_id"]))).value
        case "result":
            result = await dispatcher.request_job_result(JobID(a["job_id"]))
            return {**to_json(result), "dirty": dispatcher._services.results.is_dirty(result.job_id)}
        case "cancel":
            await dispatcher.cancel_job(JobID(a["job_id"]))
            return None
        case "stop":
            await dispatcher.stop_job(JobID(a["job_id"]), a["trigger"])
            return None
        case "checkpoint":
            await dispatcher.trigger_checkpoint(JobID(a["job_id"]), a["trigger"])
            return None
        case "operation":
            return to_json(await dispatcher.request_operation(JobID(a["job_id"]), a["trigger"]))
        case "heartbeat":
            await dispatcher.report_client_heartbeat(JobID(a["job_id"]))
            return None
        case "overview":
            overview = await dispatcher.request_cluster_overview()
            return {
                "engines": [e.engine_id for e in overview.resources.engines],
                "waiting": overview.resources.waiting,
                "rss_kb": _rss_kb(),
            }
    raise ValueError(call)


def _rss_kb() -> int:
    with open("/proc/self/statm") as f:
        return int(f.read().split()[1]) * (os.sysconf("SC_PAGE_SIZE") // 1024)


async def handle(component: DispatcherResourceManagerComponent, line: str) -> None:
    request = json.loads(line)
    try:
        value = await answer(component.dispatcher, request["call"], request.get("args", {}))
        reply = {"id": request["id"], "value": value}
    except NotLeadingError as error:
        reply = {"id": request["id"], "not_leading": str(error)}
    except FiresteelError as error:
        reply = {"id": request["id"], "error": type(error).__name__, "message": str(error)}
    sys.stdout.write(json.dumps(reply) + "\n")
    sys.stdout.flush()


async def main(definitions: list[str]) -> int:
    configuration = load_configuration(overrides=dict(d.partition("=")[::2] for d in definitions))
    entrypoint = ClusterEntrypoint(configuration)
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(reader), sys.stdin)
    tasks: set[asyncio.Task[None]] = set()
    async with entrypoint.open() as component:
        while line := (await reader.readline()).decode():
            task = loop.create_task(handle(component, line))
            tasks.add(task)
            task.add_done_callback(tasks.discard)
    return 0


if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(name)s: %(message)s", stream=sys.stderr)
    sys.exit(asyncio.run(main(sys.argv[1:])))
