"""The paper's lending example: FICO scores, by group, with known repayment rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Population
from consequential.lab.worlds.score import ScoreWorld
from consequential.lab.worlds.tables import read_data
from consequential.lab.worlds.world import Parameters
from consequential.policy import DecisionRule, Policy, group_codes
from consequential.policy.links import Link
from consequential.shares import checked_share

if TYPE_CHECKING:
    from consequential.lab.kernels.alias_table import AliasTable

Floats = NDArray[np.float64]

# National percentile of each FICO score, from the report that the data come from.
_FICO = np.arange(300, 851, 50)
_PERCENTILE = [0, 2.1, 6.3, 11.7, 18.2, 26.1, 35.7, 47.7, 61.5, 78.5, 94.3, 100]

_RACES = ("asian", "black", "hispanic", "white")


class Lending(ScoreWorld):
    """Applicants with a FICO score; label 1 is repaid. The only feature is the score.

    The initial model cuts at `initial_threshold`, the paper's xi: harsh ones hide most of the
    people worth lending to.
    """

    name = "lending (FICO)"
    parameters = Parameters(n_proposals=4096, n_iterations=64, batch_size=128, learning_rate=0.5)

    def __init__(self, shares: Mapping[str, float], cost: float, initial_threshold: float) -> None:
        unknown = sorted(set(shares) - set(_RACES))
        if unknown or not shares:
            raise ValueError(f"shares are of the groups {', '.join(_RACES)}, not {unknown}")
        if not (min(shares.values()) > 0 and abs(sum(shares.values()) - 1.0) <= 1e-9):
            raise ValueError(f"the groups' shares are positive and sum to one, not {dict(shares)}")
        self.cost = checked_share("the cost", cost)
        self.initial_threshold = float(initial_threshold)
        self._shares = np.array([shares[group] for group in sorted(shares)])
        self.groups = tuple(sorted(shares))
        table = read_data("fico.csv")
        self.scores: Floats = np.interp(table["percentile"], _PERCENTILE, _FICO)
        self._cdf = np.column_stack([table[f"cdf_{group}"] for group in self.groups])
        self._cdf /= self._cdf[-1]
        self._repaid = np.column_stack([table[f"repaid_{group}"] for group in self.groups])

    def propose(self, n: int, rng: np.random.Generator) -> tuple[Floats, NDArray[Any]]:
        """Draw scores by inverting each group's cumulative distribution."""
        group = rng.choice(len(self.groups), size=n, p=self._shares)
        quantile = rng.random(n)
        score = np.empty(n)
        for code in range(len(self.groups)):
            here = group == code
            score[here] = self.scores[np.searchsorted(self._cdf[:, code], quantile[here])]
        return score[:, None], np.array(self.groups, dtype=object)[group]

    def label_probability(self, features: Floats, sensitive: NDArray[Any]) -> Floats:
        """Return the repayment rate at each score and group."""
        at = np.searchsorted(self.scores, features[:, 0])
        return self._repaid[
            np.minimum(at, len(self.scores) - 1), group_codes(sensitive, self.groups)
        ]

    def cells(self, n_cells: int, closer_to: float | None = None) -> Population:
        """Return the 198 scores the data have: the distribution is discrete."""
        mass = np.diff(self._cdf, axis=0, prepend=0.0) * self._shares
        return Population(self.scores[:, None], mass, self._repaid, self.groups)

    def as_alias_table(self) -> AliasTable:
        """Return the scores of each group, as many people as there are."""
        from consequential.lab.kernels.alias_table import alias_table

        population = self.cells(len(self.scores))
        n_groups = len(self.groups)
        return alias_table(
            population.mass.T.ravel(),
            np.tile(self.scores, n_groups)[:, None],
            np.repeat(np.arange(n_groups), len(self.scores)),
            population.label_probability.T.ravel(),
        )

    def population_for(self, rule: DecisionRule) -> Population:
        """Return the same scores: they integrate every rule."""
        return self.cells(len(self.scores))

    def initial_theta(self, rng: np.random.Generator) -> Floats:
        """Return a predictive model that reaches the cost at the initial threshold."""
        slope = 0.01
        return np.array(
            [np.log(self.cost / (1 - self.cost)) - slope * self.initial_threshold, slope]
        )

    def initial_policy(
        self, link: str | Link = "logistic", *, rng: np.random.Generator | None = None
    ) -> Policy:
        """Return the start, in hundreds of points from the initial threshold."""
        from sklearn.preprocessing import StandardScaler

        hundreds = self.initial_threshold + np.array([[-100.0], [100.0]])
        return Policy([0.0, 1.0], link, StandardScaler().fit(hundreds))


def lending(
    shares: Mapping[str, float] | None = None,
    *,
    cost: float = 0.7,
    initial_threshold: float = 650.0,
) -> Lending:
    """Return the lending world, by default the paper's 80% white and 20% black applicants.

    Examples
    --------
    >>> import consequential as cq
    >>> best = cq.worlds.lending().optimal(among="thresholds")
    >>> round(best.utility, 4), round(best.threshold)
    (0.1434, 595)
    """
    paper = {"white": 0.8, "black": 0.2}
    return Lending(paper if shares is None else shares, cost, initial_threshold)
