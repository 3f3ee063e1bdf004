"""The parametric policy: feature map, link and theta."""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from consequential.policies.checks import checked_cost
from consequential.policies.features import PolicyError
from consequential.policies.frames import named_features
from consequential.policies.links import Link, link_named
from consequential.policies.rules import DecisionRule, Floats, checked_floor
from consequential.policies.support import Support


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
        explores among supported people only: a rule that accepted nobody of a kind may be the law.
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
        About whom the log can speak that the parameters were learned from, and what is done with
        everybody else; None where nothing is (see `Support`).

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
        ):
            object.__setattr__(self, name, value)

    @property
    def uses_sensitive(self) -> bool:
        """Whether the sensitive attribute is an input of the decision."""
        return bool(self.groups)

    def inputs(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """`phi`, one row a person."""
        mapped = self.mapped(features)
        phi = np.empty((mapped.shape[0], mapped.shape[1] + 1))
        phi[:, 0] = 1.0
        phi[:, 1:] = mapped
        if self.groups:
            phi = self._in_group_blocks(phi, sensitive)
        if phi.shape[1] != self.theta.size:
            raise PolicyError(
                f"theta has {self.theta.size} parameters but the features give "
                f"{phi.shape[1]} inputs (intercept included)"
            )
        return phi

    def mapped(self, features: ArrayLike) -> Floats:
        """`T(x)`, one row a person: the inputs without their constant and without groups."""
        mapped = named_features(features, self.feature_names)
        if self.feature_map is not None:
            found = self.feature_map.transform(mapped)
            found = found.toarray() if hasattr(found, "toarray") else found
            mapped = np.ascontiguousarray(found, dtype=np.float64)
        if not np.isfinite(mapped).all():
            raise PolicyError("features must be finite: impute missing values before deciding")
        return mapped

    def _codes(self, sensitive: ArrayLike | None, n: int) -> NDArray[np.intp]:
        """Each person's position among the groups, of a policy that has groups."""
        if sensitive is None:
            raise PolicyError(
                "this policy uses the sensitive attribute: pass `sensitive`, one value a row"
            )
        codes = group_codes(sensitive, self.groups)
        if codes.shape != (n,):
            raise PolicyError(
                f"sensitive has shape {codes.shape} but features has {n} rows: "
                "one value a row is needed"
            )
        return codes

    def _in_group_blocks(self, phi: Floats, sensitive: ArrayLike | None) -> Floats:
        codes = self._codes(sensitive, len(phi))
        blocks = np.zeros((len(phi), len(self.groups), phi.shape[1]))
        blocks[np.arange(len(phi)), codes] = phi
        return blocks.reshape(len(phi), -1)

    def propensity(self, features: ArrayLike, sensitive: ArrayLike | None = None) -> Floats:
        """Probability of a positive decision, a number for each row."""
        found = self.probability(self.inputs(features, sensitive) @ self.theta)
        if self.support is None:
            return found
        return self.support.applied(found, *self._seen(features, sensitive))

    def supports(
        self, features: ArrayLike, sensitive: ArrayLike | None = None
    ) -> NDArray[np.bool_]:
        """Whether the log it was learned from can speak about people like these, for each row.

        Examples
        --------
        >>> import consequential as cq
        >>> cq.Policy([0.0, 1.0]).supports([[0.3], [0.5]])
        array([ True,  True])
        """
        matrix, codes = self._seen(features, sensitive)
        if self.support is None:
            return np.ones(len(matrix), dtype=np.bool_)
        return self.support.supports(matrix, codes)

    def _seen(
        self, features: ArrayLike, sensitive: ArrayLike | None
    ) -> tuple[Floats, NDArray[np.intp] | None]:
        """What a support looks at: features, and groups where the policy uses them."""
        matrix = named_features(features, self.feature_names)
        return matrix, self._codes(sensitive, len(matrix)) if self.groups else None

    def probability(self, eta: Floats) -> Floats:
        """Propensity of supported people as a function of the linear score."""
        base: Floats = self.link.probability(eta)
        return self.floor + (1.0 - self.floor) * base if self.floor else base

    def derivative(self, eta: Floats) -> Floats:
        """Derivative of the propensity in the linear score."""
        base: Floats = self.link.derivative(eta)
        return (1.0 - self.floor) * base if self.floor else base

    def score(self, eta: Floats) -> Floats:
        """Derivative of the log propensity in the linear score."""
        if self.floor:
            return self.derivative(eta) / self.probability(eta)
        base: Floats = self.link.score(eta)
        return base

    def at(self, theta: ArrayLike) -> Policy:
        """Return the same policy with other parameters."""
        return Policy(
            theta,
            self.link,
            self.feature_map,
            floor=self.floor,
            groups=self.groups,
            feature_names=self.feature_names,
            support=self.support,
        )

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


def plain_groups(groups: Any) -> tuple[Hashable, ...]:
    """Groups as a tuple of Python values, each of them once."""
    names = tuple(groups.tolist() if hasattr(groups, "tolist") else groups)
    twice = [name for k, name in enumerate(names) if name in names[:k]]
    if twice:
        raise PolicyError(f"the sensitive group {twice[0]!r} is given twice in {list(names)}")
    return names


def group_codes(sensitive: ArrayLike, groups: Sequence[Hashable]) -> NDArray[np.intp]:
    """Position of each row's group among `groups`; a group that is not there is an error."""
    values = np.asarray(sensitive)
    codes = np.full(values.shape, -1, dtype=np.intp)
    for code, group in enumerate(groups):
        codes[values == group] = code
    if codes.size and codes.min() < 0:
        stranger = values[codes < 0].tolist()[0]
        raise PolicyError(f"unknown sensitive group {stranger!r}; known: {list(groups)}")
    return codes


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
    cost = checked_cost(cost)
    shifted = np.array(theta, dtype=np.float64)
    shifted[0] += np.log((1.0 - cost) / cost)
    return Policy(shifted, link)
