"""Draw docs/figures/architecture.svg: the three parts, their packages, and who imports whom."""

from __future__ import annotations

from pathlib import Path

CORE = [
    ("report", "pages, model cards"),
    ("tradeoff", "frontier, baselines"),
    ("learning", "FairPolicyLearner"),
    ("planning", "plan"),
    ("evaluation", "estimates, intervals"),
    ("objective", "sums, fairness, weightings"),
    ("log", "decision logs"),
    ("policy", "rules, links, their files"),
    ("workers, files", "shared tools"),
    ("tables, plotting", "shared tools"),
]
LAB = [
    ("paper", "studies, claims"),
    ("simulation", "simulate, Runs"),
    ("differentiable", "JAX"),
    ("algorithm", "Algorithm 1"),
    ("worlds", "a known truth"),
    ("kernels", "compiled loops"),
]
SERVICE = [
    ("api, pages", "HTTP"),
    ("writer, deciding", "decisions, their log"),
    ("outcomes, cohorts", "labels that arrive"),
    ("learning, gate", "candidates, proof"),
    ("policies, keys", "a second person approves"),
    ("guardrails, alarms", "what went wrong"),
]
WIDTH, MARGIN, GAP, HALF = 900, 20, 60, 400
BOX, SPACE, HEAD = 42, 8, 44
FONT = 'font-family="sans-serif"'


def text(x: float, y: float, size: int, words: str, look: str = "") -> str:
    """Return centred words."""
    place = f'x="{x:.0f}" y="{y:.0f}" text-anchor="middle"'
    return f'<text {place} {FONT} font-size="{size}"{look}>{words}</text>'


def part(x: int, y: int, title: str, boxes: list[tuple[str, str]]) -> tuple[list[str], int]:
    """Return the drawing of a part, two packages side by side, and its height."""
    width = (HALF - 3 * SPACE) / 2
    height = HEAD + (len(boxes) + 1) // 2 * (BOX + SPACE) + SPACE
    drawn = [
        f'<rect x="{x}" y="{y}" width="{HALF}" height="{height}" rx="8" '
        'fill="#f7f9fb" stroke="#0072B2" stroke-width="1.5"/>',
        text(x + HALF / 2, y + 28, 16, title, ' font-weight="bold"'),
    ]
    for k, (name, what) in enumerate(boxes):
        left = x + SPACE + k % 2 * (width + SPACE)
        top = y + HEAD + k // 2 * (BOX + SPACE)
        drawn += [
            f'<rect x="{left:.0f}" y="{top}" width="{width:.0f}" height="{BOX}" rx="5" '
            'fill="#e3eef7"/>',
            text(left + width / 2, top + 18, 13, name, ' font-weight="bold"'),
            text(left + width / 2, top + 34, 11, what, ' fill="#444"'),
        ]
    return drawn, height


def arrow(x: float, y: float, towards_left: bool) -> str:
    """Return an arrow that ends at a point."""
    path = (
        f"M {x + GAP - 8:.0f} {y:.0f} H {x + 2:.0f} m 8 -6 l -8 6 l 8 6"
        if towards_left
        else f"M {x:.0f} {y - 22:.0f} V {y:.0f} m -6 -8 l 6 8 l 6 -8"
    )
    return f'<path d="{path}" fill="none" stroke="#555" stroke-width="1.8"/>'


def drawn() -> str:
    """Return the picture as SVG."""
    top, right = MARGIN + BOX + 30, MARGIN + HALF + GAP
    lab, lab_height = part(right, top, "consequential.lab", LAB)
    below = top + lab_height + SPACE * 2
    service, service_height = part(right, below, "consequential.service", SERVICE)
    core, core_height = part(MARGIN, top, "consequential: the core", CORE)
    shapes = [
        f'<rect x="{MARGIN}" y="{MARGIN}" width="{WIDTH - 2 * MARGIN}" height="{BOX}" rx="8" '
        'fill="#f7f9fb" stroke="#0072B2" stroke-width="1.5"/>',
        text(WIDTH / 2, MARGIN + 27, 15, "consequential.cli: commands", ' font-weight="bold"'),
        *core,
        *lab,
        *service,
        *(arrow(x, top - 4, False) for x in (MARGIN + HALF / 2, right + HALF / 2)),
        arrow(MARGIN + HALF, top + lab_height / 2, True),
        arrow(MARGIN + HALF, below + SPACE * 7, True),
    ]
    # in the space below the core, which is the shortest
    bottom = top + core_height
    total = below + service_height + MARGIN
    shapes.append(
        text(
            MARGIN + HALF / 2,
            (bottom + total - MARGIN) / 2 + 5,
            13,
            "Arrows are imports; cli may import all three.",
            ' fill="#555"',
        )
    )
    opening = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img">'
    title = "The lab and the service import the core, the command line all three"
    paper = f'<rect width="{WIDTH}" height="{total}" fill="white"/>'
    return "\n".join([opening, f"<title>{title}</title>", paper, *shapes, "</svg>"]) + "\n"


if __name__ == "__main__":
    target = Path(__file__).with_suffix(".svg")
    target.write_text(drawn(), encoding="utf-8")
    print(f"wrote {target}")
