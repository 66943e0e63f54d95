"""requirements.lock names everything that Firesteel needs, in versions that it allows, each with hashes (S38)."""

from __future__ import annotations

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

ROOT = Path(__file__).resolve().parents[1]
LOCK = (ROOT / "requirements.lock").read_text()
ENTRIES = re.findall(r"^([A-Za-z0-9][\w.-]*)==(\S+)((?:[^\n]*\\\n)(?:    --hash=\S+(?: \\)?\n)+)", LOCK, re.MULTILINE)
LOCKED = {canonicalize_name(name): version for name, version, _ in ENTRIES}
PROJECTS = [tomllib.loads((ROOT / d / "pyproject.toml").read_text())["project"] for d in (".", "chaos")]
WANTED = [
    Requirement(text)
    for project in PROJECTS
    for text in (*project["dependencies"], *(t for extra in project["optional-dependencies"].values() for t in extra))
    if not text.startswith("firesteel")
]


@pytest.mark.parametrize("wanted", WANTED, ids=lambda w: w.name)
def test_every_dependency_is_locked_in_a_version_that_fits(wanted: Requirement) -> None:
    version = LOCKED.get(canonicalize_name(wanted.name))
    assert version is not None, "run `make lock`"
    assert wanted.specifier.contains(version, prereleases=True), f"{version}: run `make lock`"


def test_every_entry_has_hashes_and_no_place_is_named() -> None:
    named = re.findall(r"^[A-Za-z0-9][\w.-]*==", LOCK, re.MULTILINE)
    assert len(named) == len(ENTRIES) > 50
    assert all("--hash=sha256:" in hashes for _, _, hashes in ENTRIES)
    assert "://" not in LOCK
    assert "--index" not in LOCK


def test_tokens_are_read_by_a_version_that_compares_issuers_in_full() -> None:
    wanted = next(w for w in WANTED if canonicalize_name(w.name) == "pyjwt")
    assert not wanted.specifier.contains("2.10.0")
    assert wanted.specifier.contains("2.10.1")
