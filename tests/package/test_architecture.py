"""The page on the architecture names things that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "consequential"
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def is_there(name: str) -> bool:
    """Whether a package or module exists."""
    return (SOURCE / name).is_dir() or (SOURCE / f"{name}.py").exists()


def packages() -> set[str]:
    table = PAGE[PAGE.index("| package |") : PAGE.index("## Three walks")]
    cells = [line.split("|")[1] for line in table.splitlines() if line.startswith("| `")]
    return {name.replace(".", "/") for cell in cells for name in re.findall(r"`([a-z._]+)`", cell)}


def test_packages_and_modules_named_on_the_page_exist():
    modules = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)+)\.py`", PAGE))
    assert len(modules) > 10
    assert not [name for name in packages() | modules if not is_there(name)]


def test_every_package_and_module_at_the_top_of_core_and_lab_is_on_the_page():
    there = {
        path.relative_to(SOURCE).with_suffix("").as_posix()
        for folder in (SOURCE, SOURCE / "lab")
        for path in (*folder.glob("*.py"), *(each.parent for each in folder.glob("*/__init__.py")))
        if not path.name.startswith("__")
    }
    assert there - packages() == {"lab"}  # the lab is on the page package by package


def test_the_picture_is_what_the_tool_draws():
    tool = runpy.run_path(str(ROOT / "docs" / "figures" / "architecture.py"))
    stored = (ROOT / "docs" / "figures" / "architecture.svg").read_text(encoding="utf-8")
    assert stored == tool["drawn"]()
