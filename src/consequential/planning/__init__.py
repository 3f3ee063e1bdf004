"""Planning: what exploring costs, and how long until an improvement is proven."""

from consequential.planning.plan import Plan, plan

__all__ = ["Plan", "plan"]
