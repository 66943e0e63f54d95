"""What is in the two wheels that this repository makes, and what their commands call."""

from __future__ import annotations

import configparser
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]


@pytest.fixture(scope="module")
def wheels(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """By directory of the project."""
    return {project: _wheel(tmp_path_factory.mktemp("wheel"), project) for project in (".", "chaos")}


def _wheel(into: Path, project: str) -> Path:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(into)]
    done = subprocess.run(command, cwd=ROOT / project, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    (file,) = into.glob("*.whl")
    return file


def _names(wheel: Path) -> list[str]:
    with zipfile.ZipFile(wheel) as opened:
        return opened.namelist()


def _packages(names: list[str]) -> set[str]:
    return {name.partition("/")[0] for name in names if not name.split("/")[0].endswith(".dist-info")}


def test_the_wheel_of_the_product_carries_nothing_of_chaos(wheels: dict[str, Path]) -> None:
    names = _names(wheels["."])
    assert _packages(names) == {"firesteel"}
    assert not [name for name in names if "chaos" in name]
    assert {"firesteel/py.typed", "firesteel/flink_rest/schemas.json"} <= set(names)


def test_the_wheel_of_chaos_carries_all_of_it_and_its_licence(wheels: dict[str, Path]) -> None:
    names = _names(wheels["chaos"])
    assert _packages(names) == {"firesteel_chaos"}
    modules = {str(p.relative_to(ROOT / "chaos" / "src")) for p in (ROOT / "chaos" / "src").rglob("*.py")}
    assert len(modules) > 30
    assert modules <= set(names)
    assert [name for name in names if name.endswith("/LICENSE")]
    assert (ROOT / "chaos" / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_each_distribution_has_its_command(wheels: dict[str, Path]) -> None:
    commands = {}
    for project, wheel in wheels.items():
        with zipfile.ZipFile(wheel) as opened:
            (name,) = (n for n in opened.namelist() if n.endswith("/entry_points.txt"))
            parser = configparser.ConfigParser()
            parser.read_string(opened.read(name).decode())
        commands[project] = dict(parser["console_scripts"])
    assert commands == {
        ".": {"firesteel": "firesteel.cli.main:main"},
        "chaos": {"firesteel-chaos": "firesteel_chaos.main:main"},
    }


def test_chaos_goes_with_the_version_that_it_is_made_with() -> None:
    product, chaos = (tomllib.loads((ROOT / d / "pyproject.toml").read_text())["project"] for d in (".", "chaos"))
    assert product["version"] == chaos["version"]
    assert f"firesteel=={product['version']}" in chaos["dependencies"]


def test_make_setup_installs_the_command_of_chaos() -> None:
    command = shutil.which("firesteel-chaos", path=str(Path(sys.executable).parent))
    assert command is not None, "run: scripts/setup"
    done = subprocess.run([command, "faults"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert "F6" in done.stdout
