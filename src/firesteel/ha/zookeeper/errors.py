"""What ZooKeeper's errors mean to us."""

from __future__ import annotations

from kazoo import exceptions as kazoo  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]

from firesteel.errors import StoreBrokenError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.zookeeper import client

ABOUT_A_NODE = (kazoo.NoNodeError, kazoo.NodeExistsError, kazoo.BadVersionError, kazoo.NotEmptyError)
"""Answers that say something of the node that was asked about; what, only the caller knows."""

_IN_PASSING = (
    kazoo.ConnectionLoss,
    kazoo.ConnectionClosedError,
    kazoo.ConnectionDropped,
    kazoo.OperationTimeoutError,
    kazoo.SessionExpiredError,
    kazoo.SessionMovedError,
    kazoo.NotReadOnlyCallError,
    KazooTimeoutError,
    client.RequestTimeoutError,
    client.ThrottledError,
)
_UNAUTHENTICATED = (kazoo.AuthFailedError, kazoo.SASLException, client.SaslRequiredError)
_FORBIDDEN = (kazoo.NoAuthError, kazoo.InvalidACLError)

CREDENTIALS = "high-availability.zookeeper.client.auth or sasl.*"


def translated(error: BaseException, where: str) -> StoreError:
    """The error to raise in the place of one of kazoo's that is not about a node.

    Args:
        where: `ZooKeeper at host:port`.
    """
    said = f"{type(error).__name__}: {error}".removesuffix(": ").removesuffix(": ()")
    if isinstance(error, StoreError):
        return error
    if isinstance(error, _IN_PASSING):
        return StoreUnavailableError(
            f"{where} gave no answer ({said}); what was asked of it may or may not have happened, and may work later"
        )
    if isinstance(error, _UNAUTHENTICATED):
        return StoreBrokenError(f"{where} refused our credentials ({said}); correct {CREDENTIALS}")
    if isinstance(error, _FORBIDDEN):
        return StoreBrokenError(
            f"{where} does not let us use the cluster's nodes ({said}); set {CREDENTIALS} to the credentials that they were "
            "made with, or have their ACL changed"
        )
    if isinstance(error, client.QuotaExceededError):
        return StoreFailingError(f"{where} has a quota, and it is used up ({said}); raise it")
    if isinstance(error, kazoo.ZookeeperError):
        return StoreBrokenError(f"{where} answered in an unforeseen way ({said}); look at its log")
    return StoreUnavailableError(
        f"the connection to {where} failed in an unforeseen way ({said}); what was asked of it may or may not have "
        "happened, and may work later"
    )
