"""Who watches the jobs of a leadership, by the configuration."""

from __future__ import annotations

from collections.abc import Callable

from firesteel.config import Configuration
from firesteel.delivery.dead_letters import DeadLetters
from firesteel.delivery.delivery import MessageDelivery, Send
from firesteel.dispatcher.watchers import JobWatcher
from firesteel.ha.protocols import Epoch, StateStore
from firesteel.layout import ClusterLayout
from firesteel.lineage.transports import AllTransports, FileTransport, HttpTransport, LineageTransport
from firesteel.lineage.watcher import LineageWatcher
from firesteel.notifications.rules import NotificationLimits, Subscribers, occasions
from firesteel.notifications.targets import targets_of
from firesteel.notifications.watcher import NotificationWatcher
from firesteel.stores.outbox import OutboxStore


def job_watchers(
    configuration: Configuration,
    store: StateStore,
    epoch: Epoch,
    *,
    now: Callable[[], float],
    on_error: Callable[[BaseException], None],
) -> tuple[JobWatcher, ...]:
    def delivery(channel: str) -> Callable[[Send], MessageDelivery]:
        letters = DeadLetters(ClusterLayout.of(configuration).home / "dead-letters" / f"{channel}.jsonl")
        return lambda send: MessageDelivery(
            channel,
            send,
            outbox=OutboxStore(store, channel),
            epoch=epoch,
            dead_letters=letters,
            now=now,
            on_error=on_error,
        )

    watchers: list[JobWatcher] = []
    options = configuration.lineage
    transports: list[LineageTransport] = []
    if options.url is not None:
        transports.append(HttpTransport(options.url, api_key=options.api_key, timeout=options.timeout))
    if options.file is not None:
        transports.append(FileTransport(options.file))
    if transports:
        watchers.append(
            LineageWatcher(
                AllTransports(*transports),
                delivery("lineage"),
                namespace=options.namespace or configuration.high_availability.cluster_id,
                columns=options.columns,
            )
        )
    told = configuration.notifications
    targets = targets_of(told)
    if targets:
        everything = told.to or tuple(targets)
        watchers.append(
            NotificationWatcher(
                targets,
                delivery("notifications"),
                subscribers=Subscribers(dict.fromkeys(occasions(told.on), everything), frozenset(told.job_targets)),
                limits=NotificationLimits(told.restart_loop, told.restart_window, told.lag, told.missed_batch),
                cluster=configuration.high_availability.cluster_id,
                now=now,
                on_error=on_error,
            )
        )
    return tuple(watchers)
