"""The documentation: every page is found, every link leads somewhere, every program runs."""

from __future__ import annotations

import inspect
import re
import runpy
import subprocess
import sys
from collections.abc import Iterator
from html.parser import HTMLParser
from importlib import import_module
from pathlib import Path
from types import ModuleType

import numpy as np
import pandas as pd
import pytest

import consequential as cq
from consequential.cli import command_parser

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
BUILT = ("_build", "examples", "api/generated")  # by Sphinx, in the same folder


def pages() -> list[Path]:
    """The pages of the site that people write."""
    built = [DOCS / folder for folder in BUILT]
    return sorted(
        page
        for page in DOCS.rglob("*.md")
        if not any(page.is_relative_to(folder) for folder in built)
    )


PAGES = pages()
NAMES = [str(page.relative_to(DOCS)) for page in PAGES]
GALLERY = sorted((DOCS / "gallery").glob("*.py"))


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


# --- pages


def test_the_settings_of_the_site_can_be_read():
    settings = runpy.run_path(str(DOCS / "conf.py"))
    assert settings["release"] == cq.__version__
    assert settings["sphinx_gallery_conf"]["examples_dirs"] == "gallery"


def test_every_page_is_in_a_table_of_contents_once():
    entries = [
        str((page.parent / line).relative_to(DOCS))
        for page in PAGES
        for tree in re.findall(r"```\{toctree\}\n(.*?)```", text_of(page), flags=re.DOTALL)
        for line in tree.splitlines()
        if line and not line.startswith(":")
    ]
    written = [name.removesuffix(".md") for name in NAMES if name != "index.md"]
    assert sorted(entries) == sorted([*written, "examples/index"])  # the gallery is built


def anchors(page: Path) -> set[str]:
    """Names of a page's headings, as they stand in links."""
    without_code = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    headings = re.findall(r"^#+ (.*)$", without_code, flags=re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def broken_links(page: Path) -> list[str]:
    """Targets of a page's links, to files of this repository, that do not exist."""
    prose = re.sub(r"```.*?```", "", text_of(page), flags=re.DOTALL)
    broken = []
    for target in re.findall(r"\]\(([^)\s]+)\)", prose):
        file, _, anchor = target.partition("#")
        place = (page.parent / file).resolve() if file else page
        is_web = re.match(r"[a-z]+:", target)
        if not is_web and not (place.exists() and (not anchor or anchor in anchors(place))):
            broken.append(f"{page.relative_to(ROOT)}: {target}")
    return broken


def test_every_link_of_a_page_leads_somewhere():
    others = (ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))
    assert not [link for page in (*PAGES, *others) for link in broken_links(page)]


def public_modules(module: ModuleType) -> Iterator[tuple[ModuleType, list[str]]]:
    """Yield a module with its public names, and those that are names of it."""
    values = {name: getattr(module, name) for name in module.__all__ if name != "__version__"}
    yield module, sorted(name for name, value in values.items() if not inspect.ismodule(value))
    for value in values.values():
        if inspect.ismodule(value):
            yield from public_modules(value)


def test_every_public_name_has_a_place_in_the_reference():
    text = "".join(text_of(page) for page in sorted((DOCS / "api").glob("*.md")))
    found: dict[str, list[str]] = {}
    for block in re.findall(r"```\{eval-rst\}\n(.*?)```", text, flags=re.DOTALL):
        (module,) = re.findall(r"currentmodule:: (\S+)", block)
        names = re.findall(r"^   (\w+)$", block, flags=re.MULTILINE)
        found[module] = sorted(found.get(module, []) + names)
    public = {module.__name__: names for module, names in public_modules(cq)}
    assert {module: found.get(module) for module in public} == public
    # others are read (the service's client) or met as results (reasons), so no list has them
    for module in set(found) - set(public):
        assert not [name for name in found[module] if not hasattr(import_module(module), name)]


def commands() -> list[str]:
    (names,) = (action.choices for action in command_parser()._actions if action.choices)
    return list(names)


def test_every_command_is_on_the_page_about_commands():
    text = text_of(DOCS / "command-line.md")
    assert not [command for command in commands() if f"| `{command}` |" not in text]


def test_the_version_to_cite_is_this_one():
    assert f"\nversion: {cq.__version__}\n" in text_of(ROOT / "CITATION.cff")


# --- programs


