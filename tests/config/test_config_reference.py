"""The reference page is what the declarations say, and what it says is true."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from firesteel.config import load_configuration
from firesteel.config.reference import COMMAND, EXAMPLE, render
from firesteel.config.sections import OPTIONS

PAGE = Path(__file__).parents[2] / "docs" / "reference" / "configuration.md"


def test_the_page_is_up_to_date() -> None:
    written = PAGE.read_text(encoding="utf-8") if PAGE.exists() else ""
    assert written == render(), f"docs/reference/configuration.md is stale; run: {COMMAND}"


def test_the_command_prints_the_page() -> None:
    printed = subprocess.run(
        [sys.executable, "-W", "error", "-m", "firesteel.config.reference"], capture_output=True, text=True, check=True
    )
    assert printed.stdout == render()


def test_every_option_and_every_type_is_explained() -> None:
    page = render()
    for o in OPTIONS:
        assert f"| `{o.key}` |" in page
        assert o.kind.name.startswith("`") or o.kind.name == "string" or f"\n| {o.kind.name} |" in page, o.kind.name


def test_the_example_on_the_page_loads(tmp_path: Path) -> None:
    assert EXAMPLE in render()
    (tmp_path / "firesteel.yaml").write_text(EXAMPLE)
    config = load_configuration(environ={"HOME": str(tmp_path)}, cwd=tmp_path)
    assert config.engine.master == "local[4]"
    assert config.engine.jvm_options == ("-Xss4m", "-Duser.timezone=UTC")
    assert config.state.checkpoints_dir == "s3a://warehouse/checkpoints"
    assert config.spark == {"spark.sql.shuffle.partitions": "64"}
