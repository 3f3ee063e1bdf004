"""What is published: a wheel and a source distribution that work without this repository."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tarfile
import venv
import zipfile
from pathlib import Path

import pytest

import consequential as cq

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "consequential"


def run(*command: object, folder: Path) -> subprocess.CompletedProcess[str]:
    """Run a command as somebody would who has never heard of this repository."""
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [str(part) for part in command],
        cwd=folder,
        env=env | {"LOKY_MAX_CPU_COUNT": "1"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done


@pytest.fixture(scope="module")
def dist(tmp_path_factory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    run(sys.executable, "-m", "hatchling", "build", "-d", folder, folder=ROOT)
    return folder


@pytest.fixture(scope="module")
def names(dist) -> list[str]:
    (wheel,) = dist.glob("*.whl")
    with zipfile.ZipFile(wheel) as packed:
        return packed.namelist()


def test_the_wheel_holds_the_package_and_nothing_else(names):
    info = f"consequential-{cq.__version__}.dist-info/"
    assert all(name.startswith(("consequential/", info)) for name in names)
    packed = {name for name in names if name.startswith("consequential/")}
    kept = {
        f"consequential/{file.relative_to(SOURCE)}"
        for file in SOURCE.rglob("*")
        if file.is_file() and "__pycache__" not in file.parts
    }
    assert packed == kept


def test_types_data_and_templates_are_in_the_wheel(names):
    data = ["lab/worlds/data/compas.csv", "lab/worlds/data/SHA256SUMS"]
    wanted = ["py.typed", *data, "report/templates/page.html"]
    assert {f"consequential/{name}" for name in wanted} <= set(names)


def test_the_source_distribution_can_be_tested_and_documented(dist):
    (archive,) = dist.glob("*.tar.gz")
    with tarfile.open(archive) as packed:
        names = {name.split("/", 1)[1] for name in packed.getnames() if "/" in name}
    wanted = ["Makefile", "constraints.txt", "CITATION.cff", "CONTRIBUTING.md", "docs/conf.py"]
    assert {*wanted, "conftest.py", "src/consequential/py.typed"} <= names
    built = ("docs/_build", "docs/examples", "docs/api/generated")
    assert not [name for name in names if name.startswith(built) or "__pycache__" in name]


@pytest.fixture(scope="module")
def installed(dist, tmp_path_factory) -> Path:
    """An environment with the wheel in it, which sees this one's packages as its dependencies."""
    place = tmp_path_factory.mktemp("installed")
    venv.create(place)
    python = place / "bin" / "python"
    (wheel,) = dist.glob("*.whl")
    pip = (sys.executable, "-m", "pip", "--python", python, "install", "--quiet")
    run(*pip, "--no-index", "--no-deps", "--no-compile", wheel, folder=place)
    (site,) = place.glob("lib/python*/site-packages")
    # a path from such a file has its own .pth files left unread: an editable install stays behind
    others = [path for path in sys.path if path.endswith("site-packages")]
    (site / "dependencies.pth").write_text("\n".join(others), encoding="utf-8")
    _bring_compiled(site / "consequential")
    return place


def _bring_compiled(package: Path) -> None:
    """Let kernels that were compiled for the sources serve their copies: a minute saved.

    Numba knows a source by its time and size.
    """
    for file in SOURCE.rglob("*.py"):
        shutil.copystat(file, package / file.relative_to(SOURCE))
    for file in SOURCE.rglob("__pycache__/*.nb?"):
        target = package / file.relative_to(SOURCE)
        target.parent.mkdir(exist_ok=True)
        shutil.copy(file, target)


def test_the_installed_package_runs_the_demo_from_anywhere(installed, tmp_path):
    command = installed / "bin" / "consequential"
    small = ("--seeds", 1, "--steps", 2, "--compas-steps", 1)
    done = run(command, "demo", *small, folder=tmp_path)
    assert "best possible: utility 0.1780" in done.stdout
    assert "6.00/6.00" in done.stderr
    assert "Warning" not in done.stderr
    assert [file.name for file in tmp_path.iterdir()] == ["consequential-report.html"]


def test_what_runs_there_is_what_was_installed(installed, tmp_path):
    python = installed / "bin" / "python"
    where = "import consequential; print(consequential.__file__)"
    done = run(python, "-c", where, folder=tmp_path)
    assert Path(done.stdout.strip()).is_relative_to(installed)
    done = run(python, "-m", "consequential", "--version", folder=tmp_path)
    assert done.stdout == f"consequential {cq.__version__}\n"
