"""A Spark Connect session on an engine: the one place that touches PySpark's private corners.

PySpark's public API draws its own operation ids and gives results away as it reads them. A control plane needs the
opposite: ids that can be derived, and results that stay on the engine until they are recorded. The protocol offers both
openly; only the Python client keeps them private, so each such use stands here, pinned to one Spark minor version.
"""

from __future__ import annotations

import contextlib
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

# Without it DDL strings and functions look for a classic SparkContext.
os.environ.setdefault("SPARK_CONNECT_MODE_ENABLED", "1")

import grpc
import pyspark.sql.connect.proto as pb
from pyspark.sql.connect.client.retries import DefaultPolicy
from pyspark.sql.connect.dataframe import DataFrame
from pyspark.sql.connect.plan import SQL, SubqueryAlias
from pyspark.sql.connect.session import SparkSession

from firesteel.spark_connect.operation import OperationProgress, OperationResult, Outcome, StageProgress, error_class

_TRANSIENT = (grpc.StatusCode.UNAVAILABLE, grpc.StatusCode.DEADLINE_EXCEEDED, grpc.StatusCode.CANCELLED)
_SUCCEEDED = pb.GetStatusResponse.OperationStatus.OperationState.OPERATION_STATE_SUCCEEDED
_RUNNING = pb.GetStatusResponse.OperationStatus.OperationState.OPERATION_STATE_RUNNING

RELEASE_SECONDS = 1.5

RECONNECT_SECONDS = 20.0
"""How long an engine may be out of reach before we call it lost. PySpark's own patience is ten minutes."""


def quiet_client_logs() -> None:
    """PySpark prints each server error, with its JVM stack, to stderr before it raises it."""
    for name in ("SQLQueryContextLogger", "DataFrameQueryContextLogger", "pyspark.sql.connect.client.logging"):
        logging.getLogger(name).setLevel(logging.CRITICAL + 1)


