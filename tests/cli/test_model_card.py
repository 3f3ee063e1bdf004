"""The model card and the sign-off block that `fit` writes beside policy and report."""

from __future__ import annotations

import hashlib
import re
import shlex

import pytest
from loan_files import COST, FEATURES, LOGGED, results, text_of

import consequential as cq
from consequential.cli import command_parser, main
from consequential.cli.results import command_line


@pytest.fixture(scope="module")
def card(shared):
    return (shared / "fit" / "model-card.md").read_text()


def test_the_card_names_the_policy_and_the_log_by_their_digests(shared, card):
    policy = hashlib.sha256((shared / "fit" / "policy.json").read_bytes()).hexdigest()
    assert card.count(policy) == 2
    assert cq.policy_digest(cq.load_policy(shared / "fit" / "policy.json")) in card
    assert results(shared / "fit")["file"]["sha256"] in card
    assert policy in text_of(shared / "fit" / "report.html")


def test_the_card_has_the_figures_of_the_results(shared, card):
    found = results(shared / "fit")["results"]
    assert found["bound"] in card
    for figure in ("value.utility", "value.benefit_gap"):
        name, key = figure.split(".")
        assert f"{found[name][key]['value']:.4f} [" in card
    assert f"| f | {found['swaps']['by_group']['f']['people']} |" in card
    for metric in found["group_metrics"]:
        assert metric == "notes" or metric.replace("_", " ") in card


def test_card_and_report_mark_the_candidates_that_break_a_bound(shared, here):
    asked = ["fit", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, "--folds", "2"]
    assert main([*asked, "--max-gap", "0.001"]) == 0
    folder = here / "consequential-fit"
    entries = results(folder)["results"]["candidates"]["entries"]
    broken = [each["name"] for each in entries if not each["within_bound"]]
    assert "plain regression" in broken
    card = (folder / "model-card.md").read_text()
    assert card.count("| breaks a bound |") == len(broken)
    page = (folder / "report.html").read_text()
    assert page.count("breaks a bound") == len(broken)
    for heading in ("rule</th><th>bounds", "new less</th><th>what can be said"):  # in sight
        assert f"<th>{heading}</th>" in page


def test_every_table_of_the_card_has_as_many_cells_in_every_line(card):
    tables = re.findall(r"(?:^\|.*\|\n)+", card, flags=re.MULTILINE)
    assert len(tables) >= 4
    for table in tables:
        assert len({line.count("|") for line in table.splitlines()}) == 1


def test_page_and_card_end_in_a_block_to_sign(shared, card):
    assert "| date and signature | |" in card.partition("## Sign-off")[2]
    page = text_of(shared / "fit" / "report.html")
    assert "date and signature" in page[page.index("Sign-off") :]


def test_a_card_that_was_filled_in_is_replaced_only_when_asked(shared, here):
    asked = ["fit", str(shared / "loans.csv"), *FEATURES, *LOGGED, *COST, "--folds", "2"]
    assert main(asked) == 0
    file = here / "consequential-fit" / "model-card.md"
    signed = file.read_text().replace("| date and signature | |", "| date and signature | me |")
    file.write_text(signed)
    assert main(asked) == 2
    assert file.read_text() == signed
    assert main([*asked, "--overwrite"]) == 0
    assert "signature | me" not in file.read_text()


@pytest.mark.parametrize(
    "more",
    [
        [],
        ["--max-acceptance", "f=0.3", "m=0.4", "--monotone", "income=+", "purpose x=-"],
        ["--max-acceptance", "0.3", "--uses-sensitive"],
        ["--bound", "demographic_parity:0.1", "--bound", "equal_opportunity:0.1:sex"],
    ],
)
def test_the_command_in_a_report_can_be_given_again(more):
    asked = ["fit", "my loans.csv", *FEATURES, *LOGGED, *COST, *more]
    options = command_parser().parse_args(asked)
    left_out = ("command", "file", "columns", "out", "overwrite")
    told = {name: value for name, value in vars(options).items() if name not in left_out}
    program, *again = shlex.split(command_line("fit", "my loans.csv", told))
    assert program == "consequential"
    assert command_parser().parse_args(again) == options


def test_the_card_and_the_report_have_the_command(shared):
    command = "consequential fit loans.csv --confidence 0.95 --cost 0.6 "
    for name in ("model-card.md", "report.html"):
        assert command in (shared / "fit" / name).read_text()
