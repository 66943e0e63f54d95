"""Outgoing answers: the headers that each of them gets, and no stack trace in any (S35)."""

from __future__ import annotations

from starlette.types import Message, Send

from firesteel.rest.security.refusal import Headers, RequestRefused

CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; font-src 'self'; connect-src 'self'; "
    "base-uri 'none'; form-action 'none'; frame-ancestors 'none'"
)
_ALWAYS: Headers = (
    (b"x-content-type-options", b"nosniff"),
    (b"x-frame-options", b"DENY"),
    (b"referrer-policy", b"no-referrer"),
    (b"cross-origin-opener-policy", b"same-origin"),
    (b"cross-origin-resource-policy", b"same-origin"),
    (b"cross-origin-embedder-policy", b"require-corp"),
)
_HSTS = (b"strict-transport-security", b"max-age=31536000")
_DROPPED = frozenset({b"server", b"x-powered-by", b"access-control-allow-origin", b"access-control-allow-credentials"})
"""Headers of the app that are dropped: the door decides which origins may see an answer."""
_MOST_HELD = 64 * 1024
POLICY = "firesteel.content-security-policy"
"""In the first message of an answer: the policy of a foreign page that the configuration allows."""


def security_headers(*, tls: bool) -> Headers:
    return (*_ALWAYS, _HSTS) if tls else _ALWAYS


class AnswerSender:
    """The `send` of one request.

    An answer with status 500 is held back until the app has ended: frameworks send one in their own form before they raise
    the exception. All others are sent on piece by piece.
    """

    def __init__(self, send: Send, headers: Headers) -> None:
        self._send = send
        self._headers = list(headers)
        self._held: list[Message] = []
        self._held_bytes = 0
        self.over = False
        """The door has answered; further messages of the app are dropped."""
        self.status: int | None = None
        """The status that was sent to the client."""

    def add_headers(self, headers: Headers) -> None:
        self._headers += headers

    async def send(self, message: Message) -> None:
        """The `send` that the app calls."""
        if self.over:
            return
        if message["type"] == "http.response.start" and message["status"] == 500:
            self._held.append(message)
        elif self._held:
            self._held.append(message)
            self._held_bytes += len(message.get("body", b""))
            if self._held_bytes > _MOST_HELD:
                await self.finish()
        else:
            await self._pass_on(message)

    async def finish(self) -> None:
        """The app has ended normally: a held-back answer is sent."""
        held, self._held = self._held, []
        for message in held:
            await self._pass_on(message)

    async def refuse(self, refused: RequestRefused) -> None:
        """Answer in place of the app, if it has not started to, and drop its further messages."""
        await self.replace(refused.messages())

    async def replace(self, messages: tuple[Message, ...]) -> None:
        self._held = []
        if self.status is None and not self.over:
            for message in messages:
                await self._pass_on(message)
        self.over = True

    def holds_own_error(self) -> bool:
        """Whether the held-back answer is complete and in the form of the contract."""
        if len(self._held) < 2 or self._held[-1].get("more_body", False):
            return False
        return any(
            name.lower() == b"content-type" and value.lower().startswith(b"application/json")
            for name, value in self._held[0].get("headers", ())
        )

    async def _pass_on(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            said = [*message.get("headers", ())]
            policy: bytes | None = message.get(POLICY)
            message = {k: v for k, v in message.items() if k != POLICY}
            message["headers"] = self._complete(said, policy or CONTENT_SECURITY_POLICY.encode())
        await self._send(message)

    def _complete(self, said: Headers, policy: bytes) -> list[tuple[bytes, bytes]]:
        ours = {name for name, _ in self._headers}
        kept = [(name.lower(), value) for name, value in said]
        kept = [(n, v) for n, v in kept if n == b"vary" or (n not in ours and n not in _DROPPED)]
        kept = [(n, v) for n, v in kept if n != b"content-security-policy" or b"'unsafe-" not in v]
        names = {name for name, _ in kept}
        if b"cache-control" not in names:
            kept.append((b"cache-control", b"no-store"))
        if b"content-security-policy" not in names:
            kept.append((b"content-security-policy", policy))
        return [*kept, *self._headers]