class EngineSession:
    """One Spark session under an id of our choosing."""

    def __init__(self, remote: str) -> None:
        self.spark: Any = SparkSession.builder.remote(remote).create()
        self.client: Any = self.spark.client
        self.client.set_retry_policies([DefaultPolicy(max_retries=8, max_backoff=5000)])

    def begin_as_copy(self, model: str, settings: Mapping[str, str]) -> bool:
        """Before anything else: begin with all that the session `model` has. It is made, with these settings, if need be.

        False when that was not possible; the session then begins with the first thing that is asked of it. One that was ended
        before it began stays ended: Spark refuses to copy to it as well.
        """
        for _ in range(2):
            try:
                self.client._stub.CloneSession(
                    pb.CloneSessionRequest(
                        session_id=model, new_session_id=self.client._session_id, user_context=self._user()
                    ),
                    metadata=self.client._builder.metadata(),
                )
                return True
            except grpc.RpcError as error:
                if error_class(error.details() or "") != "INVALID_HANDLE.SESSION_NOT_FOUND":
                    return False
            with contextlib.suppress(grpc.RpcError):
                self.client._stub.Config(
                    pb.ConfigRequest(session_id=model, user_context=self._user(), operation=_setting(settings)),
                    metadata=self.client._builder.metadata(),
                )
        return False

    def begin(self) -> None:
        """Make the session on the engine, which else happens with the first thing that is asked of it."""
        _ = self.spark.version

    # -- building plans -------------------------------------------------------------------------------------------

    def sql(self, query: str, inputs: Mapping[str, Any]) -> Any:
        """A lazy DataFrame for `query`, which sees `inputs` as tables. No round trip.

        The server makes each input a temporary view while it analyses the query and drops it afterwards. So the
        order of `inputs` matters where one is part of another's plan: that other one goes first.
        """
        views = [SubqueryAlias(frame._plan, name) for name, frame in inputs.items()]
        return DataFrame(SQL(query, [], {}, views), self.spark)

    def write_command(self, writer: Any, *, path: str | None = None, table: str | None = None) -> Any:
        """The protocol command of a DataFrameWriter, unexecuted."""
        operation = writer._write
        if table is not None:
            operation.table_name, operation.table_save_method = table, "save_as_table"
        else:
            operation.path = path
        return operation.command(self.client)

    def sql_command(self, query: str) -> Any:
        return SQL(query, [], {}, []).command(self.client)

    def configure(self, settings: Mapping[str, str]) -> None:
        """Set many session settings in one round trip."""
        if settings:
            self.client.config(_setting(settings))

    # -- running operations ---------------------------------------------------------------------------------------

    def execute(
        self, command: Any, operation_id: str, on_progress: Callable[[OperationProgress], None] = lambda _: None
    ) -> OperationResult:
        """Run a command under `operation_id` and follow it to its end. Raises what Spark raised.

        Sending an id again never runs it again: Spark refuses an id that it has seen, and we follow what is there.
        Nothing is released here, so that a follower can take over at any time; see `release`.
        """
        request = self.client._execute_plan_request_with_metadata(operation_id=operation_id)
        request.plan.command.CopyFrom(command)
        request.request_options.append(
            pb.ExecutePlanRequest.RequestOption(reattach_options=pb.ReattachOptions(reattachable=True))
        )
        result = OperationResult(operation_id)
        stream = self.client._stub.ExecutePlan(request, metadata=self.client._builder.metadata())
        lost_since: float | None = None
        while True:
            try:
                for response in stream:
                    lost_since = None
                    if self._take(response, result, on_progress):
                        return result
                # The server ends a long stream on purpose after a while; the operation goes on.
                stream = self._reattach(result)
            except grpc.RpcError as error:
                kind = error_class(error.details() or "")
                if kind == "INVALID_HANDLE.OPERATION_ALREADY_EXISTS":
                    stream = self._reattach(result)
                elif kind in ("INVALID_HANDLE.OPERATION_ABANDONED", "INVALID_CURSOR.POSITION_NOT_AVAILABLE"):
                    if self._settled(operation_id):
                        return result
                    self.client._handle_error(error)
                elif error.code() in _TRANSIENT and not kind:
                    lost_since = lost_since or time.monotonic()
                    if time.monotonic() - lost_since > RECONNECT_SECONDS:
                        self.client._handle_error(error)
                    time.sleep(0.2)
                    stream = self._reattach(result)
                else:
                    self.client._handle_error(error)

    def _take(self, response: Any, result: OperationResult, on_progress: Callable[[OperationProgress], None]) -> bool:
        result.last_response_id = response.response_id
        for observed in response.observed_metrics:
            result.observed[observed.name] = {
                k: _literal(v) for k, v in zip(observed.keys, observed.values, strict=False)
            }
        match response.WhichOneof("response_type"):
            case "execution_progress":
                stages = tuple(
                    StageProgress(s.stage_id, s.num_tasks, s.num_completed_tasks, s.input_bytes_read, s.done)
                    for s in response.execution_progress.stages
                )
                on_progress(OperationProgress(stages, response.execution_progress.num_inflight_tasks))
            case "result_complete":
                return True
        return False

    def _reattach(self, result: OperationResult) -> Iterator[Any]:
        request = pb.ReattachExecuteRequest(
            session_id=self.client._session_id,
            user_context=self._user(),
            operation_id=result.operation_id,
        )
        if result.last_response_id:
            request.last_response_id = result.last_response_id
        stream: Iterator[Any] = self.client._stub.ReattachExecute(request, metadata=self.client._builder.metadata())
        return stream

    def _settled(self, operation_id: str) -> bool:
        """Wait for an operation that we can no longer read to end; True when it succeeded."""
        while (state := self.status([operation_id])[0]) == Outcome.RUNNING:
            time.sleep(0.2)
        return state == Outcome.SUCCEEDED

    def status(self, operation_ids: Sequence[str]) -> list[Outcome]:
        """What the engine knows of these operations, in their order."""
        answer = self.client._stub.GetStatus(
            pb.GetStatusRequest(
                session_id=self.client._session_id,
                user_context=self._user(),
                operation_status=pb.GetStatusRequest.OperationStatusRequest(operation_ids=operation_ids),
            ),
            metadata=self.client._builder.metadata(),
        )
        found = _outcomes(answer)
        return [found.get(o, Outcome.UNKNOWN) for o in operation_ids]

    def operations(self) -> dict[str, Outcome]:
        """The operations that were run in this session by any client, as far as the engine remembers. This call adds
        none."""
        request = pb.GetStatusRequest(
            session_id=self.client._session_id,
            user_context=self._user(),
            operation_status=pb.GetStatusRequest.OperationStatusRequest(),
        )
        answer = self.client._stub.GetStatus(request, metadata=self.client._builder.metadata())
        return _outcomes(answer)

    def streams(self) -> bool:
        """Whether streaming queries run in it. Asking is an operation of its own."""
        return bool(self.spark.streams.active)

    def _user(self) -> Any:
        return pb.UserContext(user_id=self.client._user_id)

    def interrupt(self) -> None:
        """Stop everything that runs in this session."""
        with contextlib.suppress(Exception):
            self.client.interrupt_all()

    def release(self) -> None:
        """When this returns, the engine has confirmed that the session has ended and its id can never be used again."""
        deadline = time.monotonic() + RELEASE_SECONDS
        while True:
            try:
                self.client.release_session()
                return
            except Exception:
                # Spark refuses while an operation is between two of its states, which it is after an interrupt.
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.1)

    def close(self) -> None:
        """Release the session: its work is interrupted and its id can never be used again."""
        with contextlib.suppress(Exception):
            self.client.release_session()
        with contextlib.suppress(Exception):
            self.client.close()


def _setting(settings: Mapping[str, str]) -> Any:
    pairs = [pb.KeyValue(key=k, value=v) for k, v in settings.items()]
    return pb.ConfigRequest.Operation(set=pb.ConfigRequest.Set(pairs=pairs))


def _outcomes(answer: Any) -> dict[str, Outcome]:
    names = pb.GetStatusResponse.OperationStatus.OperationState.Name
    return {s.operation_id: Outcome(names(s.state).removeprefix("OPERATION_STATE_")) for s in answer.operation_statuses}


def _literal(value: Any) -> Any:
    kind = value.WhichOneof("literal_type")
    return getattr(value, kind) if kind and kind != "null" else None
