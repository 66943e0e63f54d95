"""S27: seeded canaries are found nowhere."""

from __future__ import annotations

import json
import time
from typing import Any

import pytest
from tests.rest_security.issuer import sign

from firesteel.config.option import MASK
from firesteel.masking import is_secret_key, mask, mask_text

CANARY = "canary7F3a"


@pytest.mark.parametrize(
    "key",
    [
        "password",
        "PASSWORD",
        "db.password",
        "dbPassword",
        "spark.ssl.keyPassword",
        "passwd",
        "passphrase",
        "pwd",
        "db_pwd",
        "client.token",
        "FIRESTEEL_CLIENT_TOKEN",
        "spark.connect.authenticate.token",
        "oauthToken",
        "spark.hadoop.fs.s3a.access.key",
        "spark.hadoop.fs.s3a.secret.key",
        "AWS_SECRET_ACCESS_KEY",
        "aws_access_key_id",
        "accessKey",
        "fs.azure.account.key.x.blob.core.windows.net",
        "private.key",
        "privateKey",
        "api_key",
        "apikey",
        "x-api-key",
        "kafka.sasl.jaas.config",
        "sasl.client.secret",
        "credentials",
        "google.credential",
        "Authorization",
        "cookie",
        "encryption.key",
        "shared-key",
        "connection.string",
        "spark.authenticate.secret",
        "sig",
        "X-Amz-Signature",
    ],
)
def test_secret_keys(key: str) -> None:
    """S27"""
    assert is_secret_key(key)
    assert mask({key: CANARY}) == {key: MASK}
    assert mask([{"key": key, "value": CANARY}]) == [{"key": key, "value": MASK}]
    assert mask([{"name": key, "value": CANARY}]) == [{"name": key, "value": MASK}]
    for text in (
        f"{key}={CANARY}",
        f"--conf {key}={CANARY} --next x",
        f"{key}: {CANARY}",
        f'"{key}": "{CANARY} and {CANARY}"',
        f"'{key}' = '{CANARY},{CANARY}'",
        f'\\"{key}\\": \\"{CANARY}\\"',
        f"https://host/?a=1&{key}={CANARY}&b=2",
        f"url=https://host/?{key}={CANARY}",
        f"jdbc:sqlserver://host;user=a;{key}={CANARY};encrypt=true",
        json.dumps({"a": {key: CANARY}}),
        f"{{{key}={CANARY}, other=1}}",
        f'{key}="{CANARY}\\"{CANARY}"',
        f"{key}='{CANARY}",
        f"{key}={CANARY}{'=' * 2}",
        f"{key}={CANARY},{CANARY}",
    ):
        assert CANARY not in mask_text(text), text


@pytest.mark.parametrize(
    "key",
    [
        "spark.sql.shuffle.partitions",
        "rest.port",
        "data.dir",
        "security.rest.tokens-file",
        "passwordFile",
        "keyboard",
        "signal",
        "monkey",
        "design",
        "parallelism.default",
        "sasl.mechanism",
        "spark.hadoop.fs.s3a.aws.credentials.provider",
    ],
)
def test_other_keys_are_shown(key: str) -> None:
    assert mask({key: "shown"}) == {key: "shown"}
    assert mask_text(f"{key}=shown") == f"{key}=shown"


