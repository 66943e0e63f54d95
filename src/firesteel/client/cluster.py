"""Clients of a cluster: they submit jobs, find them, and look at what the jobs run on."""

# ruff: noqa: ASYNC109 - the blocking twin has the same parameters, and no event loop that could interrupt it

from __future__ import annotations

import hashlib
import logging
from collections.abc import AsyncGenerator, Callable, Iterator, Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any

from firesteel.blob.keys import BlobKey, BlobRef
from firesteel.blob.names import acceptable_name
from firesteel.client.application import OF_THIS_PROCESS
from firesteel.client.caller import ClusterCaller
from firesteel.client.endpoints import Endpoints, Location, parse_addresses, stays_here
from firesteel.client.errors import DashboardNotServedError
from firesteel.client.events import JobEvent
from firesteel.client.handover import HAND_OVER_SECONDS, HandOver, hand_over
from firesteel.client.job import AsyncJobClient, JobClient
from firesteel.client.listening import follow
from firesteel.client.model import (
    Answer,
    ClusterOverview,
    ClusterStatus,
    EngineInfo,
    HistoryPage,
    Identity,
    JobSummary,
    Queue,
    WorkerSummary,
    WorkerToken,
)
from firesteel.client.operations import DISPOSAL, RemoteOperation, carry_out, outcome_of, trigger
from firesteel.client.requests import Request, as_json, get, segment, with_json
from firesteel.client.transport import CHUNK, AsyncTransport, BlockingTransport, Transport, iterate, run, settings_of
from firesteel.errors import (
    BlobNotFoundError,
    DuplicateJobError,
    InvalidRequestError,
    JobNotFoundError,
    Problem,
    WorkerNotFoundError,
    WorkerStateError,
)
from firesteel.types import JobID, new_job_id, parse_job_id

if TYPE_CHECKING:
    from firesteel.jobgraph import Job, JobGraph
    from firesteel.jobgraph.uploading import Uploads

logger = logging.getLogger(__name__)

TIMEOUT = 60.0
Rediscover = Callable[[], Location | None]


