"""Pages in a real Chromium: light, dark, on a phone, on paper and without JavaScript."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, Page, sync_playwright
from sqlalchemy import select
from trial import Served, Trial, free_port

from consequential.service import schema
from consequential.service.pages.views import PAGES
from consequential.service.settings import ServiceSettings

AXE = (Path(__file__).parent / "axe" / "axe-4.10.3.min.js").read_text(encoding="utf-8")
DESK, PHONE = {"width": 1280, "height": 800}, {"width": 390, "height": 844}
LOOKS: dict[str, dict[str, Any]] = {
    "light": {"viewport": DESK, "color_scheme": "light"},
    "dark": {"viewport": DESK, "color_scheme": "dark"},
    "phone": {"viewport": PHONE, "color_scheme": "light"},
    "without JavaScript": {"viewport": DESK, "java_script_enabled": False},
}
FLAGS = [
    "--no-sandbox",  # tests may run as root
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-default-apps",
    "--disable-sync",
    "--no-first-run",
]
FINDINGS = """axe.run({resultTypes: ["violations"]}).then(found => found.violations
  .filter(each => ["serious", "critical"].includes(each.impact))
  .map(each => each.id + ": " + each.nodes.map(node => node.html).join(" | ")))"""


@pytest.fixture(scope="module")
def trial(page_trial: Trial, tmp_path_factory: pytest.TempPathFactory) -> Trial:
    """A copy of the service, since people change things here."""
    directory = tmp_path_factory.mktemp("browsed") / "service"
    shutil.copytree(page_trial.settings.directory, directory)
    return Trial(ServiceSettings.load(directory), page_trial.keys, page_trial.policy)


@pytest.fixture(scope="module")
def url(trial: Trial) -> Iterator[str]:
    served = Served(trial, free_port(), worker=False)
    yield served.url
    served.kill()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        path = shutil.which("chromium")
        assert path, "make system installs chromium"
        browser = playwright.chromium.launch(executable_path=path, args=FLAGS)
        yield browser
        browser.close()


@dataclass
class Visitor:
    """Somebody who is signed in, and what went wrong on their way."""

    page: Page
    url: str
    wrong: list[str]

    def open(self, place: str) -> None:
        answer = self.page.goto(self.url + place)
        assert answer is not None
        assert answer.status == 200, place

    def check(self, *, script: bool = True) -> None:
        """Nothing sticks out, and axe finds nothing."""
        if script:
            wide = self.page.evaluate("document.documentElement.scrollWidth - innerWidth")
            assert wide <= 0, self.page.url
            self.page.evaluate(AXE)
            assert self.page.evaluate(FINDINGS) == [], self.page.url


@contextmanager
def visitor(browser: Browser, url: str, key: str, **look: Any) -> Iterator[Visitor]:
    """Sign in; at the end nothing was asked of other machines and no error was logged."""
    context = browser.new_context(**look)
    page, wrong = context.new_page(), []
    page.on("request", lambda asked: _is_here(asked.url, url) or wrong.append(asked.url))
    page.on("console", lambda told: told.type == "error" and wrong.append(told.text))
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.goto(url)
    assert page.title().startswith("Sign in")
    page.fill("#key", key)
    page.keyboard.press("Enter")
    page.wait_for_url("**/loops/*")
    yield Visitor(page, url, wrong)
    context.close()
    assert wrong == []


def _is_here(asked: str, url: str) -> bool:
    return urlsplit(asked).netloc == urlsplit(url).netloc


def decision(trial: Trial, *, accepted: bool) -> str:
    store, table = trial.store(), schema.decision
    own = (table.c.loop == "lending") & (table.c.accepted == accepted)
    with store.read() as connection:
        found: str = connection.execute(select(table.c.id).where(own).limit(1)).scalar_one()
    store.close()
    return found


@pytest.mark.parametrize("look", LOOKS)
def test_every_page_opens_without_a_finding(browser, url, trial, look):
    script = "java_script_enabled" not in LOOKS[look]
    with visitor(browser, url, trial.keys["admin"], **LOOKS[look]) as seen:
        for page in PAGES:
            seen.open("/loops/lending" + ("" if page == "overview" else f"/{page}"))
            assert seen.page.locator("nav a[aria-current=page]").inner_text().lower() == page
            assert "Rehearsal" in seen.page.inner_text("main")
            seen.check(script=script)
        seen.open(f"/loops/lending/decision?of={decision(trial, accepted=False)}&replay=1")
        assert "come out" in seen.page.inner_text("[role=status]")
        seen.check(script=script)


@pytest.mark.parametrize("look", ["without JavaScript", "phone"])
def test_a_candidate_is_shared_promoted_and_rolled_back(browser, url, trial, look):
    """In the second round the candidates have ended, and only the roll back is left."""
    script, number = look == "phone", len(trial.deployments())
    change_url = f"{url}/loops/lending/candidates/change"
    with visitor(browser, url, trial.keys["risk"], **LOOKS[look]) as seen:

        def is_in_force() -> None:
            status = seen.page.inner_text("[role=status]")
            assert status == f"Deployment {number} is in force."
            assert len(trial.deployments()) == number

        def change(button: str, confirm: str) -> None:
            nonlocal number
            seen.page.click(f"text={button}")
            assert seen.page.locator("h1").inner_text().endswith("?")
            assert len(trial.deployments()) == number  # nothing is done yet
            number += 1
            seen.check(script=script)
            inputs = seen.page.locator("main form input").all()
            form = {str(each.get_attribute("name")): each.input_value() for each in inputs}
            seen.page.click(f"main form button:text-is('{confirm}')")
            is_in_force()
            again = seen.page.request.post(change_url, form=form, headers={"Origin": url})
            assert f"Deployment {number} is in force." in again.text()  # sent twice
            assert len(trial.deployments()) == number

        seen.open("/loops/lending/candidates")
        if seen.page.locator("text=Promote…").count():
            change("Share…", "Share")
            change("Promote…", "Promote")
            assert "Earlier candidates" in seen.page.inner_text("main")
        change("Roll back…", "Roll back")


def test_somebody_without_a_mouse_gets_everywhere(browser, url, trial):
    with visitor(browser, url, trial.keys["reader"], **LOOKS["light"]) as seen:
        seen.open("/loops/lending")
        reached = set()
        for _ in range(40):
            seen.page.keyboard.press("Tab")
            reached.add(seen.page.evaluate("document.activeElement.innerText"))
        assert {name.capitalize() for name in PAGES} | {"Show", "Sign out", "Numbers"} <= reached
        seen.page.locator("summary").first.focus()
        seen.page.keyboard.press("Enter")
        assert seen.page.locator("figure table").first.is_visible()


def test_the_overview_is_read_again_by_itself(browser, url, trial):
    with visitor(browser, url, trial.keys["reader"], **LOOKS["light"]) as seen:
        seen.open("/loops/lending")
        seen.page.evaluate("document.querySelector('main h1').textContent = 'Old'")
        seen.page.evaluate("refresh()")
        assert seen.page.inner_text("main h1") == "Lending"


def test_a_page_prints_with_its_numbers(browser, url, trial, tmp_path):
    with visitor(browser, url, trial.keys["reader"], **LOOKS["dark"]) as seen:
        seen.open("/loops/lending")
        seen.page.emulate_media(media="print")
        assert not seen.page.locator("nav").is_visible()
        assert seen.page.locator("figure table").first.is_visible()
        assert len(seen.page.pdf()) > 10_000
