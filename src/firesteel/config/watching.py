"""The sections of the history server, of lineage and of notifications."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

from firesteel.config.option import Section, option
from firesteel.config.values import Duration, Locations, PositiveDuration, PositiveInt, integer


class HistoryServerOptions(Section, prefix="historyserver"):
    """The history server (`firesteel history-server`), which shows archived jobs of many clusters."""

    archive_fs_dir: Locations = option(
        key="archive.fs.dir",
        default=(),
        default_text="`jobmanager.archive.fs.dir`",
        description="Directories and fsspec URLs that clusters archive their ended jobs to, separated by spaces.",
        since="0.2",
    )
    archive_refresh_interval: PositiveDuration = option(
        key="archive.fs.refresh-interval",
        default=10.0,
        description="How often the directories are scanned for archives that were added, changed or removed.",
        since="0.2",
    )
    archive_retained_jobs: PositiveInt | None = option(
        key="archive.retained-jobs",
        default=None,
        default_text="all of them",
        description="How many archived jobs are kept; the archives of older ones are removed from their directories.",
        since="0.2",
    )
    archive_retained_ttl: PositiveDuration | None = option(
        key="archive.retained-ttl",
        default=None,
        default_text="forever",
        description="How long after its end a job is kept; older archives are removed from their directories.",
        since="0.2",
    )
    web_address: str = option(
        key="web.address",
        default="127.0.0.1",
        description=(
            "Address to listen on; anything but loopback requires authentication and TLS (`security.*`), otherwise the server "
            "refuses to start."
        ),
        since="0.2",
    )
    web_port: Annotated[int, integer(at_least=0)] = option(
        key="web.port",
        default=8082,
        description="Port to listen on; 0 takes a free one.",
        since="0.2",
    )


class LineageOptions(Section, prefix="lineage"):
    """OpenLineage events of jobs. They are sent when `lineage.url` or `lineage.file` is set."""

    url: str | None = option(
        default=None,
        description="The endpoint that events are posted to, such as `http://marquez:5000/api/v1/lineage`.",
        since="0.2",
    )
    api_key: str | None = option(
        default=None,
        description="The key that is sent to `lineage.url` as a bearer token.",
        since="0.2",
        secret=True,
    )
    file: Path | None = option(
        default=None,
        description="A file that events are appended to, one JSON object per line.",
        since="0.2",
    )
    namespace: str | None = option(
        default=None,
        default_text="the value of `high-availability.cluster-id`",
        description="The namespace of the jobs in the events.",
        since="0.2",
    )
    columns: bool = option(
        default=True,
        description="Whether events have column lineage, where the queries and the schemas of the sources tell it.",
        since="0.2",
    )
    timeout: PositiveDuration = option(
        default=10.0,
        description="How long `lineage.url` may take to answer.",
        since="0.2",
    )


class NotificationOptions(Section, prefix="notifications"):
    """Notifications of what happens to jobs. They are sent when `notifications.targets` names a target."""

    targets: tuple[str, ...] = option(
        default=(),
        description=(
            "Targets as `name=url` words: `https://` is a signed webhook, `slack+https://` a Slack-compatible hook, "
            "`mailto:` an e-mail address."
        ),
        since="0.2",
        secret=True,
    )
    secret: str | None = option(
        default=None,
        default_text="webhooks are not signed",
        description="The key that webhooks are signed with (HMAC-SHA256).",
        since="0.2",
        secret=True,
    )
    on: tuple[str, ...] = option(
        default=("failed", "restart-loop"),
        description=(
            "What the targets of `notifications.to` are told of every job: `failed`, `finished`, `canceled`, "
            "`restart-loop`, `lag`, `missed-batch`."
        ),
        since="0.2",
    )
    to: tuple[str, ...] = option(
        default=(),
        default_text="all targets",
        description="Names of the targets that are told of every job.",
        since="0.2",
    )
    job_targets: tuple[str, ...] = option(
        default=(),
        description="Names of the targets that jobs may name in `settings.notify`.",
        since="0.2",
    )
    restart_loop: PositiveInt = option(
        default=3,
        description="How many restarts within `notifications.restart-window` are a restart loop.",
        since="0.2",
    )
    restart_window: PositiveDuration = option(
        default=600.0,
        description="The time within which restarts are counted.",
        since="0.2",
    )
    lag: Duration = option(
        default=0.0,
        default_text="0 s, which turns it off",
        description="How far the watermark of a stream may be behind.",
        since="0.2",
    )
    missed_batch: Duration = option(
        default=0.0,
        default_text="0 s, which turns it off",
        description="How long a stream may go without committing a batch.",
        since="0.2",
    )
    timeout: PositiveDuration = option(
        default=10.0,
        description="How long a target may take to answer.",
        since="0.2",
    )
    smtp_host: str | None = option(
        key="smtp.host", default=None, description="The mail server for e-mail targets.", since="0.2"
    )
    smtp_port: PositiveInt = option(
        key="smtp.port", default=587, description="The port of the mail server.", since="0.2"
    )
    smtp_tls: bool = option(
        key="smtp.tls",
        default=True,
        description="Whether the mail server is spoken to over TLS (STARTTLS).",
        since="0.2",
    )
    smtp_user: str | None = option(
        key="smtp.user", default=None, description="The user at the mail server.", since="0.2"
    )
    smtp_password: str | None = option(
        key="smtp.password", default=None, description="The user's password.", since="0.2", secret=True
    )
    smtp_from: str = option(
        key="smtp.from", default="firesteel@localhost", description="The sender of e-mails.", since="0.2"
    )
