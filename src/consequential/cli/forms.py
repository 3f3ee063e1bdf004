"""Forms: options about the policies that are learned."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

from consequential.cli.arguments import at_least_two, not_negative, share

if TYPE_CHECKING:
    from consequential.estimator import FairPolicyLearner

_LINKS = ("logistic", "smooth_semi_logistic", "semi_logistic")


def add_form(parser: argparse.ArgumentParser) -> argparse._ArgumentGroup:
    """Add what policies look like, and return the group of these options for more."""
    group = parser.add_argument_group("policy")
    add = group.add_argument
    add("--link", choices=_LINKS, default="logistic", help="from a score to a probability")
    bend = group.add_mutually_exclusive_group().add_argument
    bend("--spline", type=at_least_two, metavar="K", help="a spline with K knots in each feature")
    bend(
        "--polynomial",
        type=at_least_two,
        metavar="D",
        help="products of features up to degree D",
    )
    add(
        "--uses-sensitive",
        action="store_true",
        help="let each group have parameters of its own: the policy then decides by the "
        "sensitive attribute",
    )
    add(
        "--l2",
        type=not_negative,
        default=1e-8,
        help="shrinkage; 1e-3, say, makes policies less steep, which keep bounds better on others",
    )
    add("--floor", type=_floor, default=0.0, help="nobody is accepted with less probability")
    add(
        "--unsupported",
        choices=("reject", "as_logged", "trust_model"),
        default="reject",
        help="people like whom the log accepts nobody: reject them, do as the past rule did, or "
        "extrapolate from others",
    )
    return group


def learner_of(options: argparse.Namespace, question: dict[str, Any]) -> FairPolicyLearner:
    """Return the learner of such policies for a question."""
    from consequential.estimator import FairPolicyLearner

    return FairPolicyLearner(
        cost=question["cost"],
        fairness=question["fairness"],
        weighting=question["weighting"],
        link=options.link,
        feature_map=_feature_map(options),
        l2=options.l2,
        floor=options.floor,
        unsupported=options.unsupported,
        uses_sensitive=options.uses_sensitive,
        random_state=options.seed,
    )


def _feature_map(options: argparse.Namespace) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import PolynomialFeatures, SplineTransformer, StandardScaler

    if options.spline is not None:
        return SplineTransformer(n_knots=options.spline, include_bias=False)
    if options.polynomial is not None:
        # products of amounts in thousands would drown everything else
        return make_pipeline(
            StandardScaler(), PolynomialFeatures(options.polynomial, include_bias=False)
        )
    return None


def _floor(text: str) -> float:
    return 0.0 if not_negative(text) == 0.0 else share(text)
