"""Support: the people whom a log supports, found by a decision tree, also among new people."""

from __future__ import annotations

import warnings
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from consequential.policy.features import FeaturesError, Floats, PolicyError, row_products

Codes = NDArray[np.intp]

Unsupported = Literal["reject", "as_logged", "trust_model"]

_LARGEST_SHARE = 0.05  # of all weight, that one person may carry
_SMALLEST_FLOOR = 0.05  # a log with this floor supports everybody, however small it is
_PURE = 0.95  # share of supported people from which on a leaf is supported
_LEAF = 10  # people in a leaf at least
_GROWN_ON = 30_000  # people, at most, that the tree is grown on
_NOISE = 5.0  # people, about, that chance alone lets a split tell apart
_FEW = 8  # leaves of a tree that is preferred if it tells everybody apart
_LEAF_NODE = -1

# what describes the nodes of a tree, one value per node
_NODES: dict[str, Any] = {
    "feature": np.intp,
    "threshold": np.float64,
    "left": np.intp,
    "right": np.intp,
    "supported": np.bool_,
    "propensity": np.float64,
}
_DONE = {
    "reject": "rejects",
    "as_logged": "follows the past rule for",
    "trust_model": "extrapolates to",
}


@dataclass(frozen=True, slots=True, eq=False)
class Support:
    """The people whom a log supports, and what a policy does with everybody else.

    A person in a log of N settled decisions is supported if their logged propensity is at least
    `smallest_supported(N)`. A decision tree over the features carries this over to new people. It
    also looks at one linear score of all features, so that it finds the cut of a scorecard as
    exactly as that of a single feature. A leaf counts as supported only if nearly all people in it
    are.

    Attributes
    ----------
    feature, threshold, left, right
        The tree's nodes. A node with a feature sends people whose value is at most the threshold
        to the left; a leaf has feature -1. Numbers beyond the features are first the indicators of
        the policy's groups, if it uses them, and last the linear score.
    supported, propensity
        For each node whether it is supported, and the mean logged propensity in it.
    direction
        Coefficients of the linear score: one per feature, then one per group.
    unsupported
        What the policy does with people whom the log does not support: `"reject"`, `"as_logged"`
        (accept with the leaf's mean logged propensity) or `"trust_model"` (extrapolate).
    smallest
        The smallest logged propensity that counts as supported.
    share
        The share of the log's people whom the tree calls unsupported.

    Examples
    --------
    >>> import numpy as np
    >>> from consequential.policy import Support
    >>> income = np.linspace(0.0, 1.0, 1_000)[:, None]
    >>> logged = np.where(income[:, 0] < 0.2, 0.0, 0.5)  # nobody with a low income was accepted
    >>> found = Support.of(income, logged, n=1_000)
    >>> found.supports(np.array([[0.1], [0.3]]))
    array([False,  True])
    >>> found.share
    0.2
    """

    feature: Codes
    threshold: Floats
    left: Codes
    right: Codes
    supported: NDArray[np.bool_]
    propensity: Floats
    direction: Floats
    unsupported: Unsupported
    smallest: float
    share: float

    def __post_init__(self) -> None:
        for name, dtype in (_NODES | {"direction": np.float64}).items():
            array = np.asarray(getattr(self, name), dtype=dtype)
            array.setflags(write=False)
            object.__setattr__(self, name, array)
        n = len(self.feature)
        if n == 0 or any(getattr(self, name).shape != (n,) for name in _NODES):
            raise PolicyError("a support needs the same number of values for every column of nodes")
        inner = np.flatnonzero(self.feature != _LEAF_NODE)
        children = np.stack([self.left[inner], self.right[inner]])
        # a child comes after its parent, so that no path through the tree is a circle
        if children.size and ((children <= inner).any() or (children >= n).any()):
            raise PolicyError("a support's nodes must come after their parents")
        # the linear score comes after the inputs it is made of
        if self.feature.min() < _LEAF_NODE or self.feature.max() > len(self.direction):
            raise PolicyError("a support's nodes look at features that do not exist")
        shares = [*self.propensity, self.smallest, self.share]
        numbers = [*self.threshold, *self.direction]
        if not (all(0.0 <= each <= 1.0 for each in shares) and np.isfinite(numbers).all()):
            raise PolicyError("a support's numbers must be finite, and its shares in [0, 1]")
        if self.unsupported not in get_args(Unsupported):
            raise PolicyError(
                f"unsupported is one of {', '.join(get_args(Unsupported))}, "
                f"not {self.unsupported!r}"
            )

    @classmethod
    def of(
        cls,
        features: Floats,
        propensity: Floats,
        *,
        n: int,
        unsupported: Unsupported = "reject",
        group: Codes | None = None,
        n_groups: int = 0,
    ) -> Support | None:
        """Return the support of logged people; None where everybody is supported.

        `n` is the number of settled decisions of the complete log, of which these may be a sample;
        `group` is given for policies that use the sensitive attribute.
        """
        smallest = smallest_supported(n)
        supported = propensity >= smallest
        if supported.all():
            return None
        inputs = _with_groups(features, group, n_groups)
        # evenly spaced: which rows these are does not depend on a random state
        grown = np.linspace(0, len(inputs) - 1, min(len(inputs), _GROWN_ON)).astype(np.intp)
        tree, direction = _grown(inputs[grown], supported[grown])
        feature = tree.feature.clip(_LEAF_NODE)
        nodes = feature, tree.threshold, tree.children_left, tree.children_right
        leaf = _leaves(*nodes, _with_score(inputs, direction))
        people = np.maximum(np.bincount(leaf, minlength=len(feature)), 1)
        pure = np.bincount(leaf, supported, len(feature)) >= _PURE * people
        mean = np.bincount(leaf, propensity, len(feature)) / people
        share = float((~pure[leaf]).mean())
        if share == 0.0:
            return None
        return cls(*nodes, pure, mean, direction, unsupported, smallest, share)

    def supports(self, features: Floats, group: Codes | None = None) -> NDArray[np.bool_]:
        """Return for each person whether the log supports people like them."""
        found: NDArray[np.bool_] = self.supported[self._leaf(features, group)]
        return found

    def applied(self, propensity: Floats, features: Floats, group: Codes | None = None) -> Floats:
        """Return a policy's propensities after what is done with unsupported people."""
        if not self.overrules:
            return propensity
        leaf = self._leaf(features, group)
        fixed = self.propensity[leaf] if self.unsupported == "as_logged" else 0.0
        return np.where(self.supported[leaf], propensity, fixed)

    @property
    def overrules(self) -> bool:
        """Whether unsupported people are decided on differently from everybody else."""
        return self.unsupported != "trust_model"

    @property
    def note(self) -> str:
        """What is done with unsupported people, for readers of a report."""
        return (
            f"{self.share:.1%} of the people in the log are of a kind that was accepted with a "
            f"probability below {self.smallest:.3g}: the log does not support them. The policy "
            f"{_DONE[self.unsupported]} them, and new people like them "
            f"(unsupported={self.unsupported!r})"
        )

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values, ready for JSON."""
        values = {column.name: getattr(self, column.name) for column in fields(self)}
        return {
            name: value.tolist() if isinstance(value, np.ndarray) else value
            for name, value in values.items()
        }

    @property
    def in_short(self) -> str:
        """The same for a representation, in a few words."""
        return (
            f"{_DONE[self.unsupported]} people whom its log does not support "
            f"({self.share:.1%} of the log)"
        )

    def __repr__(self) -> str:
        return f"Support({self.in_short})"

    def _leaf(self, features: Floats, group: Codes | None) -> Codes:
        """Return the leaf that each person ends in."""
        inputs = _with_groups(features, group, len(self.direction) - features.shape[1])
        if inputs.shape[1] != len(self.direction):
            raise FeaturesError(
                f"the policy's support looks at {len(self.direction)} inputs (features, and groups "
                f"where the policy uses them), but there are {inputs.shape[1]}"
            )
        inputs = _with_score(inputs, self.direction)
        return _leaves(self.feature, self.threshold, self.left, self.right, inputs)


def smallest_supported(n: int) -> float:
    """Return the smallest logged propensity that counts as supported, of n settled decisions.

    Below `20 / n` one accepted person would carry more than 5% of all weight. In a small log that
    is many people, so it is never more than 0.05, the exploration floor recommended here.

    Examples
    --------
    >>> from consequential.policy.support import smallest_supported
    >>> smallest_supported(20_000), smallest_supported(100)
    (0.001, 0.05)
    """
    return min(1.0 / (_LARGEST_SHARE * n), _SMALLEST_FLOOR)


def _leaves(feature: Codes, threshold: Floats, left: Codes, right: Codes, inputs: Floats) -> Codes:
    """Return the leaf of a tree that each row ends in."""
    node = np.zeros(len(inputs), dtype=np.intp)
    moving = np.flatnonzero(feature[node] != _LEAF_NODE)
    while len(moving):
        at = node[moving]
        goes_left = inputs[moving, feature[at]] <= threshold[at]
        node[moving] = np.where(goes_left, left[at], right[at])
        moving = moving[feature[node[moving]] != _LEAF_NODE]
    return node


def _with_groups(features: Floats, group: Codes | None, n_groups: int) -> Floats:
    """Return features, with an indicator for each group where there are groups."""
    if group is None:
        return features
    return np.column_stack([features, np.eye(n_groups)[group]])


def _with_score(inputs: Floats, direction: Floats) -> Floats:
    return np.column_stack([inputs, row_products(inputs, direction)])


def _direction(inputs: Floats, supported: NDArray[np.bool_]) -> Floats:
    """Return the linear score that best tells supported people from the others."""
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression

    scale = inputs.std(axis=0)
    scale = np.where(scale > 0.0, scale, 1.0)
    # next to no penalty: where a linear cut tells them apart exactly, it should be found
    model = LogisticRegression(C=1e4, solver="newton-cholesky")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", ConvergenceWarning)  # any score is better than none
        model.fit((inputs - inputs.mean(axis=0)) / scale, supported)
    direction: Floats = model.coef_[0] / scale
    return direction


def _grown(inputs: Floats, supported: NDArray[np.bool_]) -> tuple[Any, Floats]:
    """Return a tree that tells supported people from the others, and its linear score."""
    from sklearn.tree import DecisionTreeClassifier

    options = {"min_samples_leaf": min(_LEAF, len(inputs)), "random_state": 0}
    nowhere = np.zeros(inputs.shape[1])
    simple = DecisionTreeClassifier(max_leaf_nodes=_FEW, **options).fit(inputs, supported)
    if simple.tree_.impurity[simple.tree_.feature < 0].max() == 0.0:
        return simple.tree_, nowhere  # a few cuts of single features are the rule
    direction = _direction(inputs, supported)
    # pruned: a tree that isolates single people would call everybody around them unsupported
    tree = DecisionTreeClassifier(ccp_alpha=_NOISE / len(inputs), **options)
    return tree.fit(_with_score(inputs, direction), supported).tree_, direction
