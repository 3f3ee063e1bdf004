"""Warnings of scikit-learn, collected into the notes of a command."""

from __future__ import annotations

import warnings

import pytest
import sklearn.linear_model
from loan_files import FEATURES, LOGGED, results
from sklearn.exceptions import ConvergenceWarning

import consequential as cq
from consequential.cli import main


def test_warnings_of_scikit_learn_become_notes_and_others_are_passed_on(
    shared, here, capsys, monkeypatch
):
    overlap = cq.overlap

    def warning(*arguments, **options):
        for _ in range(2):
            text = "lbfgs failed to converge (status=1):\nREACHED LIMIT\n\nIncrease the number"
            place = sklearn.linear_model.__file__, 7, "sklearn.linear_model._logistic"
            warnings.warn_explicit(text, ConvergenceWarning, *place)
        return overlap(*arguments, **options)

    monkeypatch.setattr("consequential.evaluation.overlap", warning)
    asked = ["overlap", str(shared / "loans.csv"), *FEATURES, *LOGGED]
    assert main(asked) == 0
    said = "scikit-learn warned 2 times: lbfgs failed to converge (status=1): REACHED LIMIT"
    assert f"  note: {said}\n" in capsys.readouterr().out
    assert said in results(here / "consequential-overlap")["notes"]

    def another(*arguments, **options):
        warnings.warn("something else", stacklevel=1)
        return overlap(*arguments, **options)

    monkeypatch.setattr("consequential.evaluation.overlap", another)
    with pytest.warns(UserWarning, match="something else"):
        main([*asked, "--out", "again"])
