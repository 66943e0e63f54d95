"""The meaning of ZooKeeper's errors."""

from __future__ import annotations

from kazoo import exceptions as kazoo  # type: ignore[import-untyped]
from kazoo.handlers.threading import KazooTimeoutError  # type: ignore[import-untyped]

from firesteel.errors import StoreBrokenError, StoreError, StoreFailingError, StoreUnavailableError
from firesteel.ha.zookeeper import client

ABOUT_A_NODE = (kazoo.NoNodeError, kazoo.NodeExistsError, kazoo.BadVersionError, kazoo.NotEmptyError)
"""Errors about the requested node, whose meaning only the caller knows."""

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
    """The error to raise in place of an error of kazoo that is not about a node.

    Args:
        where: `ZooKeeper at host:port`.
    """
    said = f"{type(error).__name__}: {error}".removesuffix(": ").removesuffix(": ()")
    if isinstance(error, StoreError):
        return error
    if isinstance(error, _IN_PASSING):
        return StoreUnavailableError(
            f"{where} did not answer ({said}); the request may or may not have been carried out; try again later"
        )
    if isinstance(error, _UNAUTHENTICATED):
        return StoreBrokenError(f"{where} refused our credentials ({said}); correct {CREDENTIALS}")
    if isinstance(error, _FORBIDDEN):
        return StoreBrokenError(
            f"{where} denies access to the cluster's nodes ({said}); set {CREDENTIALS} to the credentials that they were "
            "made with, or change their ACL"
        )
    if isinstance(error, client.QuotaExceededError):
        return StoreFailingError(f"{where} reports that a quota is used up ({said}); raise the quota")
    if isinstance(error, kazoo.ZookeeperError):
        return StoreBrokenError(f"{where} gave an unexpected answer ({said}); check its log")
    return StoreUnavailableError(
        f"the connection to {where} failed unexpectedly ({said}); the request may or may not have been carried out; "
        "try again later"
    )
