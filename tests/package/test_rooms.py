"""The three parts: who imports whom, and names that are used once."""

from __future__ import annotations

import ast
from collections import Counter
from pathlib import Path

import pytest

import consequential as cq

ROOT = Path(cq.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))
PARTS = ("lab", "service", "cli")  # everything else is the core


def part_of(path: Path) -> str:
    top = path.relative_to(ROOT).parts[0]
    return top if top in PARTS else "core"


def public_functions() -> set[str]:
    names = {name for name in cq.__all__ if name not in ("__version__",)}
    names |= {
        name for module in ("lab", "worlds", "statistics") for name in getattr(cq, module).__all__
    }
    return names


@pytest.mark.parametrize("package", [ROOT, ROOT / "lab"], ids=["consequential", "lab"])
def test_no_module_hides_a_public_function(package):
    # once `consequential.evaluate` was imported as a module, `cq.evaluate` would be the module
    modules = {path.stem for path in package.glob("*.py")}
    modules |= {path.parent.name for path in package.glob("*/__init__.py")}
    hidden = modules & public_functions()
    assert hidden <= {"lab", "worlds", "differentiable"}  # these are the modules themselves


def test_a_class_name_is_used_once():
    named = Counter(
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    )
    assert [name for name, count in named.items() if count > 1] == []


def test_a_file_name_is_used_once_per_part():
    named = Counter((part_of(path), path.name) for path in SOURCES if path.name != "__init__.py")
    assert [name for name, count in named.items() if count > 1] == []


def test_numba_is_imported_by_kernels_only():
    importing = {
        path.parent
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.Import | ast.ImportFrom)
        and any(
            name.split(".")[0] in ("numba", "llvmlite")
            for name in ([node.module or ""] if isinstance(node, ast.ImportFrom) else [])
            + [alias.name for alias in node.names]
        )
    }
    assert importing == {ROOT / "lab" / "kernels"}
