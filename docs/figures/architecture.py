"""Draw docs/figures/architecture.svg: packages as boxes, imports pointing downwards."""

from __future__ import annotations

from pathlib import Path

LAYERS = [
    [
        ("cli", "commands"),
        ("service", "decisions over HTTP"),
        ("paper", "studies, figures, claims"),
        ("report", "pages"),
    ],
    [("simulation", "simulate")],
    [
        ("tradeoff", "frontier"),
        ("baseline", "baselines"),
        ("estimator", "FairPolicyLearner"),
        ("planning", "plan"),
    ],
    [("worlds", "people with a known truth"), ("accelerated", "JAX")],
    [("evaluation", "estimates, intervals"), ("learning", "ascent, solver")],
    [("objective", "with weightings, fairness: the columns A")],
    [("log", "decision logs")],
    [("policies", "links, rules, files")],
    [("kernels", "the pass over rows, compiled")],
]
FLOWS = [
    "runs",
    "",
    "answers",
    "logs of decisions",
    "sums S and slopes",
    "columns A",
    "rows",
    "propensities",
    "arrays and numbers",
]
WIDTH, HEIGHT, GAP, MARGIN = 900, 46, 26, 20
FONT = 'font-family="sans-serif"'


def drawn() -> str:
    """Return the picture as SVG."""
    total = MARGIN * 2 + len(LAYERS) * HEIGHT + (len(LAYERS) - 1) * GAP
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {total}" role="img">',
        "<title>Packages and what flows between them</title>",
        f'<rect width="{WIDTH}" height="{total}" fill="white"/>',
    ]
    inner = WIDTH - 2 * MARGIN - 150
    for k, layer in enumerate(LAYERS):
        y = MARGIN + k * (HEIGHT + GAP)
        width = (inner - 12 * (len(layer) - 1)) / len(layer)
        for j, (name, what) in enumerate(layer):
            x, middle = MARGIN + j * (width + 12), MARGIN + j * (width + 12) + width / 2
            parts += [
                f'<rect x="{x:.0f}" y="{y}" width="{width:.0f}" height="{HEIGHT}" rx="6" '
                'fill="#eef4fa" stroke="#0072B2"/>',
                f'<text x="{middle:.0f}" y="{y + 20}" text-anchor="middle" {FONT} '
                f'font-size="14" font-weight="bold">{name}</text>',
                f'<text x="{middle:.0f}" y="{y + 37}" text-anchor="middle" {FONT} '
                f'font-size="11" fill="#444">{what}</text>',
            ]
        parts.append(
            f'<text x="{WIDTH - MARGIN - 138}" y="{y + 28}" {FONT} font-size="12" '
            f'fill="#555">{FLOWS[k]}</text>'
        )
        if k:
            middle, top = MARGIN + inner / 2, y - GAP
            parts.append(
                f'<path d="M {middle:.0f} {top + 3} V {y - 7} m -5 -5 l 5 6 l 5 -6" fill="none" '
                'stroke="#666" stroke-width="1.5"/>'
            )
    return "\n".join([*parts, "</svg>"]) + "\n"


if __name__ == "__main__":
    target = Path(__file__).with_suffix(".svg")
    target.write_text(drawn(), encoding="utf-8")
    print(f"wrote {target}")
