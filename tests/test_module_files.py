"""Which modules beside a script are taken along."""

from __future__ import annotations

from pathlib import Path

import pytest

from firesteel import module_files
from firesteel.module_files import TooManyModulesError, modules_beside


@pytest.fixture
def script(tmp_path: Path) -> Path:
    place = tmp_path / "shop"
    for name, text in {
        "main.py": "import os, a, pyspark\nfrom space import x\ndef f():\n    from pkg.deep import y\n",
        "a.py": "import b.c as d\nimport main\n",
        "b/__init__.py": "from . import c\n",
        "b/c.py": "import nowhere",
        "b/data.json": "{}",
        "b/.hidden": "",
        "pkg/__init__.py": "",
        "pkg/deep.py": "import last",
        "last.py": "this is no Python",
        "space/x.py": "",
        "space/rows.csv": "1",
        "unused.py": "",
        "pyspark/__init__.py": "",
        "os/rows.csv": "",
    }.items():
        (place / name).parent.mkdir(parents=True, exist_ok=True)
        (place / name).write_text(text)
    return place / "main.py"


def test_imported_modules_and_what_they_import_are_taken_and_nothing_else(script: Path) -> None:
    assert [m.as_posix() for m in modules_beside(script)] == [
        "a.py",
        "b/__init__.py",
        "b/c.py",
        "b/data.json",
        "last.py",
        "pkg/__init__.py",
        "pkg/deep.py",
        "space/x.py",
    ]


def test_link_that_leads_out_of_the_directory_is_not_followed(script: Path, tmp_path: Path) -> None:
    (tmp_path / "secret.py").write_text("KEY = 1")
    (script.parent / "a.py").unlink()
    (script.parent / "a.py").symlink_to(tmp_path / "secret.py")
    (script.parent / "pkg" / "key.txt").symlink_to(tmp_path / "secret.py")
    assert not {Path("a.py"), Path("pkg/key.txt")} & set(modules_beside(script))


def test_script_without_modules_beside_it_needs_none(tmp_path: Path) -> None:
    (tmp_path / "alone.py").write_text("import json\n")
    assert modules_beside(tmp_path / "alone.py") == []
    (tmp_path / "broken.py").write_text("def")
    assert modules_beside(tmp_path / "broken.py") == []


@pytest.mark.parametrize(("limit", "value"), [("MOST_FILES", 3), ("MOST_BYTES", 20)])
def test_more_than_is_reasonable_is_refused(
    script: Path, monkeypatch: pytest.MonkeyPatch, limit: str, value: int
) -> None:
    monkeypatch.setattr(module_files, limit, value)
    with pytest.raises(TooManyModulesError, match=r"beside main\.py are more than"):
        modules_beside(script)
