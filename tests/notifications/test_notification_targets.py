"""Webhooks that are signed and follow nobody (S9, S10), Slack's messages, e-mail; URLs are secrets (S27)."""

from __future__ import annotations

import asyncio
import hashlib
import hmac
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from tests.history.archived import details
from tests.notifications.hook import receiving

from firesteel.config import load_configuration
from firesteel.config.watching import NotificationOptions
from firesteel.delivery.delivery import UndeliverableError
from firesteel.errors import InvalidConfigError
from firesteel.notifications.rules import of_end
from firesteel.notifications.targets import MailTarget, SlackHook, Webhook, slack_message, targets_of
from firesteel.status import JobStatus

EVENT = of_end({**details(1, status=JobStatus.FAILED), "failure": None}, "prod")


def options(**more: Any) -> NotificationOptions:
    values = {o.attribute: o.default for o in NotificationOptions.OPTIONS}
    return NotificationOptions(**{**values, **more})


def test_webhook_is_signed_with_its_time() -> None:
    with receiving() as hook:
        asyncio.run(Webhook(hook.url, "s3cret", 5).send(EVENT))
        [(headers, body)] = hook.requests
    signed = f"{headers['firesteel-timestamp']}.".encode() + body
    expected = hmac.new(b"s3cret", signed, hashlib.sha256).hexdigest()
    assert headers["firesteel-signature"] == f"v1={expected}"
    assert headers["firesteel-event-id"] == EVENT["id"]
    assert json.loads(body) == EVENT


@pytest.mark.parametrize(
    ("status", "error"), [(301, UndeliverableError), (404, UndeliverableError), (429, OSError), (503, OSError)]
)
def test_answers_of_targets_and_redirects_are_not_followed(status: int, error: type[Exception]) -> None:
    with receiving() as hook:
        hook.status = status
        with pytest.raises(error):
            asyncio.run(Webhook(hook.url, None, 5).send(EVENT))
        assert len(hook.requests) == 1


def test_target_that_does_not_answer_is_told_without_its_url() -> None:
    with pytest.raises(OSError, match="did not answer") as raised:
        asyncio.run(SlackHook("http://127.0.0.1:9/T000/very-secret", 5).send(EVENT))
    assert "very-secret" not in str(raised.value)


def test_names_of_jobs_are_text_in_slack_and_one_line_in_mail() -> None:
    evil = {**EVENT, "message": "<!channel> *x* <https://evil|click>\r\nBcc: everybody@example.org"}
    text = slack_message(evil)["text"]
    assert "<!channel>" not in text
    assert "<https://evil" not in text
    mail = MailTarget("ops@example.org", options(smtp_host="localhost")).message(evil)
    assert mail["Bcc"] is None
    assert mail["To"] == "ops@example.org"
    assert "\n" not in mail["Subject"]


def test_targets_by_their_urls() -> None:
    words = ("a=https://h/x", "b=slack+https://h/y", "c=mailto:ops@example.org")
    found = targets_of(options(targets=words, smtp_host="mail", job_targets=("b",)))
    assert [type(found[n]) for n in "abc"] == [Webhook, SlackHook, MailTarget]
    assert found["b"] == SlackHook("https://h/y", 10.0)


@pytest.mark.parametrize(
    "word", ["a=file:///etc/passwd", "a=ftp://x/secret", "a", "=https://x", "a=mailto:x@y", "a=https://"]
)
def test_bad_target_is_named_without_its_url(word: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"notifications\.targets") as raised:
        targets_of(options(targets=(word,)))
    assert "secret" not in str(raised.value)


def test_target_that_is_not_there_cannot_be_meant() -> None:
    with pytest.raises(InvalidConfigError, match="'b' is not one of the targets"):
        targets_of(options(targets=("a=https://h/x",), to=("b",)))


def test_urls_and_keys_are_masked_in_the_configuration(tmp_path: Path) -> None:
    shown = load_configuration(
        environ={"HOME": str(tmp_path)},
        overrides={"notifications.targets": "a=https://h/canary", "notifications.secret": "canary"},
    )
    assert "canary" not in "".join(row.value for row in shown.rows())
    assert "canary" not in repr(shown.notifications)


def test_command_sends_to_all_targets_and_says_which_failed(tmp_path: Path) -> None:
    with receiving() as good, receiving() as bad:
        bad.status = 500
        targets = f"-Dnotifications.targets=good={good.url} bad={bad.url}"
        command = [sys.executable, "-c", "from firesteel.cli.main import main; main()", "notify", "test", targets]
        done = subprocess.run(
            command, check=False, capture_output=True, text=True, env={"HOME": str(tmp_path)}, timeout=60
        )
        assert done.stdout == "bad: failed: the target answered 500\ngood: sent\n"
        assert done.returncode == 1
        assert good.events[0]["event"] == "test"