def programs() -> list[tuple[str, str]]:
    """Python blocks that are no doctests; those of ten-minutes have a test of their own."""
    return [
        (name, block)
        for name, page in zip(NAMES, PAGES, strict=True)
        for block in re.findall(r"```python\n(.*?)```", text_of(page), flags=re.DOTALL)
        if ">>> " not in block and name != "ten-minutes.md"
    ]


@pytest.fixture
def at_hand(tmp_path, monkeypatch):
    """What pages take for granted: a log in a file, and results of the paper."""
    rng = np.random.default_rng(0)
    approved = rng.random(400) < 0.5
    people = {"income": rng.normal(size=400), "debt": rng.exponential(size=400)}
    people |= {"sex": rng.choice(["f", "m"], size=400), "approved": approved.astype(int), "p": 0.5}
    people["repaid"] = np.where(approved, rng.random(400) < 0.6, np.nan)
    monkeypatch.syspath_prepend(str(ROOT / "tests" / "lab" / "paper"))
    from handmade_results import penalty_runs, results_in, time_runs

    studies = {"first-time": time_runs("first"), "compas-penalty": penalty_runs("compas")}
    results_in(tmp_path / "consequential-paper", studies)
    monkeypatch.chdir(tmp_path)
    frame = pd.DataFrame(people)
    frame.to_csv("loans.csv", index=False)
    return {"cq": cq, "np": np, "frame": frame}


@pytest.mark.parametrize(("page", "program"), programs(), ids=[page for page, _ in programs()])
def test_the_programs_of_pages_run(page, program, at_hand):
    exec(program, at_hand)


# these learn by every method or trace a frontier, as other tests do; the site runs them too
LONG = ("b_frontier", "g_candidates", "k_money")


@pytest.mark.parametrize(
    "example",
    [pytest.param(each, marks=pytest.mark.slow) if each.stem in LONG else each for each in GALLERY],
    ids=lambda example: example.stem,
)
def test_the_examples_of_the_gallery_run_and_draw(example, monkeypatch, tmp_path):
    import matplotlib.pyplot as plt

    monkeypatch.chdir(tmp_path)
    plt.close("all")
    runpy.run_path(str(example), run_name="__main__")
    assert plt.get_fignums()
    plt.close("all")


# --- your own log in ten minutes


def words(text: str) -> set[str]:
    """What was said, whatever the figures, dates and digests."""
    without_figures = re.sub(r"\b[0-9a-f]{64}\b|\d[\d.,-]*", " ", text)
    return set(re.findall(r"[^\W\d]+", without_figures))


def test_ten_minutes_go_as_the_page_says_and_end_in_what_a_signer_asks_for(tmp_path):
    page = text_of(DOCS / "ten-minutes.md").replace("n = 60_000\n", "n = 12_000\n")
    assert "n = 12_000\n" in page  # fewer rows are quicker, and the words stay
    run_again = runpy.run_path(str(ROOT / "tools" / "transcript.py"))["run_again"]
    assert words(run_again(page, tmp_path)) == words(page)
    report = (tmp_path / "consequential-fit" / "report.html").read_text(encoding="utf-8")
    table = text_of(DOCS / "sign-off.md").partition("## Questions to ask")[2]
    sections = set(re.findall(r"\*\*(.*?)\*\*", table))
    assert len(sections) > 5
    assert sections <= set(re.findall(r"<h2>(.*?)</h2>", report))


# --- the site


class Addresses(HTMLParser):
    """What a page loads, and where it links to."""

    def __init__(self) -> None:
        super().__init__()
        self.loaded: list[str] = []
        self.linked: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        found = dict(attrs)
        if tag in ("script", "img", "iframe") and found.get("src"):
            self.loaded.append(str(found["src"]))
        if tag == "link" and found.get("rel") in ("stylesheet", "preload", "icon"):
            self.loaded.append(str(found["href"]))
        if tag == "a" and found.get("href"):
            self.linked.append(str(found["href"]))


@pytest.mark.slow
def test_the_site_builds_without_a_warning_and_needs_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("sphinx_gallery", reason="pip install consequential[docs]")
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-W", "--keep-going", "-q", "docs", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    for page in tmp_path.rglob("*.html"):
        addresses = Addresses()
        addresses.feed(page.read_text(encoding="utf-8"))
        assert not [each for each in addresses.loaded if re.match(r"(https?:)?//", each)], page
        for link in addresses.linked:
            file = re.split(r"[#?]", link)[0]
            if file and not re.match(r"[a-z]+:", file):
                assert (page.parent / file).exists(), (page, link)
