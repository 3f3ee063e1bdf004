"""The parametric policy: feature map, link and theta."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.policy.features import (
    Floats,
    NamedFeatures,
    PolicyError,
    check_finite,
    framed,
    is_table,
    matched_features,
    row_products,
)
from consequential.policy.group_codes import plain_groups, sensitive_codes
from consequential.policy.links import LINK_NUMBERS, LINKS, Link, LinkNumbers, link_named
from consequential.policy.preparation import Preparation
from consequential.policy.reasons import Reason, reasons_for
from consequential.policy.rules import DecisionRule, checked_floor
from consequential.policy.scores import Scores
from consequential.policy.summary import FeatureSummary
from consequential.policy.support import Support
from consequential.shares import checked_share

_CHUNK = 16_384  # rows whose linear scores are computed at a time


class FeatureMap(Protocol):
    """A fitted scikit-learn transformer."""

    def transform(self, features: Any, /) -> Any:
        """Map a matrix of features to a matrix of inputs."""
        ...


@dataclass(frozen=True, slots=True, eq=False)
class Policy(DecisionRule):
    """Accept with probability `floor + (1 - floor) g(phi(x)·theta)`.

    Parameters
    ----------
    theta
        The parameters, intercept first.
    link
        `"logistic"`, `"semi_logistic"` or `"smooth_semi_logistic"` (or a `Link`).
    feature_map
        A fitted scikit-learn transformer T, for `phi(x) = (1, T(x))`; without one,
        `phi(x) = (1, x)`.
    floor
        The exploration floor: nobody is accepted with a smaller probability. With a support it
        explores among supported people only: that the past rule accepted nobody of some kind may
        have been required by law.
    groups
        Give the sensitive groups here, in the order of theta's blocks, for a policy that uses
        the sensitive attribute: each group then has parameters of its own. Without them (the
        default) the sensitive attribute is not an input.
    learned_from
        Fingerprint of the log the parameters were learned from; empty where they were not.
    feature_names
        Names of the features, in order. The columns of a log or a data frame are then found by
        name, in whatever order they come; `"purpose=car"` is 1 where the column `purpose` says
        `car`. In a plain array they are found by position.
    support
        The people supported by the log that the parameters were learned from, and what is done
        with everybody else (see `Support`); None where nobody is treated differently.
    summary
        Medians and quantiles of the features of the people learned from (`FeatureSummary`), for
        `reasons`; None where nobody was learned from.
    preparation
        What turns raw columns into the features (see `Preparation`). With one, `propensity` and
        `decide` take people as they come, in a data frame, a dict (one person) or a list of
        dicts; a matrix of features that are prepared already is taken as it is.

    Examples
    --------
    >>> import consequential as cq
    >>> policy = cq.Policy([0.5, 2.0], link="semi_logistic")
    >>> policy.propensity([[-1.0], [0.0], [1.0]]).round(4)
    array([0.1824, 1.    , 1.    ])
    >>> policy.with_floor(0.25).propensity([[-50.0]])
    array([0.25])
    """

    theta: Floats
    link: Link
    feature_map: FeatureMap | None
    floor: float
    groups: tuple[Hashable, ...]
    learned_from: str
    feature_names: tuple[str, ...] = ()
    support: Support | None = None
    summary: FeatureSummary | None = None
    preparation: Preparation | None = None

    def __init__(
        self,
        theta: ArrayLike,
        link: str | Link = "logistic",
        feature_map: FeatureMap | None = None,
        *,
        floor: float = 0.0,
        groups: Sequence[Hashable] = (),
        learned_from: str = "",
        feature_names: Sequence[str] = (),
        support: Support | None = None,
        summary: FeatureSummary | None = None,
        preparation: Preparation | None = None,
    ) -> None:
        values = np.array(theta, dtype=np.float64)
        groups = plain_groups(groups)
        if values.ndim != 1 or values.size == 0:
            raise PolicyError(f"theta is a vector of parameters, not of shape {values.shape}")
        if not np.isfinite(values).all():
            raise PolicyError(f"theta must be finite, not {values}")
        if groups and values.size % len(groups):
            raise PolicyError(
                f"theta has {values.size} parameters, which {len(groups)} groups cannot share "
                "equally: give each group as many"
            )
        if feature_map is not None and not hasattr(feature_map, "transform"):
            raise PolicyError(
                f"a feature map is a fitted transformer; {type(feature_map).__name__} "
                "has no transform"
            )
        if preparation is not None:
            feature_names = preparation.feature_names
        values.setflags(write=False)
        for name, value in (
            ("theta", values),
            ("link", link_named(link)),
            ("feature_map", feature_map),
            ("floor", checked_floor(floor)),
            ("groups", groups),
            ("learned_from", str(learned_from)),
            ("feature_names", tuple(str(name) for name in feature_names)),
            ("support", support),
            ("summary", summary),
            ("preparation", preparation),
        ):
            object.__setattr__(self, name, value)

    @property
    def uses_sensitive(self) -> bool:
        """Whether the sensitive attribute is an input of the decision."""
        return bool(self.groups)

    @property
    def raw_columns(self) -> tuple[str, ...]:
        """Names of the raw columns it looks at; those of its features where none are raw."""
        return self.feature_names if self.preparation is None else self.preparation.names

    @property
    def overrules(self) -> bool:
        """Whether it decides differently on people whom its log does not support."""
        return self.support is not None and self.support.overrules

    def inputs(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return `phi`, one row per person."""
        return self._phi(*self._mapped_and_codes(features, sensitive))

    def _mapped_and_codes(
        self, features: ArrayLike, sensitive: ArrayLike | None
    ) -> tuple[Floats, NDArray[np.intp] | None]:
        mapped = self.mapped(features, sensitive)
        codes = sensitive_codes(sensitive, self.groups, len(mapped)) if self.groups else None
        return mapped, codes

    def _phi(self, mapped: Floats, codes: NDArray[np.intp] | None) -> Floats:
        phi = np.ones((len(mapped), mapped.shape[1] + 1))  # rows in one piece, for `row_products`
        phi[:, 1:] = mapped
        if codes is not None:
            blocks = np.zeros((len(phi), len(self.groups), phi.shape[1]))
            blocks[np.arange(len(phi)), codes] = phi
            phi = blocks.reshape(len(phi), -1)
        if phi.shape[1] != self.theta.size:
            raise PolicyError(
                f"theta has {self.theta.size} parameters but the features give "
                f"{phi.shape[1]} inputs (intercept included)"
            )
        return phi

    def mapped(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return `T(x)`, one row per person: the inputs without their constant and groups."""
        mapped = np.asarray(self.looked_at(features))
        if self.feature_map is None:
            check_finite(mapped, self.feature_names)
            return mapped
        if isinstance(self.feature_map, Scores) and self.groups:
            codes = sensitive_codes(sensitive, self.groups, len(mapped))
            found = self.feature_map.transform(mapped, codes)
        else:
            names = getattr(self.feature_map, "feature_names_in_", None)
            found = self.feature_map.transform(mapped if names is None else framed(mapped, names))
        found = found.toarray() if hasattr(found, "toarray") else found
        inputs = np.asarray(found, dtype=np.float64)
        check_finite(inputs, ())
        return inputs

    def linear_score(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return `phi . theta` for each row."""
        mapped, codes = self._mapped_and_codes(features, sensitive)
        # phi of all rows would be a second copy of the features
        chunks = (slice(start, start + _CHUNK) for start in range(0, max(len(mapped), 1), _CHUNK))
        return np.concatenate(
            [
                row_products(
                    self._phi(mapped[rows], None if codes is None else codes[rows]), self.theta
                )
                for rows in chunks
            ]
        )

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Return the probability of a positive decision for each row."""
        features = self.looked_at(features)
        return self.scored(self.linear_score(features, sensitive), features, sensitive)

    def scored(
        self, eta: Floats, features: ArrayLike, sensitive: ArrayLike | None = None
    ) -> Floats:
        """Return the propensities of people whose linear scores are known."""
        found = self.probability(eta)
        if self.support is None:
            return found
        return self.support.applied(found, *self._support_inputs(features, sensitive))

    def supports(
        self, features: ArrayLike, sensitive: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        """Whether the log it was learned from supports people like these, for each row.

        Examples
        --------
        >>> import consequential as cq
        >>> cq.Policy([0.0, 1.0]).supports([[0.3], [0.5]])
        array([ True,  True])
        """
        matrix, codes = self._support_inputs(features, sensitive)
        if self.support is None:
            return np.ones(len(matrix), dtype=np.bool_)
        return self.support.supports(matrix, codes)

    def reasons(
        self, record: Any, sensitive: ArrayLike | None = None, *, most: int = 4
    ) -> tuple[Reason, ...]:
        """Return the features that hold one person's linear score down, those that do most first.

        Each is set to its reference value, the median or the commonest word of the people learned
        from, while all others stay; `most` is how many are returned at most.

        Examples
        --------
        >>> import consequential as cq
        >>> names = ["income", "debt"]
        >>> summary = cq.FeatureSummary.of([[2.0, 1.0], [3.0, 2.0], [4.0, 9.0]], names)
        >>> policy = cq.Policy([0.0, 1.0, -0.2], feature_names=names, summary=summary)
        >>> for reason in policy.reasons({"income": 1.0, "debt": 5.0}):
        ...     print(reason)
        income is 1 (3 would raise the score by 2, the probability to 0.881)
        debt is 5 (2 would raise the score by 0.6, the probability to 0.646)
        """
        found = reasons_for(self, record, sensitive, most=most)
        if len(found) != 1:
            raise PolicyError(f"reasons are given for one person at a time, not for {len(found)}")
        return found[0]

    def _support_inputs(
        self, features: ArrayLike, sensitive: ArrayLike | None
    ) -> tuple[Floats, NDArray[np.intp] | None]:
        matrix = np.asarray(self.looked_at(features))
        codes = sensitive_codes(sensitive, self.groups, len(matrix)) if self.groups else None
        return matrix, codes

    def unfamiliar(self, features: Any) -> tuple[str, ...]:
        """Return a sentence for each value in raw columns that the policy has never seen."""
        found = self.looked_at(features)
        return found.notes if isinstance(found, NamedFeatures) else ()

    def looked_at(self, features: Any) -> Floats:
        """Return the features it looks at: raw columns prepared, prepared ones found by name."""
        own = self.preparation
        if own is not None and is_table(features):
            return own.transform(features)
        if own is not None and isinstance(features, NamedFeatures):
            if features.preparation == own:
                return features
            # the raw columns of a log that was prepared in another way are prepared again
            given = features.preparation is None and set(self.feature_names) <= set(features.names)
            raw = None if given else features.raw_columns(own.names)
            if raw is not None:
                return own.prepared(raw)
        return matched_features(features, self.feature_names)

    def probability(self, eta: Floats) -> Floats:
        """Return the propensity of supported people as a function of the linear score."""
        found: Floats = self.floor + (1.0 - self.floor) * self.link.probability(eta)
        return found

    def derivative(self, eta: Floats) -> Floats:
        """Return the derivative of the propensity in the linear score."""
        found: Floats = (1.0 - self.floor) * self.link.derivative(eta)
        return found

    def log_derivative(self, eta: Floats) -> Floats:
        """Return the derivative of the log propensity in the linear score."""
        if self.floor:
            return self.derivative(eta) / self.probability(eta)
        base: Floats = self.link.log_derivative(eta)
        return base

    def at(self, theta: ArrayLike) -> Policy:
        """Return the same policy with other parameters, which no log has taught yet."""
        return replace(self, theta=np.asarray(theta, dtype=np.float64), learned_from="")

    def with_floor(self, floor: float) -> Policy:
        """Return the same policy with an exploration floor; a policy that learns keeps it."""
        return replace(self, floor=floor)

    def __repr__(self) -> str:
        parts = [f"theta={np.array2string(self.theta, precision=4)}", f"link={self.link.name!r}"]
        if self.feature_map is not None:
            parts.append(f"feature_map={self.feature_map!r}")
        if self.floor:
            parts.append(f"floor={self.floor:g}")
        if self.groups:
            parts.append(f"uses the sensitive attribute, groups={list(self.groups)}")
        if self.support is not None:
            parts.append(self.support.in_short)
        return f"Policy({', '.join(parts)})"


def policies_in(rule: DecisionRule) -> tuple[Policy, ...]:
    """Return the parametric policies of a rule: itself, or those that it combines."""
    if isinstance(rule, Policy):
        return (rule,)
    return tuple(policy for inner in rule.inner_rules for policy in policies_in(inner))


def groups_of(rule: DecisionRule) -> tuple[Hashable, ...]:
    """Return the sensitive groups that a rule knows; empty where it does not look at them."""
    return next((policy.groups for policy in policies_in(rule) if policy.groups), ())


def link_numbers(policy: Policy) -> LinkNumbers | None:
    """Return a policy's link and floor as numbers.

    None for a link of the user's own, and for a policy that decides differently on people whom its
    log does not support: then the link does not say everything.
    """
    if policy.overrules or LINKS.get(policy.link.name) is not policy.link:
        return None
    return LinkNumbers(*LINK_NUMBERS[policy.link.name], policy.floor)


def policy_from_model(theta: ArrayLike, cost: float, link: str | Link = "logistic") -> Policy:
    """Turn a logistic predictive model into a policy that cuts where it predicts the cost.

    The model says `P(y = 1 | x) = sigma(phi . theta)`; moving the intercept by
    `log((1 - c) / c)` puts the policy's even chance where the model predicts c.

    Examples
    --------
    >>> import consequential as cq
    >>> cq.policy_from_model([-3.0, 5.0], cost=0.2).theta
    array([-1.61370564,  5.        ])
    """
    cost = checked_share("the cost", cost)
    shifted = np.array(theta, dtype=np.float64)
    shifted[0] += np.log((1.0 - cost) / cost)
    return Policy(shifted, link)
