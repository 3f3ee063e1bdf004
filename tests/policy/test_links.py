"""Links against 250-digit arithmetic, and at the far ends of the number line."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal, localcontext
from types import SimpleNamespace

import numpy as np
import pytest
from numpy.testing import assert_allclose, assert_array_equal

from consequential.policy.links import (
    LINK_NUMBERS,
    LINKS,
    LOGISTIC,
    SEMI_LOGISTIC,
    SMOOTH_SEMI_LOGISTIC,
    LinkNumbers,
    link_named,
    responses,
)

ETAS = [-200.0, -60.0, -30.0, -5.0, -1.0, -0.1, -1e-9, 1e-9, 0.1, 1.0, 5.0, 30.0, 60.0, 200.0]
DIGITS, STEP = 250, Decimal("1e-30")


def sigma(eta: Decimal) -> Decimal:
    return 1 / (1 + (-eta).exp())


TRUTH: dict[str, Callable[[Decimal], Decimal]] = {
    "logistic": sigma,
    "semi_logistic": lambda eta: sigma(eta) if eta < 0 else Decimal(1),
    "smooth_semi_logistic": lambda eta: min(Decimal(1), 2 * sigma(eta)),
}


def exactly(function: Callable[[Decimal], Decimal]) -> list[float]:
    with localcontext(prec=DIGITS):
        return [float(function(Decimal(eta))) for eta in ETAS]


def slope(function: Callable[[Decimal], Decimal]) -> Callable[[Decimal], Decimal]:
    return lambda eta: (function(eta + STEP) - function(eta - STEP)) / (2 * STEP)


@pytest.fixture(params=LINKS.values(), ids=LINKS)
def link(request):
    return request.param


def test_every_link_has_an_exact_reference():
    assert LINKS.keys() == TRUTH.keys()


def test_the_probability_is_exact_to_the_last_digits(link):
    assert_allclose(link.probability(np.array(ETAS)), exactly(TRUTH[link.name]), rtol=1e-15)


def test_the_derivative_is_that_of_the_probability(link):
    truth = slope(TRUTH[link.name])
    assert_allclose(link.derivative(np.array(ETAS)), exactly(truth), rtol=1e-14)


def test_the_score_is_the_derivative_of_the_log_probability(link):
    truth = slope(lambda eta: TRUTH[link.name](eta).ln())
    assert_allclose(link.log_derivative(np.array(ETAS)), exactly(truth), rtol=1e-14)


def test_the_score_is_the_derivative_over_the_probability(link):
    eta = np.linspace(-700.0, 700.0, 1401)
    assert_allclose(
        link.log_derivative(eta), link.derivative(eta) / link.probability(eta), rtol=1e-14
    )


@pytest.mark.parametrize("size", [1e3, 1e308, np.inf])
def test_a_huge_score_gives_the_limit_and_no_warning(link, size):
    eta = np.array([-size, size])
    assert_array_equal(link.probability(eta), [0.0, 1.0])
    assert_array_equal(link.derivative(eta), [0.0, 0.0])
    assert_array_equal(link.log_derivative(eta), [1.0, 0.0])


def test_a_higher_score_never_lowers_the_probability(link):
    probability = link.probability(np.linspace(-750.0, 750.0, 30_001))
    assert (np.diff(probability) >= 0.0).all()
    assert probability.min() >= 0.0
    assert probability.max() <= 1.0


JUST_BELOW_AND_AT_ZERO = np.array([-np.finfo(float).tiny, 0.0, -0.0])


def test_the_semi_logistic_link_jumps_from_one_half_to_one_at_zero():
    assert_array_equal(SEMI_LOGISTIC.probability(JUST_BELOW_AND_AT_ZERO), [0.5, 1.0, 1.0])


@pytest.mark.parametrize(
    ("smooth", "at_zero"), [(SMOOTH_SEMI_LOGISTIC, 1.0), (LOGISTIC, 0.5)], ids=["semi", "logistic"]
)
def test_the_smooth_links_do_not_jump_at_zero(smooth, at_zero):
    assert_array_equal(smooth.probability(JUST_BELOW_AND_AT_ZERO), [at_zero] * 3)


@pytest.mark.parametrize("semi", [SEMI_LOGISTIC, SMOOTH_SEMI_LOGISTIC], ids=lambda v: v.name)
def test_people_accepted_for_certain_pull_no_gradient(semi):
    assert_array_equal(semi.derivative(np.array([0.0, 2.0])), [0.0, 0.0])
    assert_array_equal(semi.log_derivative(np.array([0.0, 2.0])), [0.0, 0.0])


class Foreign:
    """An array of another library, with the operators and functions of the array API only."""

    def __init__(self, values):
        self.values = np.asarray(values)

    def __array_namespace__(self):
        return SimpleNamespace(
            exp=lambda a: Foreign(np.exp(a.values)),
            abs=lambda a: Foreign(np.abs(a.values)),
            where=lambda c, a, b: Foreign(np.where(c.values, bare(a), bare(b))),
        )

    __array__ = None  # NumPy may not turn it into one of its own
    __array_ufunc__ = None

    def __neg__(self):
        return Foreign(-self.values)

    def __ge__(self, other):
        return Foreign(self.values >= bare(other))

    def __add__(self, other):
        return Foreign(self.values + bare(other))

    def __mul__(self, other):
        return Foreign(self.values * bare(other))

    def __truediv__(self, other):
        return Foreign(self.values / bare(other))

    def __pow__(self, other):
        return Foreign(self.values ** bare(other))

    __radd__, __rmul__ = __add__, __mul__


def bare(value):
    return value.values if isinstance(value, Foreign) else value


@pytest.mark.parametrize("part", ["probability", "derivative", "log_derivative"])
def test_a_link_uses_nothing_beyond_the_array_api(link, part):
    function = getattr(link, part)
    result = function(Foreign(ETAS))
    assert isinstance(result, Foreign)
    assert_array_equal(result.values, function(np.array(ETAS)))


@pytest.mark.parametrize("part", ["probability", "derivative", "log_derivative"])
def test_single_precision_stays_single(link, part):
    assert getattr(link, part)(np.float32([-1.0, 1.0])).dtype == np.float32


@pytest.mark.parametrize("name", LINKS)
def test_a_link_is_found_by_name_and_passes_through_as_itself(name):
    assert link_named(name) is LINKS[name]
    assert link_named(LINKS[name]) is LINKS[name]


def test_an_unknown_link_is_answered_with_the_known_ones():
    words = "unknown link 'probit'; choose one of logistic, semi_logistic, smooth_semi_logistic"
    with pytest.raises(ValueError, match=words):
        link_named("probit")


def test_a_known_link_stays_itself_in_another_process():
    import pickle

    for link in LINKS.values():
        assert pickle.loads(pickle.dumps(link)) is link


def test_a_link_of_ones_own_is_copied_whole():
    import copy

    from consequential.policy.links import Link

    own = Link("own", np.tanh, np.cosh, np.sinh)
    assert copy.deepcopy(own) == own


@pytest.mark.parametrize("floor", [0.0, 0.1])
def test_a_links_numbers_give_its_propensities_and_derivatives(link, floor):
    eta = np.array([*ETAS, 0.0, -0.0, -1e3, 1e3])
    propensity, derivative = responses(LinkNumbers(*LINK_NUMBERS[link.name], floor), eta)
    assert_allclose(propensity, floor + (1.0 - floor) * link.probability(eta), rtol=1e-15)
    expected = (1.0 - floor) * link.derivative(eta)
    assert_allclose(derivative, expected, rtol=1e-14, atol=1e-300)
