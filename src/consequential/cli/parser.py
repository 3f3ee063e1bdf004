"""Parser: the commands and what each of them can be asked."""

from __future__ import annotations

import argparse
import inspect
from collections.abc import Callable
from pathlib import Path

from consequential import __version__
from consequential.cli.options import (
    add_columns,
    add_option,
    add_options,
    add_policy_form,
    add_question,
    add_results,
    at_least_one,
    not_negative,
    share,
)

SHELLS = ("bash", "zsh", "fish")
_RULES = "a policy.json, or one of logged, accept-all, reject-all"

Parser = argparse.ArgumentParser


def command_parser() -> Parser:
    """Return the parser of all commands. Their help is the docstrings of the functions below."""
    parser = Parser(
        prog="consequential",
        description="Learn to decide when labels exist only for the people you accept.",
        epilog="example: consequential demo",
    )
    parser.add_argument("--version", action="version", version=f"consequential {__version__}")
    commands = parser.add_subparsers(required=True, metavar="command", dest="command")
    for add_arguments in _COMMANDS:
        description, _, examples = (inspect.getdoc(add_arguments) or "").partition("\n\nexample")
        summary = description.partition(".\n")[0].rstrip(".")
        command = commands.add_parser(
            add_arguments.__name__.removeprefix("_"),
            help=summary[:1].lower() + summary[1:],
            description=description,
            epilog=f"example{examples}",
            formatter_class=_Help,
        )
        add_arguments(command)
    return parser


