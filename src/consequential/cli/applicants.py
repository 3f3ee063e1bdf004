"""Applicants: people of a rehearsal, who apply again, with outcomes that are late or missing."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Any

import numpy as np

from consequential.lab.worlds import World
from consequential.lab.worlds.synthetic import FirstSetting, NormalScores
from consequential.service.client import Decision
from consequential.service.settings import period_of, period_start

FEATURE, ATTRIBUTE = "score", "group"
_RETURN, _AGAIN = 0.1, 0.05  # shares who applied in earlier months, or were refused in this one
_MISSING = 0.02  # of labels, which never come
_OVERRIDDEN = 0.03  # of refusals, by somebody who knows more
_DELAY = (5, 80)  # days until an outcome happens

Item = dict[str, Any]


class Downturn(FirstSetting):
    """The first setting in bad times: lower scores, and less repaid at the same score."""

    scores = NormalScores((-1.5, -2.5), 1.0, FirstSetting.bounds)

    def __init__(self) -> None:
        super().__init__(shift=0.4)


@dataclass(frozen=True, slots=True)
class Person:
    """Somebody who may apply, once or more often."""

    subject: str
    score: float
    group: int


@dataclass(frozen=True, slots=True)
class RehearsedApplication:
    """An application at one time, with the label that is observed only if it is accepted."""

    name: str
    person: Person
    time: datetime
    label: int

    def document(self) -> Item:
        """Return what is posted."""
        return {
            "application_id": self.name,
            "subject_id": self.person.subject,
            "features": {FEATURE: self.person.score},
            "time": self.time.isoformat(),
        }


class Applicants:
    """Simulated applicants, and the outcomes of those who are accepted.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.cli.applicants import Applicants
    >>> from consequential.lab.worlds import first_setting
    >>> people = Applicants(np.random.default_rng(0))
    >>> applications = people.apply(first_setting(), "2026-01", [1, 1, 2])
    >>> applications[2].document()["time"]
    '2026-01-02T12:00:00+00:00'
    """

    def __init__(self, rng: np.random.Generator) -> None:
        self._rng = rng
        self._known: list[Person] = []
        self._n_before = 0  # of them who applied before this month
        self._refused: list[Person] = []
        self._month = ""
        self._count = 0  # applications
        self._groups: list[Item] = []
        self._outcomes: dict[str, list[Item]] = defaultdict(list)  # by the month they happen in

    def apply(self, world: World, month: str, days: Sequence[int]) -> list[RehearsedApplication]:
        """Return applications of a month, one for each of these days of it."""
        if month != self._month:
            self._month, self._refused, self._n_before = month, [], len(self._known)
        people = self._people(world, len(days))
        scores = np.array([[person.score] for person in people])
        groups = np.array([person.group for person in people])
        chances = np.asarray(world.label_probability(scores, groups), dtype=np.float64)
        repay = self._rng.random(len(days)) < chances
        noon = period_start(month) + timedelta(days=-1, hours=12)
        applications = [
            RehearsedApplication(f"A-{self._count + k}", person, noon + timedelta(day), int(label))
            for k, (person, day, label) in enumerate(zip(people, days, repay, strict=True), 1)
        ]
        self._count += len(days)
        return applications

    def _people(self, world: World, n: int) -> list[Person]:
        features, groups = (np.asarray(each) for each in world.propose(n, self._rng))
        refused, n_before, found = self._refused, self._n_before, []
        for score, group, chance in zip(features[:, 0], groups, self._rng.random(n), strict=True):
            if chance < _AGAIN and refused:
                found.append(refused[self._rng.integers(len(refused))])
            elif chance > 1.0 - _RETURN and n_before:
                found.append(self._known[self._rng.integers(n_before)])
            else:
                found.append(Person(f"P-{len(self._known) + 1}", float(score), int(group)))
                self._known.append(found[-1])
                told = {"subject_id": found[-1].subject, "attribute": ATTRIBUTE}
                self._groups.append(told | {"value": "ab"[int(group)]})
        return found

    def hear(
        self, applications: Sequence[RehearsedApplication], decisions: Sequence[Decision]
    ) -> list[Item]:
        """Take note of decisions and return overrides: some refused people who repay get a loan."""
        overrides: list[Item] = []
        pairs = list(zip(applications, decisions, strict=True))
        refused = [pair for pair in pairs if not pair[1].accepted]
        self._refused += [application.person for application, _ in refused]
        chances = self._rng.random(len(refused))
        # all from among those who repay
        n_repay = max(sum(application.label for application, _ in refused), 1)
        chance = _OVERRIDDEN * len(refused) / n_repay
        for (application, decision), drawn in zip(refused, chances, strict=True):
            if application.label and drawn < chance:
                told = {"decision_id": decision.id, "accepted": True}
                overrides.append(told | {"why": "known to the branch"})
                self._will_happen(application, decision)
        for application, decision in pairs:
            if decision.accepted and self._rng.random() > _MISSING:
                self._will_happen(application, decision)
        return overrides

    def _will_happen(self, application: RehearsedApplication, decision: Decision) -> None:
        happened = application.time + timedelta(int(self._rng.integers(*_DELAY)))
        told = {"event_id": application.name, "decision_id": decision.id}
        known = {"label": application.label, "happened": happened.isoformat()}
        self._outcomes[period_of("month", happened)].append(told | known)

    def outcomes(self, month: str) -> list[Item]:
        """Return the outcomes of a month, each of them once."""
        return self._outcomes.pop(month, [])

    def groups(self) -> list[Item]:
        """Return the attributes of people who are new since the last time."""
        new, self._groups = self._groups, []
        return new
