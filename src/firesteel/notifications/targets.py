"""Where notifications go. A target is `name=url` in the configuration: https:// is a signed webhook, slack+https:// a hook that
understands Slack's messages, mailto: an e-mail address.

Only admins name URLs, in the configuration of the nodes; jobs name targets (S9, S10). Redirects are not followed.
"""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import smtplib
import ssl
import time
from collections.abc import Mapping
from dataclasses import dataclass
from email.message import EmailMessage
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

import httpx

from firesteel.config.watching import NotificationOptions
from firesteel.delivery.delivery import UndeliverableError
from firesteel.errors import InvalidConfigError, Problem
from firesteel.types import hides_nothing

_TRY_AGAIN = frozenset({408, 409, 425, 429})
_SHOWN = 200


class NotificationTarget(Protocol):
    async def send(self, event: Mapping[str, Any]) -> None:
        """Raises UndeliverableError for what is refused for good, anything else to be tried again."""
        ...


@dataclass(frozen=True, slots=True)
class Webhook:
    """Posts the event as JSON, signed: `Firesteel-Signature` is `v1=` and the HMAC-SHA256 of `<timestamp>.<body>`."""

    url: str
    secret: str | None
    timeout: float

    async def send(self, event: Mapping[str, Any]) -> None:
        body = json.dumps(event, separators=(",", ":")).encode()
        await _post(self.url, body, self.headers(str(event["id"]), body, int(time.time())), self.timeout)

    def headers(self, event_id: str, body: bytes, now: int) -> dict[str, str]:
        headers = {"firesteel-event-id": event_id, "firesteel-timestamp": str(now)}
        if self.secret is not None:
            headers["firesteel-signature"] = f"v1={signature(self.secret, now, body)}"
        return headers


def signature(secret: str, timestamp: int, body: bytes) -> str:
    return hmac.new(secret.encode(), b"%d.%b" % (timestamp, body), hashlib.sha256).hexdigest()


@dataclass(frozen=True, slots=True)
class SlackHook:
    url: str
    timeout: float

    async def send(self, event: Mapping[str, Any]) -> None:
        await _post(self.url, json.dumps(slack_message(event)).encode(), {}, self.timeout)


def slack_message(event: Mapping[str, Any]) -> dict[str, Any]:
    """Text of jobs is escaped: a name must not become a link or a mention of everybody."""
    job = event["job"]
    text = f"*{_escaped(event['message'])}*\n{_escaped(event['event'])} · cluster {_escaped(event['cluster'])} · owner "
    return {"text": f"{text}{_escaped(job['owner'] or '-')} · attempt {job['attempt']} · `{job['id']}`"}


def _escaped(text: object) -> str:
    plain = str(text).replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return plain.replace("*", "").replace("`", "'").replace("\n", " ")


@dataclass(frozen=True, slots=True)
class MailTarget:
    address: str
    options: NotificationOptions

    async def send(self, event: Mapping[str, Any]) -> None:
        await asyncio.to_thread(self._send, event)

    def message(self, event: Mapping[str, Any]) -> EmailMessage:
        """Headers are one line each, whatever a job is called."""
        mail = EmailMessage()
        mail["From"], mail["To"] = self.options.smtp_from, self.address
        mail["Subject"] = " ".join(f"[{event['cluster']}] {event['message']}".split())[:_SHOWN]
        mail["Message-ID"] = f"<{event['id']}@firesteel>"
        mail.set_content(json.dumps(event, indent=2, ensure_ascii=False))
        return mail

    def _send(self, event: Mapping[str, Any]) -> None:
        options = self.options
        assert options.smtp_host is not None
        with smtplib.SMTP(options.smtp_host, options.smtp_port, timeout=options.timeout) as server:
            if options.smtp_tls:
                server.starttls(context=ssl.create_default_context())
            if options.smtp_user is not None:
                server.login(options.smtp_user, options.smtp_password or "")
            try:
                server.send_message(self.message(event))
            except (smtplib.SMTPRecipientsRefused, smtplib.SMTPSenderRefused) as error:
                raise UndeliverableError(f"the mail server refused the address: {error}") from error


async def _post(url: str, body: bytes, headers: Mapping[str, str], timeout: float) -> None:  # noqa: ASYNC109 - httpx has it
    try:
        async with httpx.AsyncClient(timeout=timeout, trust_env=False, follow_redirects=False) as client:
            answer = await client.post(url, content=body, headers={**headers, "content-type": "application/json"})
    except (httpx.HTTPError, httpx.InvalidURL) as error:
        # Without its text, which may have the URL in it: that is a secret (S27).
        raise OSError(f"the target did not answer ({type(error).__name__})") from None
    if answer.is_success:
        return
    said = f"the target answered {answer.status_code}"  # and not with what: it is no business of the dead letters
    if 300 <= answer.status_code < 500 and answer.status_code not in _TRY_AGAIN:
        raise UndeliverableError(said)
    raise OSError(said)


def targets_of(options: NotificationOptions) -> dict[str, NotificationTarget]:
    """Targets by name. Raises InvalidConfigError; a URL is a secret and is not repeated in it."""
    found: dict[str, NotificationTarget] = {}
    problems: list[Problem] = []
    for word in options.targets:
        name, equals, url = word.partition("=")
        if not equals or not name or not hides_nothing(name):
            problems.append(_problem(f"a target is not name=url (it begins with '{name[:20]}')"))
            continue
        target = _target(url, options)
        if target is None:
            problems.append(_problem(f"the target '{name}' has no URL that can be used"))
        else:
            found[name] = target
    strangers = sorted({*options.to, *options.job_targets} - set(found))
    problems += [_problem(f"'{name}' is not one of the targets") for name in strangers]
    if problems:
        raise InvalidConfigError(problems)
    return found


def _target(url: str, options: NotificationOptions) -> NotificationTarget | None:
    parts = urlsplit(url)
    match parts.scheme:
        case "http" | "https" if parts.hostname:
            return Webhook(url, options.secret, options.timeout)
        case "slack+http" | "slack+https" if parts.hostname:
            return SlackHook(url.removeprefix("slack+"), options.timeout)
        case "mailto" if "@" in parts.path and options.smtp_host is not None:
            return MailTarget(unquote(parts.path), options)
        case _:
            return None


def _problem(message: str) -> Problem:
    fix = "write name=https://…, name=slack+https://… or name=mailto:someone@example.org (which needs notifications.smtp.host)"
    return Problem(message, fix, field="notifications.targets")
