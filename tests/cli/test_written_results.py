"""Results in a folder: a failure leaves none, and names are shown, never obeyed."""

from __future__ import annotations

import html
import re

import pyarrow as pa
import pyarrow.csv
from loan_files import COST, FEATURES, LOGGED, people

from consequential.cli import main


def test_a_failure_while_writing_leaves_nothing(shared, here, capsys, monkeypatch):
    def full(*_):
        raise OSError("no space left")

    monkeypatch.setattr("consequential.files.write_atomically", full)
    assert main(["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED]) == 2
    assert "no space left" in capsys.readouterr().err
    assert list(here.iterdir()) == []


def test_hostile_names_are_shown_and_not_obeyed(here, drawn):
    hostile = "<script>alert('1')</script>"
    table = people()
    groups = pa.array([hostile if sex == "f" else "m" for sex in table["sex"].to_pylist()])
    table = table.set_column(3, "sex", groups).rename_columns(
        {"income": f"income {hostile}", "sex": "<b>sex</b>"}
    )
    file = "<i>loans & more<i>.csv"
    pa.csv.write_csv(table, file)
    columns = ["--sensitive", "<b>sex</b>", "--features", f"income {hostile}", *LOGGED[2:], *COST]
    assert main(["fit", file, *columns, "--max-gap", "0.1", "--folds", "2"]) == 0
    policy = ["--policy", "consequential-fit/policy.json"]
    assert main(["evaluate", file, *columns, *policy]) == 0
    for command in ("fit", "evaluate"):
        page = (here / f"consequential-{command}" / "report.html").read_text()
        assert not re.search(r"<(script|b|i)\b", page)
        assert html.escape(hostile, quote=False) in page.replace("&#39;", "'")
    card = (here / "consequential-fit" / "model-card.md").read_text()
    assert "<script" not in card
    assert html.escape(hostile, quote=False) in card


def test_tables_scroll_and_intervals_stay_on_one_line(shared):
    page = (shared / "fit" / "report.html").read_text()
    assert re.search(r"table \{[^}]*overflow-x: auto", page)
    assert re.search(r"\btd \{ white-space: nowrap; \}", page)
    cells = re.findall(r"<td( class='text')?>(.*?)</td>", page)
    intervals = [
        kind for kind, text in cells if re.fullmatch(r"-?[\d.]+ \[-?[\d.]+, -?[\d.]+\]", text)
    ]
    assert len(intervals) > 20
    assert set(intervals) == {""}
    assert all(kind for kind, text in cells if "sha256" in text)
