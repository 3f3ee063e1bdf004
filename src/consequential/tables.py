"""Text table: cells in columns, aligned for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

_GAP = "  "


def text_table(
    rows: Sequence[Sequence[object]],
    *,
    align: str = "<",
    min_widths: Sequence[int] = (),
    ruled: bool = False,
) -> list[str]:
    """Return one line per row, with cells padded to the width of their column.

    Parameters
    ----------
    rows
        The cells, the head of the table first. In a row shorter than the first one the last cell
        may be of any length: it is not padded and does not widen its column.
    align
        `<` (left) or `>` (right) for each column; the last character stands for all columns after
        it, so that `"<>"` aligns names to the left and numbers to the right.
    min_widths
        The smallest width of the first columns.
    ruled
        Whether a line of dashes follows the first row.

    Examples
    --------
    >>> from consequential.tables import text_table
    >>> rows = [["", "people", "rate"], ["young", 12, "3%"], ["old", "unknown"]]
    >>> for line in text_table(rows, align="<>", ruled=True):
    ...     print(line)
           people  rate
    -------------------
    young      12    3%
    old    unknown
    """
    texts = [[str(cell) for cell in row] for row in rows]
    n = len(texts[0])
    padded = [row if len(row) == n else row[:-1] for row in texts]
    widths = [*min_widths, *[0] * (n - len(min_widths))]
    for row in padded:
        for k, cell in enumerate(row):
            widths[k] = max(widths[k], len(cell))
    sides = align + align[-1] * n
    lines = []
    for row, fixed in zip(texts, padded, strict=True):
        cells = [f"{cell:{sides[k]}{widths[k]}}" for k, cell in enumerate(fixed)]
        lines.append(_GAP.join([*cells, *row[len(fixed) :]]).rstrip())
    if ruled:
        lines.insert(1, "-" * max(map(len, lines)))
    return lines
