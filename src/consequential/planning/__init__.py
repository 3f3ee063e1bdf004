"""Planning: what exploring costs, and how long until an improvement is proven."""

from consequential.planning.options import Option, Plan
from consequential.planning.plan import plan

__all__ = ["Option", "Plan", "plan"]
