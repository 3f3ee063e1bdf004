"""Planning: what exploring costs, and how long until an improvement is proven."""

from consequential.planning.plan import Option, Plan, plan

__all__ = ["Option", "Plan", "plan"]
