"""The package: names that resolve and explain themselves, at next to no cost."""

from __future__ import annotations

import ast
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
MODULES = sorted(ROOT.rglob("*.py"))


def python(program: str) -> str:
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def public(kind) -> list[str]:
    return [name for name in cq.__all__ if kind(getattr(cq, name))]


# --- names


def test_no_public_name_is_given_twice():
    assert len(cq.__all__) == len(set(cq.__all__))


def test_worlds_are_found_although_nothing_imported_them():
    assert python("import consequential as cq; print(cq.worlds.__name__)").strip() == (
        "consequential.worlds"
    )
    assert cq.__getattr__("worlds") is cq.worlds


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
    for name in public(lambda value: inspect.isclass(value) or inspect.isfunction(value)):
        value = getattr(cq, name)
        home = importlib.import_module(".".join(value.__module__.split(".")[:2]))
        assert name in home.__all__


# --- docstrings


def is_documented(name: str) -> bool:
    text = (getattr(cq, name).__doc__ or "").strip()
    # a dataclass without a docstring gets its signature
    return bool(re.match("[A-Z`]", text)) and not text.startswith(f"{name}(")


def test_every_public_name_has_a_docstring_of_its_own():
    names = [name for name in cq.__all__ if name != "__version__"]
    assert not [name for name in names if not is_documented(name)]


def explained(value) -> bool:
    is_error = inspect.isclass(value) and issubclass(value, Exception)
    return (inspect.isclass(value) or inspect.isfunction(value)) and not is_error


def shows_a_result(name: str) -> bool:
    text = inspect.getdoc(getattr(cq, name))
    examples = doctest.DocTestParser().get_examples(text)
    headed = re.search(r"^Examples\n-{8}\n", text, flags=re.MULTILINE)
    return bool(headed) and any(example.want or example.exc_msg for example in examples)


def test_every_public_class_and_function_shows_an_example_with_a_result():
    assert not [name for name in public(explained) if not shows_a_result(name)]


def test_every_module_says_what_it_is():
    opens = {path: path.read_text().lstrip().splitlines()[0] for path in MODULES}
    assert not [path for path, line in opens.items() if not re.match('""".{7}', line)]


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


def test_no_module_has_more_than_400_lines():
    lengths = {str(path.relative_to(ROOT)): len(path.read_text().splitlines()) for path in MODULES}
    assert not {name: length for name, length in lengths.items() if length > 400}


def positional(function: ast.FunctionDef | ast.Lambda) -> list[str]:
    """Return the names of parameters that can be given by position."""
    names = [each.arg for each in (*function.args.posonlyargs, *function.args.args)]
    return names[1:] if names[:1] in (["self"], ["cls"]) else names


def test_no_function_takes_more_than_6_positional_parameters_and_no_kernel_more_than_8():
    long = []
    for path in MODULES:
        most = 8 if path.is_relative_to(ROOT / "kernels") else 6
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.FunctionDef | ast.Lambda) and len(positional(node)) > most:
                name = getattr(node, "name", "lambda")
                long.append(f"{path.relative_to(ROOT)}:{node.lineno} {name}")
    assert not long


def test_every_module_can_be_imported():
    names = [m.name for m in pkgutil.walk_packages([str(ROOT)], "consequential.")]
    assert "consequential.simulation.runs" in names
    for name in names:
        if not name.endswith("__main__"):
            importlib.import_module(name)


def test_types_are_announced():
    assert (ROOT / "py.typed").exists()