class _Help(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Help that shows defaults other than None and False, and keeps the lines of a text."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if action.default is None or action.default is False:
            return action.help
        return super()._get_help_string(action)


def _demo(parser: Parser) -> None:
    """Run the paper's strategies in two worlds and write a report.

    The six learned strategies run in the paper's first synthetic setting and on COMPAS; a table is
    printed and one HTML page with figures is written.

    example: consequential demo --seeds 5 --output my-report.html
    """
    add = parser.add_argument
    add("--output", type=Path, default=Path("consequential-report.html"), help="file for the page")
    add_option(parser, "--seeds", default=3, help="runs of each strategy")
    add("--steps", type=at_least_one, default=30, help="time steps in the first setting")
    add("--compas-steps", type=at_least_one, default=6, help="time steps on COMPAS")


def _overlap(parser: Parser) -> None:
    r"""Say whether a decision log explores, and for whom not.

    A log can answer questions about a rule only where the people it would accept had a chance of
    being accepted. Labels play no part. Start here.

    example:
      consequential overlap loans.csv --features income,debt,purpose --sensitive sex \
          --decision approved --propensity p
    """
    add_columns(parser, label=False)
    smallest = "the smallest propensity that counts"
    add_option(parser, "--floor", type=share, default=0.01, help=smallest)
    add_option(parser, "--confidence", help="confidence level of upper bounds on shares of people")
    add_results(parser, "consequential-overlap")


def _fit(parser: Parser) -> None:
    r"""Learn a fair policy from a decision log.

    Learns whom to accept, with what probability, from a log that has labels of accepted people
    only. Writes policy.json, report.html and results.json. Figures are cross-fitted: each row is
    evaluated under a policy that was not learned from it, so they are about policies learned in
    this way and not flattered by the learning. A bound on the gap is kept on the rows learned from;
    the first lines say whether it is kept among other people. With --bound-confidence 0.95 half of
    the log is held out to show that, and where it cannot be shown nothing is written.

    example:
      consequential fit loans.csv --features income,debt,purpose --sensitive sex \
          --decision approved --label repaid --propensity p --cost 0.6 --max-gap 0.02 --spline 8 \
          --floor 0.02
    """
    add_columns(parser)
    add_question(parser, "--method", "--past-floor", "--folds")
    bound = add_policy_form(parser).add_mutually_exclusive_group().add_argument
    bound("--max-gap", type=not_negative, metavar="G", help="largest difference between groups")
    bound("--min-ratio", type=not_negative, metavar="R", help="smallest ratio between groups")
    bound("--penalty", type=not_negative, metavar="LAMBDA", help="the paper's lambda")
    shown = "confidence, 0.95 say, with which --max-gap is kept: shown on held-out rows"
    parser.add_argument("--bound-confidence", type=share, metavar="C", help=shown)
    add_results(parser, "consequential-fit")


def _evaluate(parser: Parser) -> None:
    r"""Estimate what a policy would do with the people of a decision log.

    Another rule decided on these people; what the policy would do with all of them is estimated:
    utility, acceptance, each group's rates and the gap between groups, each with an interval.

    A policy that was learned from this very log is flattered by it, and the page says so: evaluate
    it on decisions that came later, or read the cross-fitted figures that `fit` writes.

    example:
      consequential evaluate june.csv --policy consequential-fit/policy.json --cost 0.6 \
          --sensitive sex --decision approved --label repaid --propensity p
    """
    add_columns(parser, features="Without it, those of the policy.")
    parser.add_argument("--policy", required=True, metavar="RULE", help=_RULES)
    add_question(parser, "--method", "--past-floor")
    add_results(parser, "consequential-evaluate")


def _compare(parser: Parser) -> None:
    r"""Say whether one policy is better than another on a decision log.

    The difference is estimated row by row on the same log. Where the two agree nothing is
    uncertain, so the difference is known far better than either value. `logged` is what the log
    did: the rule in force. With --method any_time you may look as often as you like while the log
    grows.

    example:
      consequential compare june.csv --new consequential-fit/policy.json --old logged --cost 0.6 \
          --sensitive sex --decision approved --label repaid --propensity p
    """
    add_columns(parser, features="Without it, those of the policies.")
    parser.add_argument("--new", required=True, metavar="RULE", help=_RULES)
    parser.add_argument("--old", default="logged", metavar="RULE", help=_RULES)
    add_question(parser, "--method", "--past-floor")
    add_results(parser, "consequential-compare")


def _frontier(parser: Parser) -> None:
    r"""Trace utility against the gap between groups.

    Shows how much utility each bound on the gap leaves: policies are learned under one bound after
    another, and evaluated on rows they were not learned from. Interrupted, it keeps what is done.

    example:
      consequential frontier loans.csv --features income,debt --sensitive sex --decision approved \
          --label repaid --propensity p --cost 0.6 --max-gaps 0 0.02 0.05 0.1
    """
    add_columns(parser)
    add_question(parser, "--folds")
    parser.add_argument(
        "--max-gaps",
        nargs="+",
        type=not_negative,
        default=[0.0, 0.01, 0.02, 0.05, 0.1, 0.15],
        metavar="G",
        help="bounds to try; no bound at all comes last",
    )
    add_policy_form(parser)
    add_options(parser, "--cluster")
    add_results(parser, "consequential-frontier")


def _plan(parser: Parser) -> None:
    r"""Say what exploring costs and when an improvement is proven.

    Exploring means a floor under the probability of acceptance. For a log whose rule left nothing
    to chance, give the decision itself as the propensity: `--propensity approved --decision
    approved`. About people whom such a rule never accepts nothing is known; --success-rate says
    what you assume.

    example:
      consequential plan loans.csv --features income,debt --decision approved --label repaid \
          --propensity approved --cost 0.6 --improvement 0.01 --rate 5000 --outcome-months 12
    """
    add_columns(parser)
    group = parser.add_argument_group("question")
    add = group.add_argument
    add_option(group, "--cost")
    gain = "the gain in utility per decision that should be proven"
    add("--improvement", type=not_negative, required=True, metavar="GAIN", help=gain)
    add(
        "--floors",
        nargs="+",
        type=share,
        default=[0.01, 0.02, 0.05, 0.1],
        metavar="EPS",
        help="exploration floors to compare",
    )
    add("--candidate", metavar="RULE", help="a policy.json to be proven better (default: any)")
    differs = "without a candidate: on what share of people the better rule decides differently"
    add("--changed", type=share, default=0.1, help=differs)
    assumed = "assumed share of label 1 among people whom the log never accepts"
    add("--success-rate", type=not_negative, help=assumed)
    add("--rate", type=not_negative, help="decisions per month")
    add("--outcome-months", type=not_negative, default=0.0, help="months until an outcome is known")
    add("--power", type=share, default=0.8, help="probability of a proof if the gain is real")
    add_option(group, "--confidence", help="confidence level of the interval that proves it")
    looks = "kind of that interval: for one look at the end, or for as many as you like"
    add_option(group, "--method", choices=("normal", "any_time"), help=looks)
    add_results(parser, "consequential-plan")


def _simulate(parser: Parser) -> None:
    """Run strategies in a world, one of yours too, and write a report.

    Prints a table and writes results and a page with figures. WORLD is one of first_setting,
    second_setting, lending, compas, german, taiwan, drift, or a world of your own:
    path/to/file.py:ClassName, a subclass of consequential.worlds.World that can be made without
    arguments. Results are kept as they come: stop at any time, and the same command goes on where
    it was.

    examples of use:
      consequential simulate second_setting --seeds 5 --steps 50
      consequential simulate compas --strategies logistic-aggregated --penalties 0 1 10 --steps 20
      consequential simulate my_world.py:MyWorld --fairness equal_opportunity --out my-results
    """
    add = parser.add_argument
    add("world", metavar="WORLD", help="a name, or file.py:ClassName")
    some = "for example logistic-iterative, deterministic-aggregated (default: the paper's six)"
    add("--strategies", nargs="+", metavar="NAME", help=some)
    weight = "how much a gap counts against utility"
    add("--penalties", nargs="+", type=not_negative, metavar="LAMBDA", default=[0.0], help=weight)
    add_option(parser, "--seeds", default=10)
    add("--steps", type=at_least_one, help="time steps (default: the world's)")
    add_option(
        parser, "--fairness", metavar="NAME", help="fairness notion that is penalised and measured"
    )
    add(
        "--normalisation",
        choices=("applicants", "paper"),
        default="applicants",
        help="corrected estimators, or those of the paper",
    )
    meaning = "what y = 1 means on COMPAS (default: no_rearrest)"
    add("--label", choices=("no_rearrest", "rearrest"), help=meaning)
    add_option(parser, "--out", default=Path("consequential-simulation"))
    add_options(parser, "--jobs", "--cluster")


def _reproduce(parser: Parser) -> None:
    """Run the paper's experiments and write its figures, claims and a report.

    Every study is run twice: with the estimators as printed and with the corrected ones. Names are
    of studies or of figures; `more` stands for studies the paper does not have, `all` for
    everything, and without a name the paper's own are run. Results are kept as they come: stop at
    any time, and the same command goes on where it was.

    examples of use:
      consequential reproduce --quick                      everything, small: half a minute
      consequential reproduce                              the paper's size
      consequential reproduce first-time evolution         two of them
      consequential reproduce --list                       what there is
    """
    add = parser.add_argument
    add("names", nargs="*", metavar="NAME", help="a study or a figure, `more` or `all`")
    add_option(parser, "--seeds", help="runs of each (default: 30)")
    values = "how many values of lambda, from 10^-0.5 to 10^4 (default: 19)"
    add("--penalties", type=at_least_one, help=values)
    add("--quick", action="store_true", help="few seeds, penalties and time steps")
    add_option(parser, "--out", default=Path("consequential-paper"))
    add_options(parser, "--jobs", "--cluster")
    add("--list", action="store_true", help="say what there is, and do nothing")


def _completion(parser: Parser) -> None:
    """Print a script that completes commands in your shell.

    Commands, options and file names are completed; a new shell knows them.

      bash   consequential completion bash > ~/.local/share/bash-completion/completions/consequential
      zsh    consequential completion zsh > FOLDER/_consequential, FOLDER being one of $fpath
      fish   consequential completion fish > ~/.config/fish/completions/consequential.fish

    example: eval "$(consequential completion bash)"
    """  # noqa: E501
    parser.add_argument("shell", choices=SHELLS, help="the shell to complete in")


_COMMANDS: tuple[Callable[[Parser], None], ...] = (
    _demo,
    _overlap,
    _fit,
    _evaluate,
    _compare,
    _frontier,
    _plan,
    _simulate,
    _reproduce,
    _completion,
)
