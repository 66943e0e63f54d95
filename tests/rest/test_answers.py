"""Error bodies: one form, whoever refuses."""

from __future__ import annotations

import json

from firesteel.rest.answers import JSON, error_body, errors
from firesteel.rest.security.refusal import RequestRefused


def test_refusal_of_the_door_and_an_error_of_a_route_are_the_same_bytes() -> None:
    start, body = RequestRefused(403, "no — not you").messages()
    answer = errors(403, ["no — not you"])
    assert body["body"] == answer.body == '{"errors":["no — not you"]}'.encode()
    assert (b"content-type", JSON.encode()) in start["headers"]
    assert answer.headers["content-type"] == JSON


def test_message_that_is_no_unicode_can_be_sent() -> None:
    name = b"caf\xe9".decode(errors="surrogateescape")
    assert json.loads(error_body([name])) == {"errors": ["caf?"]}
