"""The page on the architecture names things that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "consequential"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def is_there(package: str) -> bool:
    """Whether a package or module exists; those of the lab may still lie beside the core."""
    places = {package, package.removeprefix("lab/")}
    return any((SOURCE / place).is_dir() or (SOURCE / f"{place}.py").exists() for place in places)


def packages() -> set[str]:
    table = PAGE[PAGE.index("| package |") : PAGE.index("## Three walks")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name.replace(".", "/") for cell in cells for name in re.findall(r"`([a-z.]+)`", cell)}


def test_packages_and_modules_named_on_the_page_exist():
    modules = set(re.findall(r"`([a-z_]+/[a-z_]+)\.py`", PAGE))
    assert len(modules) > 5
    assert not [name for name in packages() | modules if not is_there(name)]


def test_every_package_is_on_the_page():
    there = {path.parent for path in SOURCE.glob("*/__init__.py")}
    there |= {path.parent for path in SOURCE.glob("lab/*/__init__.py")} - {SOURCE / "lab"}
    named = {name.removeprefix("lab/") for name in packages()}
    assert not [path for path in there if path.name not in named | {"lab"}]


def test_the_picture_is_what_the_tool_draws():
    tool = runpy.run_path(str(ROOT / "docs" / "figures" / "architecture.py"))
    stored = (ROOT / "docs" / "figures" / "architecture.svg").read_text(encoding="utf-8")
    assert stored == tool["drawn"]()
