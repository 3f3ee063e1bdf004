"""Claims of the paper, each tested by code on stored results or by enumeration."""

from __future__ import annotations

from typing import TYPE_CHECKING

from consequential.paper import truths
from consequential.paper.claims import exact, lending, over_time, penalty
from consequential.paper.claims.claim import (
    FAILS,
    HOLDS,
    NOT_RUN,
    Case,
    Checked,
    Claim,
    Finding,
    Measured,
    verdict_of,
)

if TYPE_CHECKING:
    from consequential.paper.results import Results

CLAIMS: tuple[Claim, ...] = (
    *exact.THEOREMS,
    *lending.CLAIMS,
    *over_time.SYNTHETIC_CLAIMS,
    *penalty.synthetic_claims(),
    *(
        claim
        for name in truths.ORIENTATIONS
        for claim in (
            *over_time.compas_claims(name),
            *penalty.compas_claims(name),
            exact.compas_claim(name),
        )
    ),
)


def check_claims(results: Results) -> list[Checked]:
    """Test every claim on what there is."""
    return [claim.check(results) for claim in CLAIMS]


__all__ = [
    "CLAIMS",
    "FAILS",
    "HOLDS",
    "NOT_RUN",
    "Case",
    "Checked",
    "Claim",
    "Finding",
    "Measured",
    "check_claims",
    "verdict_of",
]
