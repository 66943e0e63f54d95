"""What the kernel lacks is said in a line when a node starts; `security.sandbox: landlock` does not start without it (S37)."""

from __future__ import annotations

import logging
from pathlib import Path

import pytest

from firesteel.config import Configuration, load_configuration
from firesteel.errors import EnvironmentNotReadyError
from firesteel.sandbox import landlock
from firesteel.worker.sandboxing import sandbox_policy, say_what_holds

ALL_OPEN = "user code can read and write all files of this node and of all owners"

NODE_OPEN = (
    "user code can send signals to this node and ask it for its owner's token: Linux 6.12 or later prevents that"
)


def configured(tmp_path: Path, kind: str) -> Configuration:
    overrides = {"data.dir": str(tmp_path / "data"), "security.sandbox": kind}
    return load_configuration(overrides=overrides, environ={"HOME": str(tmp_path)}, cwd=tmp_path)


@pytest.mark.parametrize(
    ("kind", "version", "level", "words"),
    [
        (
            "auto",
            0,
            "WARNING",
            f"there is no sandbox: this kernel does not support Landlock, or does not let this process use it; {ALL_OPEN}",
        ),
        (
            "auto",
            2,
            "WARNING",
            f"there is no sandbox: this kernel has version 2 of Landlock, but 3 is needed (Linux 6.2); {ALL_OPEN}",
        ),
        ("off", 7, "WARNING", f"security.sandbox is off: {ALL_OPEN}"),
        (
            "auto",
            5,
            "WARNING",
            f"drivers and engines run in a sandbox (Landlock, version 5), but {NODE_OPEN}",
        ),
        ("auto", 6, "INFO", "drivers and engines run in a sandbox (Landlock, version 6)"),
        ("landlock", 7, "INFO", "drivers and engines run in a sandbox (Landlock, version 7)"),
        ("user", 0, "INFO", "drivers and engines run as users of their owners"),
        ("user", 7, "INFO", "drivers and engines run as users of their owners and in a sandbox (Landlock, version 7)"),
    ],
)
def test_one_line_says_what_holds(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    kind: str,
    version: int,
    level: str,
    words: str,
) -> None:
    monkeypatch.setattr(landlock, "version", lambda: version)
    with caplog.at_level(logging.INFO):
        say_what_holds(configured(tmp_path, kind))
    assert [(r.levelname, r.getMessage()) for r in caplog.records] == [(level, words)]


@pytest.mark.parametrize("version", [0, 2])
def test_a_sandbox_that_was_asked_for_by_name_is_not_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int
) -> None:
    monkeypatch.setattr(landlock, "version", lambda: version)
    with pytest.raises(EnvironmentNotReadyError, match=r"security\.sandbox is landlock, but this kernel .*; set it to"):
        sandbox_policy(configured(tmp_path, "landlock"))
    assert sandbox_policy(configured(tmp_path, "auto")) is None