class AsyncClusterClient:
    """A cluster. Every call is repeated until a node answers, or `timeout` seconds have passed.

    Requests can be repeated: a job and an operation carry an id that is chosen here, so that a request whose answer was
    lost is sent again and still takes effect once. Redirects are not followed, and the token is sent to no address but
    the given ones.

    Args:
        addresses: nodes, as `http://host:port` or `https://host:port`; any of them will do, as each forwards to the leader.
        token: bearer token to send.
        tokens: instead, one token for each address, where each node has its own.
        ca: PEM file with the authorities that sign the nodes' certificates; by default those of this machine.
        certificate: PEM file with the client's own certificate and key.
        timeout: how long to keep trying when no node answers, in seconds.
        rediscover: returns the current nodes of a cluster whose addresses change; called when a node does not answer.
    """

    def __init__(
        self,
        addresses: Sequence[str] | str,
        *,
        token: str | None = None,
        tokens: Sequence[str | None] = (),
        ca: Path | None = None,
        certificate: Path | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float | None = None,
        rediscover: Rediscover | None = None,
    ) -> None:
        known = parse_addresses(addresses)
        transport = AsyncTransport(settings_of(known, ca=ca, certificate=certificate))
        self._caller = _caller(Location(known, token, tuple(tokens)), transport, timeout, rediscover, connect_timeout)

    @classmethod
    def _over(cls, caller: ClusterCaller) -> AsyncClusterClient:
        made = cls.__new__(cls)
        made._caller = caller
        return made

    async def __aenter__(self) -> AsyncClusterClient:
        return self

    async def __aexit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections. Jobs continue."""
        await self._caller.close()

    @property
    def addresses(self) -> tuple[str, ...]:
        """The known nodes, beginning with the one that answered last."""
        return self._caller.addresses

    # -- jobs -------------------------------------------------------------------------------------------------------

    async def submit(
        self,
        graph: JobGraph | Job | Mapping[str, Any],
        *,
        job_id: str | None = None,
        priority: int = 0,
        client_heartbeat_timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
        artifacts_from: Path | str | None = None,
        upload: bool = True,
    ) -> AsyncJobClient:
        """Upload the local files of a graph, and submit it. Returns once the job is durable.

        Args:
            graph: the job to run: a JobGraph, a Job, or the same as plain JSON.
            job_id: 32 hex digits; random by default, and derived in the program of an application. Submitting the same
                graph under the same id again is the same job.
            priority: jobs with a higher one get a slot first.
            client_heartbeat_timeout: the cluster cancels the job when `heartbeat` is not called for this many seconds.
            variables: values of the variables that a graph in plain JSON declares.
            artifacts_from: where relative paths of files that travel with the job start; by default the working
                directory.
            upload: False when the cluster is on this machine and may use the files where they are, which needs an admin.

        Raises:
            InvalidPipelineError: a file that the graph names does not exist.
            InvalidRequestError: the cluster does not accept the graph; holds a problem for each reason.
            DuplicateJobError: the id belongs to another job.
        """
        derived = OF_THIS_PROCESS.next_id(_name_of(graph)) if job_id is None else None
        chosen = parse_job_id(job_id) if job_id is not None else derived or new_job_id()
        written = await self._written(graph, artifacts_from, upload=upload)
        content: dict[str, Any] = {"jobId": chosen, "priority": priority}
        if client_heartbeat_timeout is not None:
            content["clientHeartbeatTimeout"] = round(client_heartbeat_timeout * 1000)
        if variables is not None:
            content["variables"] = dict(variables)
        try:
            accepted = await self._caller.json(
                with_json("POST", "/jobs", content, graph=written, conflict=DuplicateJobError)
            )
        except DuplicateJobError:
            if derived is None:
                raise
            return self.job(derived)  # of an earlier run of this program, which wrote it a little differently
        return self.job(Answer(accepted, "the answer to a submission").text("jobId"))

    async def resume(
        self,
        ended: str,
        graph: JobGraph | Job | Mapping[str, Any] | None = None,
        *,
        job_id: str | None = None,
        restore: Mapping[str, Any] | None = None,
        priority: int = 0,
        client_heartbeat_timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
        artifacts_from: Path | str | None = None,
        upload: bool = True,
    ) -> AsyncJobClient:
        """Start a new job that continues where the stream `ended` ended. May be repeated under the same `job_id`.

        Args:
            graph: a changed pipeline; by default that of the ended job.
            restore: fields of `settings.restore` except the path, such as `allow_non_restored_state`.

        The rest is as for `submit`. Raises JobStateError when nothing is kept of the job, or another goes on with it already.
        """
        chosen = parse_job_id(job_id) if job_id is not None else new_job_id()
        content: dict[str, Any] = {"jobId": chosen, "priority": priority, "restore": dict(restore or {})}
        written = None if graph is None else await self._written(graph, artifacts_from, upload=upload)
        if client_heartbeat_timeout is not None:
            content["clientHeartbeatTimeout"] = round(client_heartbeat_timeout * 1000)
        if variables is not None:
            content["variables"] = dict(variables)
        path = f"/jobs/{parse_job_id(ended)}/resume"
        accepted = await self._caller.json(with_json("POST", path, content, graph=written, missing=JobNotFoundError))
        return self.job(Answer(accepted, "the answer to a resumption").text("jobId"))

    def job(self, job_id: str) -> AsyncJobClient:
        """The job with this id. Sends no request; raises ValueError when it is not an id."""
        return AsyncJobClient(self._caller, parse_job_id(job_id))

    async def jobs(self) -> tuple[JobSummary, ...]:
        """All jobs that the caller may see, running and ended."""
        return JobSummary.all_of(await self._caller.json(get("/jobs/list")))

    async def history(self, limit: int = 100, before: int | None = None) -> HistoryPage:
        """Ended jobs, newest first, a page at a time; `before` is the `next` of the page before."""
        query = {"limit": str(limit)} | ({} if before is None else {"before": str(before)})
        return HistoryPage.of(await self._caller.json(get("/history", query)))

    async def queue(self) -> Queue:
        """Jobs that wait for a slot."""
        return Queue.of(await self._caller.json(get("/queue")))

    async def events(self) -> AsyncGenerator[JobEvent, None]:
        """State changes of all jobs that the caller may see, for as long as it listens.

        After the stream broke, a `lost` event comes first: `jobs()` shows the current states.
        """
        async for event in follow(self._caller, get("/events"), ends=False):
            yield event

    # -- files ------------------------------------------------------------------------------------------------------

    async def upload(self, source: Path | str | bytes, name: str | None = None) -> BlobRef:
        """Upload a file unless the cluster has it, and return the reference by which a graph names it.

        Args:
            source: path of the file, or its content.
            name: the name that a job sees; by default that of the file. Characters that are not allowed are replaced.
        """
        content = source if isinstance(source, bytes) else Path(source)
        if name is None:
            name = content.name if isinstance(content, Path) else "file"
        key = BlobKey(await self._caller.in_thread(lambda: _digest(content)))
        ref = BlobRef(key, acceptable_name(name))
        if not await self._has(key):
            headers = {"content-type": "application/octet-stream", "x-content-sha256": key}
            await self._caller.json(Request("POST", "/blobs", {}, content, headers))
        return ref

    async def upload_artifacts(self, graph: JobGraph, *, base: Path | None = None) -> JobGraph:
        """Upload the local files of a graph, and return it with their references. `submit` does this by itself."""
        from firesteel.jobgraph.files import files_of, with_files
        from firesteel.jobgraph.uploading import upload_files

        uploaded = await upload_files(self._uploads, files_of(graph), base=base)
        return with_files(graph, uploaded.places, uploaded.modules)

    async def _written(
        self, graph: JobGraph | Job | Mapping[str, Any], artifacts_from: Path | str | None, *, upload: bool
    ) -> bytes:
        """Upload the local files of a graph, and return it as it is sent."""
        base = Path(artifacts_from) if artifacts_from is not None else None
        if not isinstance(graph, Mapping):
            from firesteel.jobgraph import Job

            made = graph.graph() if isinstance(graph, Job) else graph
            return (await self.upload_artifacts(made, base=base) if upload else made).canonical
        if upload:
            from firesteel.jobgraph.files import files_in, with_files_in
            from firesteel.jobgraph.uploading import upload_files

            uploaded = await upload_files(self._uploads, files_in(dict(graph)), base=base)
            graph = with_files_in(graph, uploaded.places, uploaded.modules)
        return as_json(dict(graph))

    @property
    def _uploads(self) -> Uploads:
        from firesteel.jobgraph.uploading import Uploads

        return Uploads(self.upload, self._caller.in_thread)

    async def _has(self, key: BlobKey) -> bool:
        try:
            await self._caller.call(get(f"/blobs/{key}/info", missing=BlobNotFoundError))
        except BlobNotFoundError:
            return False
        return True

    # -- the cluster ------------------------------------------------------------------------------------------------

    async def overview(self) -> ClusterOverview:
        return ClusterOverview.of(await self._caller.json(get("/overview")))

    async def engines(self) -> tuple[EngineInfo, ...]:
        """The Spark applications that jobs run on."""
        return EngineInfo.all_of(await self._caller.json(get("/engines")))

    async def workers(self) -> tuple[WorkerSummary, ...]:
        """The hosts that jobs run on, by name."""
        return WorkerSummary.all_of(await self._caller.json(get("/workers")))

    async def worker(self, worker: str) -> WorkerSummary:
        """One worker, by id or name. Raises WorkerNotFoundError."""
        return WorkerSummary.of(await self._caller.json(_of_worker("GET", worker)))

    async def worker_token(self, name: str = "", *, lifetime: float = 3600.0) -> WorkerToken:
        """A new token with which one worker may join: one that is called `name`, if given. For admins.

        If the answer was lost and the request is repeated, there are two tokens; the one that nobody was shown expires.
        """
        wish = {"name": name, "expires": lifetime}
        return WorkerToken.of(await self._caller.json(with_json("POST", "/workers/tokens", wish)))

    async def join_worker(self, worker: str, secret: str, *, name: str, host: str = "") -> str:
        """Join the cluster as a worker, with a join token as the token of this client. Returns the name of the worker.

        Args:
            worker: its id, `w` and 16 hex digits, drawn once and kept.
            secret: 64 hex digits, drawn by the worker and kept before this is called; the cluster gets its hash. So a join
                whose answer was lost is the same join when it is repeated.

        Raises ForbiddenError for a token that has expired or was used, WorkerStateError when another worker has the name.
        """
        digest = hashlib.sha256(secret.encode()).hexdigest()
        wish = {"id": worker, "name": name, "secretSha256": digest, "host": host}
        request = with_json("POST", "/workers/join", wish, conflict=WorkerStateError)
        return Answer(await self._caller.json(request), "the answer to a join").text("name")

    async def drain_worker(self, worker: str) -> WorkerSummary:
        """Let a worker get no new jobs; what runs there runs to its end. For admins."""
        return WorkerSummary.of(await self._caller.json(_of_worker("POST", worker, "/drain")))

    async def undrain_worker(self, worker: str) -> WorkerSummary:
        """Let a worker get jobs again. For admins."""
        return WorkerSummary.of(await self._caller.json(_of_worker("POST", worker, "/undrain")))

    async def declare_worker_lost(self, worker: str) -> WorkerSummary:
        """Say that nothing on the host of a worker runs any more: its jobs start again elsewhere. For admins who know it.

        Raises WorkerStateError for a worker that is connected.
        """
        return WorkerSummary.of(await self._caller.json(_of_worker("POST", worker, "/lost")))

    async def revoke_worker(self, worker: str) -> None:
        """Let a worker in no more. What runs there is not ended by this. For admins."""
        await self._caller.call(_of_worker("DELETE", worker))

    async def whoami(self) -> Identity:
        """The identity of this client, as the cluster sees it."""
        return Identity.of(await self._caller.json(get("/whoami")))

    async def cluster_status(self) -> ClusterStatus:
        """The leader, and what the node that answers says about itself."""
        return ClusterStatus.of(await self._caller.json(get("/cluster/status")))

    async def shut_down(self) -> None:
        """End the leader. Running jobs continue; another node of the cluster leads next, if there is one.

        The request is not repeated once it may have arrived, as it would end the next leader too. Raises ClusterError
        when no answer came.
        """
        await self._caller.call(Request("DELETE", "/cluster", once=True))

    async def hand_over(self, *, force: bool = False, timeout: float = HAND_OVER_SECONDS) -> HandOver:
        """Hand leadership over to another node, and wait until one leads. Running jobs are not affected.

        Args:
            force: proceed even when there is no other node.
            timeout: how long to wait in all, in seconds.

        Raises ClusterError when there is no other node, or none took over: then the same node leads again.
        """
        return await hand_over(self._caller, force=force, patience=timeout)

    async def dashboard_link(self) -> str:
        """A link that lets one browser into the dashboard of the node that answers, as this caller, within a minute.

        Raises DashboardNotServedError.
        """
        made: Any = await self._caller.json(with_json("POST", "/dashboard/links", {}, missing=DashboardNotServedError))
        return str(made["link"])

    async def trigger(
        self,
        operation: RemoteOperation,
        wish: Mapping[str, Any],
        *,
        job_id: JobID | None = None,
        trigger_id: str | None = None,
    ) -> str:
        """Begin an operation (`client.operations`), and return the id under which to ask for it. Does not wait."""
        return await trigger(self._caller, job_id, operation, wish, trigger_id)

    async def outcome(
        self, operation: RemoteOperation, trigger_id: str, *, job_id: JobID | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """Wait for the end of an operation that was triggered, here or elsewhere."""
        return await outcome_of(self._caller, job_id, operation, trigger_id, patience=timeout)

    async def dispose_savepoint(self, path: str, *, timeout: float | None = None) -> None:
        """Delete a savepoint. Raises SavepointError."""
        await carry_out(self._caller, None, DISPOSAL, {"savepoint-path": path}, patience=timeout)


def _name_of(graph: JobGraph | Job | Mapping[str, Any]) -> str:
    if isinstance(graph, Mapping):
        return str(graph.get("name", ""))
    from firesteel.jobgraph import Job

    return graph.graph().name if isinstance(graph, Job) else graph.name


class ClusterClient:
    """A cluster. The blocking twin of AsyncClusterClient; several threads may share one.

    with ClusterClient("http://127.0.0.1:8081", token=token) as cluster:
        job = cluster.submit(graph)
        job.result()
    """

    def __init__(
        self,
        addresses: Sequence[str] | str,
        *,
        token: str | None = None,
        tokens: Sequence[str | None] = (),
        ca: Path | None = None,
        certificate: Path | None = None,
        timeout: float = TIMEOUT,
        connect_timeout: float | None = None,
        rediscover: Rediscover | None = None,
    ) -> None:
        known = parse_addresses(addresses)
        transport = BlockingTransport(settings_of(known, ca=ca, certificate=certificate))
        self._cluster = AsyncClusterClient._over(
            _caller(Location(known, token, tuple(tokens)), transport, timeout, rediscover, connect_timeout)
        )

    def __enter__(self) -> ClusterClient:
        return self

    def __exit__(
        self, _type: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections. Jobs continue."""
        run(self._cluster.close())

    @property
    def addresses(self) -> tuple[str, ...]:
        """The known nodes, beginning with the one that answered last."""
        return self._cluster.addresses

    def submit(
        self,
        graph: JobGraph | Job | Mapping[str, Any],
        *,
        job_id: str | None = None,
        priority: int = 0,
        client_heartbeat_timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
        artifacts_from: Path | str | None = None,
        upload: bool = True,
    ) -> JobClient:
        """See AsyncClusterClient.submit."""
        submitted = self._cluster.submit(
            graph,
            job_id=job_id,
            priority=priority,
            client_heartbeat_timeout=client_heartbeat_timeout,
            variables=variables,
            artifacts_from=artifacts_from,
            upload=upload,
        )
        return JobClient(run(submitted))

    def resume(
        self,
        ended: str,
        graph: JobGraph | Job | Mapping[str, Any] | None = None,
        *,
        job_id: str | None = None,
        restore: Mapping[str, Any] | None = None,
        priority: int = 0,
        client_heartbeat_timeout: float | None = None,
        variables: Mapping[str, str] | None = None,
        artifacts_from: Path | str | None = None,
        upload: bool = True,
    ) -> JobClient:
        """See AsyncClusterClient.resume."""
        resumed = self._cluster.resume(
            ended,
            graph,
            job_id=job_id,
            restore=restore,
            priority=priority,
            client_heartbeat_timeout=client_heartbeat_timeout,
            variables=variables,
            artifacts_from=artifacts_from,
            upload=upload,
        )
        return JobClient(run(resumed))

    def job(self, job_id: str) -> JobClient:
        """See AsyncClusterClient.job."""
        return JobClient(self._cluster.job(job_id))

    def jobs(self) -> tuple[JobSummary, ...]:
        """See AsyncClusterClient.jobs."""
        return run(self._cluster.jobs())

    def history(self, limit: int = 100, before: int | None = None) -> HistoryPage:
        """See AsyncClusterClient.history."""
        return run(self._cluster.history(limit, before))

    def queue(self) -> Queue:
        """See AsyncClusterClient.queue."""
        return run(self._cluster.queue())

    def events(self) -> Iterator[JobEvent]:
        """See AsyncClusterClient.events."""
        return iterate(self._cluster.events())

    def upload(self, source: Path | str | bytes, name: str | None = None) -> BlobRef:
        """See AsyncClusterClient.upload."""
        return run(self._cluster.upload(source, name))

    def upload_artifacts(self, graph: JobGraph, *, base: Path | None = None) -> JobGraph:
        """See AsyncClusterClient.upload_artifacts."""
        return run(self._cluster.upload_artifacts(graph, base=base))

    def overview(self) -> ClusterOverview:
        return run(self._cluster.overview())

    def engines(self) -> tuple[EngineInfo, ...]:
        """See AsyncClusterClient.engines."""
        return run(self._cluster.engines())

    def workers(self) -> tuple[WorkerSummary, ...]:
        """See AsyncClusterClient.workers."""
        return run(self._cluster.workers())

    def worker(self, worker: str) -> WorkerSummary:
        """See AsyncClusterClient.worker."""
        return run(self._cluster.worker(worker))

    def worker_token(self, name: str = "", *, lifetime: float = 3600.0) -> WorkerToken:
        """See AsyncClusterClient.worker_token."""
        return run(self._cluster.worker_token(name, lifetime=lifetime))

    def join_worker(self, worker: str, secret: str, *, name: str, host: str = "") -> str:
        """See AsyncClusterClient.join_worker."""
        return run(self._cluster.join_worker(worker, secret, name=name, host=host))

    def drain_worker(self, worker: str) -> WorkerSummary:
        """See AsyncClusterClient.drain_worker."""
        return run(self._cluster.drain_worker(worker))

    def undrain_worker(self, worker: str) -> WorkerSummary:
        """See AsyncClusterClient.undrain_worker."""
        return run(self._cluster.undrain_worker(worker))

    def declare_worker_lost(self, worker: str) -> WorkerSummary:
        """See AsyncClusterClient.declare_worker_lost."""
        return run(self._cluster.declare_worker_lost(worker))

    def revoke_worker(self, worker: str) -> None:
        """See AsyncClusterClient.revoke_worker."""
        run(self._cluster.revoke_worker(worker))

    def whoami(self) -> Identity:
        """See AsyncClusterClient.whoami."""
        return run(self._cluster.whoami())

    def cluster_status(self) -> ClusterStatus:
        """See AsyncClusterClient.cluster_status."""
        return run(self._cluster.cluster_status())

    def shut_down(self) -> None:
        """See AsyncClusterClient.shut_down."""
        run(self._cluster.shut_down())

    def hand_over(self, *, force: bool = False, timeout: float = HAND_OVER_SECONDS) -> HandOver:
        """See AsyncClusterClient.hand_over."""
        return run(self._cluster.hand_over(force=force, timeout=timeout))

    def dashboard_link(self) -> str:
        """See AsyncClusterClient.dashboard_link."""
        return run(self._cluster.dashboard_link())

    def trigger(
        self,
        operation: RemoteOperation,
        wish: Mapping[str, Any],
        *,
        job_id: JobID | None = None,
        trigger_id: str | None = None,
    ) -> str:
        """See AsyncClusterClient.trigger."""
        return run(self._cluster.trigger(operation, wish, job_id=job_id, trigger_id=trigger_id))

    def outcome(
        self, operation: RemoteOperation, trigger_id: str, *, job_id: JobID | None = None, timeout: float | None = None
    ) -> dict[str, Any]:
        """See AsyncClusterClient.outcome."""
        return run(self._cluster.outcome(operation, trigger_id, job_id=job_id, timeout=timeout))

    def dispose_savepoint(self, path: str, *, timeout: float | None = None) -> None:
        """See AsyncClusterClient.dispose_savepoint."""
        run(self._cluster.dispose_savepoint(path, timeout=timeout))


def _caller(
    location: Location,
    transport: Transport,
    timeout: float,
    rediscover: Rediscover | None,
    connect_timeout: float | None,
) -> ClusterCaller:
    for address in location.addresses:
        if location.token_for(address) is not None and address.startswith("http:") and not stays_here(address):
            logger.warning("the token is sent to %s in plain text; use https", address)
    return ClusterCaller(Endpoints(location, rediscover), transport, timeout, connect_timeout)


def _of_worker(method: str, worker: str, below: str = "") -> Request:
    path = f"/workers/{segment(worker)}{below}"
    return Request(method, path, missing=WorkerNotFoundError, conflict=WorkerStateError)


def _digest(content: bytes | Path) -> str:
    if isinstance(content, bytes):
        return hashlib.sha256(content).hexdigest()
    digest = hashlib.sha256()
    try:
        with content.open("rb") as file:
            while data := file.read(CHUNK):
                digest.update(data)
    except OSError as error:
        raise InvalidRequestError([Problem(f"cannot read '{content}': {error.strerror}", "check the path")]) from None
    return digest.hexdigest()
