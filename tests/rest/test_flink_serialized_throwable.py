"""The one Java object that is written without a JVM."""

from __future__ import annotations

import base64
import struct

import pytest

from firesteel.flink_rest.serialized_throwable import failure_cause, serialized_throwable

KNOWN = (
    "rO0ABXNyAClvcmcuYXBhY2hlLmZsaW5rLnV0aWwuU2VyaWFsaXplZFRocm93YWJsZWUWnfUfpxPzAgADTAAZZnVsbFN0cmluZ2lmaWVkU3RhY2tU"
    "cmFjZXQAEkxqYXZhL2xhbmcvU3RyaW5nO0wAFm9yaWdpbmFsRXJyb3JDbGFzc05hbWVxAH4AAVsAE3NlcmlhbGl6ZWRFeGNlcHRpb250AAJbQnhy"
    "ABNqYXZhLmxhbmcuRXhjZXB0aW9u0P0fPho7HMQCAAB4cgATamF2YS5sYW5nLlRocm93YWJsZdXGNSc5d7jLAwAETAAFY2F1c2V0ABVMamF2YS9s"
    "YW5nL1Rocm93YWJsZTtMAA1kZXRhaWxNZXNzYWdlcQB+AAFbAApzdGFja1RyYWNldAAeW0xqYXZhL2xhbmcvU3RhY2tUcmFjZUVsZW1lbnQ7TAAU"
    "c3VwcHJlc3NlZEV4Y2VwdGlvbnN0ABBMamF2YS91dGlsL0xpc3Q7eHBwdAAGYS5COiBtcHB4dAAHYS5COiBtCnQAA2EuQnA="
)
"""Bytes that Flink's own client has read and printed the message of."""


def test_bytes_are_those_that_flink_reads() -> None:
    assert failure_cause("a.B", "m")["serialized-throwable"] == KNOWN


def test_without_a_stack_trace_the_message_stands_for_it() -> None:
    assert failure_cause("a.B", "m")["stack-trace"] == "a.B: m\n"
    assert failure_cause("a.B", "m", "at x")["stack-trace"] == "at x"


@pytest.mark.parametrize(
    ("text", "encoded"),
    [("a", b"a"), ("\0", b"\xc0\x80"), ("ü", b"\xc3\xbc"), ("€", b"\xe2\x82\xac"), ("😀", b"\xed\xa0\xbd\xed\xb8\x80")],
)
def test_texts_are_in_modified_utf8(text: str, encoded: bytes) -> None:
    data = serialized_throwable("C", text, "s")
    message = b"C: " + encoded
    assert b"\x74" + struct.pack(">H", len(message)) + message in data


def test_lone_surrogates_do_not_break_it() -> None:
    assert b"\xed\xa0\x80" in serialized_throwable("C", "\ud800", "s")


def test_long_texts_have_long_lengths() -> None:
    data = base64.b64decode(failure_cause("C", "m", "x" * 70_000)["serialized-throwable"])
    assert b"\x7c" + struct.pack(">Q", 70_000) + b"xxx" in data
