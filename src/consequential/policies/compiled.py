"""Policies for compiled code: their links as numbers."""

from __future__ import annotations

from consequential.kernels.links import LinkNumbers
from consequential.links import LINKS
from consequential.policies.policy import Policy

_NUMBERS = {
    "logistic": (1.0, 0.0),
    "semi_logistic": (1.0, 1.0),
    "smooth_semi_logistic": (2.0, 1.0),
}


def link_numbers(policy: Policy) -> LinkNumbers | None:
    """Return a policy's link as numbers.

    None for a link of the user's own, and for a policy that decides differently on people whom its
    log does not support: then the link does not say everything.
    """
    overruled = policy.support is not None and policy.support.overrules
    if overruled or LINKS.get(policy.link.name) is not policy.link:
        return None
    return LinkNumbers(*_NUMBERS[policy.link.name], policy.floor)
