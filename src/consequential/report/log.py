"""What a decision log says, in pieces of a page: tables, figures and words beside them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from consequential.evaluation import Comparison, Evaluation, GroupMetrics, Overlap, Sensitivity
from consequential.log import DecisionLog
from consequential.planning import Plan
from consequential.report.page import figure_of, list_of, page_of, paragraphs, table_of
from consequential.report.propensities import against_features, by_group, gradients
from consequential.tradeoff import Frontier

Floats = NDArray[np.float64]

_SHOWN = 6  # features in the figure; the rest change less

_STYLE = """
.notes { background: #fff8e5; border-left: 4px solid #E69F00; padding: .6rem .9rem .6rem 2rem; }
.verdict { font-size: 1.1rem; font-weight: 600; } figure { max-width: 100%; }
details { margin-top: 2rem; } pre { font-size: .8rem; overflow-x: auto; }
"""


@dataclass(frozen=True, slots=True)
class Piece:
    """A heading and what stands below it, HTML already."""

    title: str
    body: str


def log_page(title: str, introduction: str, notes: Sequence[str], pieces: Sequence[Piece]) -> str:
    """Return a whole page; what one must know before relying on it stands at the top."""
    warned = f"<h2>Read this first</h2>{list_of(notes, 'notes')}" if notes else ""
    body = "".join(
        f"<h2>{paragraphs(piece.title)[3:-4]}</h2>{piece.body}" for piece in pieces if piece.body
    )
    return page_of(title, paragraphs(introduction) + warned + body, _STYLE)


def evaluations_table(found: Mapping[str, Evaluation]) -> str:
    """Return rules beside one another: what each is worth, whom it accepts, how far groups are."""
    some = next(iter(found.values()))
    head = ["rule", "utility", "accepted", f"gap, {_words(some.fairness)}", "effective people"]
    rows = [
        [
            name,
            repr(each.utility),
            repr(each.acceptance),
            repr(each.benefit_gap),
            f"{each.effective_sample_size:.0f} of {each.n}",
        ]
        for name, each in found.items()
    ]
    return table_of(head, rows) + paragraphs(
        f"Brackets are {some.confidence:.0%} intervals ({some.method}). Utility is the mean gain "
        "per applicant, everybody counted, the rejected too. Effective people: how many equally "
        f"weighted people would say as much as the weighted labels do.{_sides(some)}"
    )


def benefits_table(found: Evaluation) -> str:
    """Return each group's benefit."""
    if len(found.benefits) < 2:
        return ""
    rows = [
        [
            str(group),
            repr(each),
            str(found.group_sizes[group]),
            f"{found.group_effective_sizes[group]:.0f}",
        ]
        for group, each in found.benefits.items()
    ]
    return table_of(["group", _words(found.fairness), "decisions", "effective people"], rows)


def comparisons_table(found: Mapping[str, Comparison]) -> str:
    """Return what a new rule changes against each of several old ones, on the same rows."""
    rows = [
        [name, repr(each.utility), repr(each.acceptance), repr(each.benefit_gap), each.verdict]
        for name, each in found.items()
    ]
    return table_of(
        ["new less", "utility", "accepted", "gap", "what can be said"], rows
    ) + paragraphs(
        "Differences are taken row by row: where two rules agree nothing is added and nothing is "
        "uncertain, so a difference is known better than either value."
    )


def groups_table(found: GroupMetrics) -> str:
    """Return rates by group, for all applicants."""
    groups = list(found.group_sizes)
    several = len(groups) > 1
    head = ["rate", "everyone", *(str(group) for group in groups if several)]
    head += ["largest difference", "smallest ratio"] if several else []
    rows = []
    for metric, overall in found.overall.items():
        row = [_words(metric), repr(overall)]
        if several:
            row += [repr(found.by_group[metric][group]) for group in groups]
            row += [repr(found.difference[metric]), repr(found.ratio[metric])]
        rows.append(row)
    return table_of(head, rows) + paragraphs(
        "Rates are those of all applicants, corrected for who was accepted. A ratio of selection "
        "rates below 0.8 is a rule of thumb for where to look closer, not a legal test."
    )


def overlap_piece(found: Overlap) -> Piece:
    """Return whether the log explores, and for whom it does not."""
    rows = [found.overall] if len(found.groups) == 1 else [found.overall, *found.groups]
    table = table_of(
        [
            "",
            "people",
            "accepted",
            "effective people",
            f"propensity below {found.floor:g}",
            "smallest propensity",
            "mean weight (1 if propensities are true)",
        ],
        [
            [
                str(row.name),
                str(row.people),
                str(row.accepted),
                f"{row.effective_sample_size:.0f}",
                f"{row.below_floor:.2%}, at most {row.below_floor_high:.2%}",
                f"{row.smallest:.3g}",
                f"{row.mean_weight:.3f}",
            ]
            for row in rows
        ],
    )
    words = {
        "yes": "The log explores: everybody had a chance of acceptance.",
        "partly": "The log explores in part.",
        "no": "The log does not explore: it cannot say what accepting others would bring.",
    }
    worst = paragraphs(f"Worst covered: {found.worst_region}.")
    return Piece(
        "Does the log explore?",
        paragraphs(words[found.exploring])
        + list_of((*found.reasons, *found.concerns))
        + table
        + worst,
    )


def cover_notes(found: Overlap) -> list[str]:
    """Return what is wrong with a log's exploration, a sentence each."""
    said = {"yes": "", "partly": "the log explores in part: ", "no": "the log does not explore: "}
    return [*(said[found.exploring] + reason for reason in found.reasons), *found.concerns]


def propensities_piece(log: DecisionLog, rules: Mapping[str, Floats], shown: str) -> Piece:
    """Return whom the rules accept, by group; and for one of them, by feature."""
    found = gradients(log, rules[shown])
    count = min(_SHOWN, len(found))
    which = "" if count == len(found) else f", the {count} of {len(found)} it goes with most"
    return Piece(
        "Who is accepted",
        figure_of(by_group(log, rules), "Propensities within each group.")
        + figure_of(
            against_features(found[:count]),
            f"Mean propensity under {shown} over quantiles of each feature{which}. What a figure "
            "shows need not be the feature's own doing: features go together.",
        ),
    )


def sensitivity_piece(found: Sensitivity, what: str) -> Piece:
    """Return what hidden reasons for past decisions could change."""
    rows = [
        [f"{gamma:g}", repr(utility), repr(gap)]
        for gamma, utility, gap in zip(found.gammas, found.utility, found.benefit_gap, strict=True)
    ]
    turning = "No such error can turn its sign."
    if np.isfinite(found.flips_at):
        turning = (
            f"It may be 0 once odds are off by {found.flips_at:.2g}, and within its sampling "
            f"error from {found.doubtful_at:.2g} on."
        )
    return Piece(
        "If propensities are wrong",
        paragraphs(
            "Past decisions may have followed something that was not recorded. If that moved the "
            "odds of acceptance by up to the factor on the left, values lie between the two ends; "
            "brackets add sampling error."
        )
        + table_of(["odds off by", what, "gap"], rows)
        + paragraphs(turning),
    )


def plan_table(found: Plan) -> str:
    """Return what exploring costs and how long it takes, a row a floor."""

    def loss(low: float | None, value: float | None, high: float | None) -> str:
        if value is None:
            return "unknown"
        around = "" if low is None or high is None else f" [{low:.2f}, {high:.2f}]"
        return f"{value:.2f}{around}"

    rows = [
        [
            f"{each.floor:g}",
            f"{each.extra_acceptances:.1f}",
            loss(each.loss_low, each.loss, each.loss_high),
            f"{each.worst_loss:.2f}",
            str(each.decisions),
            "" if each.months is None else f"{each.months:.1f}",
            f"{each.total_loss:.1f}",
        ]
        for each in found.options
    ]
    head = [
        "floor",
        "more accepted per 1000",
        "loss per 1000",
        "loss per 1000 if all fail",
        "decisions until proven",
        "months",
        "loss until then",
    ]
    return table_of(head, rows) + paragraphs(
        f"An improvement of {found.improvement:g} per decision counts as proven when its "
        f"{found.confidence:.0%} interval lies above zero; the numbers of decisions give that a "
        f"chance of {found.power:.0%}. Extra acceptances cost nothing where a share "
        f"{found.break_even:.3g} of them has label 1."
    )


def frontier_piece(found: Frontier) -> Piece:
    """Return the trade-off as a figure and a table."""
    ax = found.plot()
    figure = ax.get_figure(root=True)
    assert figure is not None  # a plotted axes has one
    points = (*found.points, *found.references)
    rows = [
        [each.name, repr(each.utility), repr(each.benefit_gap), f"{each.acceptance:.1%}"]
        for each in points
    ]
    words = (
        f"The first {len(found.points)} rows are a {found.confidence:.0%} band: all their "
        "intervals hold at once. Every row is cross-fitted, so a bound that held where a policy "
        "was learned can be missed a little on the people it is judged on."
    )
    return Piece(
        "Utility against the gap",
        figure_of(figure, "Utility against the size of the gap, with the band of all points.")
        + table_of(["", "utility", f"gap, {_words(found.fairness)}", "accepted"], rows)
        + paragraphs(words),
    )


def details_piece(lines: Mapping[str, str]) -> Piece:
    """Return where all this comes from."""
    return Piece("Where this comes from", table_of(["", ""], [[k, v] for k, v in lines.items()]))


def _sides(found: Evaluation) -> str:
    """Say which way a gap between two groups is counted."""
    if len(found.benefits) != 2 or found.fairness == "equalised_odds":
        return ""
    first, second = found.benefits
    return f" The gap is that of {first} less that of {second}."


def _words(name: str) -> str:
    return name.replace("_", " ")
