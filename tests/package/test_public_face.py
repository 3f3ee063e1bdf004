"""The package: names that resolve and explain themselves, at next to no cost."""

from __future__ import annotations

import doctest
import importlib
import inspect
import pkgutil
import re
import subprocess
import sys
from pathlib import Path

import pytest

import consequential as cq

ROOT = Path(cq.__file__).parent
SOURCES = sorted(ROOT.rglob("*.py"))


def python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


MODULES = {name: getattr(cq, name) for name in cq.__all__ if inspect.ismodule(getattr(cq, name))}
MODULES |= {
    f"lab.{name}": getattr(cq.lab, name) for name in ("differentiable", "sequences", "steps")
}
# every public name by its address: "evaluate", "fairness.DemographicParity"
PUBLIC = {
    name: getattr(cq, name) for name in cq.__all__ if name not in ("__version__", *MODULES)
} | {
    f"{module}.{name}": getattr(value, name)
    for module, value in MODULES.items()
    for name in value.__all__
    if not inspect.ismodule(getattr(value, name))
}


def public(kind) -> list[str]:
    return [address for address, value in PUBLIC.items() if kind(value)]


# --- names


def test_no_public_name_is_given_twice():
    names = [*cq.__all__, *(name for module in MODULES.values() for name in module.__all__)]
    assert cq.lab.worlds is cq.worlds  # the one module that is found in two places
    assert sorted(names) == sorted([*set(names), "worlds"])


def test_the_top_level_stays_small():
    assert len(cq.__all__) <= 56


@pytest.mark.parametrize("name", MODULES)
def test_a_public_module_is_found_although_nothing_imported_it(name):
    program = f"import consequential as cq; print(cq.{name}.__name__)"
    assert python(program).strip() == MODULES[name].__name__


def test_names_can_be_imported_from_a_public_module():
    assert python(
        "from consequential.objective.weightings import Clipped; print(Clipped(3.0))"
    ).strip() == ("Clipped(maximum=3.0)")


def test_dir_lists_the_public_names():
    assert dir(cq) == sorted(cq.__all__)


def test_everything_can_be_imported_at_once():
    names: dict[str, object] = {}
    exec("from consequential import *", names)
    assert set(cq.__all__) - {"__version__"} <= set(names)


@pytest.mark.parametrize("name", ["Simulate", "fit", "_nothing", "__wrapped__"])
def test_an_unknown_name_is_an_attribute_error_that_names_it(name):
    with pytest.raises(AttributeError, match=f"'consequential' has no attribute '{name}'"):
        getattr(cq, name)


def test_an_unknown_name_cannot_be_imported():
    with pytest.raises(ImportError, match="cannot import name 'nonsense'"):
        exec("from consequential import nonsense")


def test_the_version_is_three_numbers():
    assert re.fullmatch(r"\d+\.\d+\.\d+", cq.__version__)


def test_public_names_live_in_public_packages():
    for package in (cq, cq.lab):
        for name, home in package._HOME.items():
            assert name in importlib.import_module(f"{package.__name__}.{home}").__all__


# --- docstrings


@pytest.mark.parametrize("address", [*PUBLIC, *MODULES])
def test_every_public_name_has_a_docstring_of_its_own(address):
    value = PUBLIC.get(address) or MODULES[address]
    assert value.__doc__
    assert value.__doc__.strip()[0].isupper() or value.__doc__.strip()[0] == "`"
    # a dataclass without one gets its signature, an exception its parent's
    assert not value.__doc__.startswith(f"{address.split('.')[-1]}(")


def explained(value) -> bool:
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    return (inspect.isclass(value) or inspect.isfunction(value)) and not is_error


@pytest.mark.parametrize("address", public(explained))
def test_every_public_class_and_function_shows_an_example(address):
    text = inspect.getdoc(PUBLIC[address])
    assert re.search(r"^Examples\n-{8}\n", text, flags=re.MULTILINE)
    examples = doctest.DocTestParser().get_examples(text)
    assert examples
    assert any(example.want or example.exc_msg for example in examples), "shows no result"


def test_every_module_says_what_it_is():
    for path in SOURCES:
        first = path.read_text().lstrip().splitlines()[0]
        assert first.startswith('"""'), path
        assert len(first) > 10, path


# --- the cost of importing


def test_importing_the_package_imports_nothing_heavy():
    program = "import sys, consequential; print(*sorted({m.split('.')[0] for m in sys.modules}))"
    loaded = set(python(program).split())
    heavy = {"numpy", "scipy", "sklearn", "matplotlib", "pyarrow", "pandas", "polars", "numba"}
    assert "consequential" in loaded
    assert not loaded & (heavy | {"narwhals", "joblib", "tqdm", "threadpoolctl"})


def test_listing_the_names_imports_nothing_either():
    program = """
import sys, consequential
assert "simulate" in dir(consequential) and consequential.__version__
print([m for m in sys.modules if m.startswith("consequential.")], "numpy" in sys.modules)
"""
    assert python(program).strip() == "[] False"


def test_a_policy_needs_neither_plots_nor_tables_nor_sklearn():
    program = """
import sys, consequential as cq
cq.Policy([0.0, 1.0]).propensity([[0.5]])
heavy = ("sklearn", "matplotlib", "pyarrow", "pandas", "scipy")
print([m for m in heavy if m in sys.modules])
"""
    assert python(program).strip() == "[]"


def test_the_command_line_answers_without_loading_anything():
    program = """
import sys
from consequential.cli import main
try:
    main(["--version"])
except SystemExit:
    print("numpy" in sys.modules)
"""
    assert python(program).splitlines() == [f"consequential {cq.__version__}", "False"]


# --- the source


@pytest.mark.parametrize("path", SOURCES, ids=lambda path: str(path.relative_to(ROOT)))
def test_a_module_fits_in_a_head(path):
    assert len(path.read_text().splitlines()) <= 400


def test_every_module_can_be_imported():
    names = [m.name for m in pkgutil.walk_packages([str(ROOT)], "consequential.")]
    assert "consequential.lab.simulation.runs" in names
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)


def test_types_are_announced():
    assert (ROOT / "py.typed").exists()
