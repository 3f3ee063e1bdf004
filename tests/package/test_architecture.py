"""The page on the architecture names things that exist."""

from __future__ import annotations

import re
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")


def test_modules_and_packages_named_on_the_page_exist():
    source = ROOT / "src" / "consequential"
    modules = set(re.findall(r"`([a-z_]+/[a-z_]+\.py)`", PAGE))
    assert len(modules) > 15
    assert not [module for module in modules if not (source / module).exists()]
    table = PAGE[PAGE.index("| package |") : PAGE.index("## A walk")]
    packages = set(re.findall(r"`([a-z]+)`", table.replace("`simulate`", "")))
    packages -= {"plan", "baselines", "frontier"}
    assert not [name for name in packages if not list(source.glob(f"{name}*"))]
    listed = {path.name for path in source.iterdir() if (path / "__init__.py").exists()}
    assert listed <= packages


def test_the_picture_is_what_the_tool_draws():
    tool = runpy.run_path(str(ROOT / "docs" / "figures" / "architecture.py"))
    stored = (ROOT / "docs" / "figures" / "architecture.svg").read_text(encoding="utf-8")
    assert stored == tool["drawn"]()