@pytest.mark.parametrize(
    "text",
    [
        f"postgresql://user:{CANARY}@host:5432/db",
        f"postgresql+psycopg://{CANARY}@host/db",
        f"jdbc:postgresql://user:{CANARY}@host/db?ssl=true",
        f"redis://:{CANARY}@host",
        f"https://user:p@{CANARY}@host/path",
        f"s3a://AKIAX:{CANARY}/with/slashes@bucket/x",
        f"see ftp://a:{CANARY}@b, and (https://x:{CANARY}@y)",
        f"Authorization: Bearer {CANARY}",
        f"authorization: bearer  {CANARY}",
        f"curl -H 'Authorization: Basic {CANARY}=='",
        f"Bearer {CANARY}",
        f"token fst_0123456789abcdef_{CANARY}",
        f"GET /jobs/fst_0123456789abcdef_{CANARY}",
        f"fst_local.{CANARY}-_{CANARY}",
        f"fst_node.{CANARY}==.{CANARY}",
        f"-----BEGIN PRIVATE KEY-----\n{CANARY}\n-----END PRIVATE KEY-----",
        f"-----BEGIN RSA PRIVATE KEY-----\n{CANARY}\n-----END RSA PRIVATE KEY-----\nmore",
        f"-----BEGIN EC PRIVATE KEY-----\n{CANARY}",
        f'org.apache.kafka.PlainLoginModule required username="a" password="{CANARY} {CANARY}";',
    ],
)
def test_secrets_are_known_by_their_shape(text: str) -> None:
    """S27"""
    assert CANARY not in mask_text(text)
    assert CANARY not in json.dumps(mask({"deep": [{"in": (text, 1)}]}))


def test_tokens_of_others_are_known_too() -> None:
    token = sign()
    for text in (token, f"got {token}!", f"x={token}"):
        assert token.split(".")[1] not in mask_text(text)
    assert "AKIAIOSFODNN7EXAMPLE" not in mask_text("key id AKIAIOSFODNN7EXAMPLE here")


@pytest.mark.parametrize(
    "text",
    [
        "http://host:8080/a@b",
        "sqlite:////var/lib/firesteel/ha.db",
        "https://host/path?x=1#y",
        "at firesteel.rest.app (app.py:33)",
        "TokenProvider.java:33",
        "user@example.com wrote",
        "spark://host:7077",
        "a bearer of news",
        "eyJ is how JSON begins in base64",
        "",
    ],
)
def test_harmless_text_is_left_alone(text: str) -> None:
    assert mask_text(text) == text


def test_masking_goes_into_every_depth_and_changes_nothing_else() -> None:
    value: dict[Any, Any] = {
        "jid": "0123",
        "execution-config": {
            "user-config": {"db.password": CANARY, "plain": "x", "url": f"https://u:{CANARY}@h"},
            "numbers": [1, 2.5, None, True],
        },
        "password": {"nested": CANARY},
        "tokens": [CANARY, CANARY],
        "secret": None,
        "token-enabled": True,
        "args": ["--password", CANARY, "--name", "x", f"--token={CANARY}", "--verbose"],
        7: "number",
    }
    before = json.dumps(value)
    shown = mask(value)
    assert CANARY not in json.dumps(shown)
    assert json.dumps(value) == before  # a copy
    assert shown["jid"] == "0123"
    assert shown["execution-config"]["user-config"]["plain"] == "x"
    assert shown["execution-config"]["numbers"] == [1, 2.5, None, True]
    assert shown["password"] == MASK
    assert shown["secret"] is None
    assert shown["args"] == ["--password", MASK, "--name", "x", f"--token={MASK}", "--verbose"]
    assert mask(shown) == shown
    assert mask(3) == 3


def test_a_secret_flag_does_not_swallow_the_next_flag() -> None:
    assert mask(["--token", "--verbose", "x"]) == ["--token", "--verbose", "x"]
    assert mask(("--token", CANARY)) == ("--token", MASK)


@pytest.mark.parametrize(
    "piece",
    [
        "a",
        "x://",
        "a=:",
        'password="',
        "-----BEGIN PRIVATE KEY-----",
        "eyJ",
        "a://b:",
        "key",
        "fst_",
        "a.-_",
        "\\",
        "token:",
        "Bearer ",
    ],
)
def test_long_lines_are_no_trouble(piece: str) -> None:
    """S25: six times the text takes about six times the time; what backtracks without bound takes 36 times or more."""

    def seconds(count: int) -> float:
        began = time.process_time()
        for text in (piece * count, f"password={piece * count}", f'"{piece * count}"'):
            mask_text(text)
        return time.process_time() - began

    few = min(seconds(5_000) for _ in range(3))
    assert seconds(30_000) < 18 * few + 0.1
