"""Results: a directory that `consequential reproduce` filled, read only."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from consequential.paper.finals import Finals
from consequential.paper.lending_example import LendingTable, Scoring
from consequential.simulation import Runs, RunsError


class Results:
    """What studies found, by study and column."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        self.folder = Path(folder)
        try:
            text = (self.folder / "manifest.json").read_text(encoding="utf-8")
        except (FileNotFoundError, NotADirectoryError):
            raise RunsError(f"{self.folder} holds no results: it has no manifest.json") from None
        self.manifest: dict[str, Any] = json.loads(text)
        self._runs: dict[Path, Runs] = {}  # read once: figures and claims ask again and again

    def has(self, study: str, column: str) -> bool:
        """Whether a study is there, whole."""
        return self._file(study, column).is_file()

    def runs(self, study: str, column: str) -> Runs:
        """Return the runs of a study over time."""
        file = self._found(study, column)
        if file not in self._runs:
            self._runs[file] = Runs.load(file)
        return self._runs[file]

    def finals(self, study: str, column: str) -> Finals:
        """Return the ends of a study against the penalty."""
        return Finals.load(self._found(study, column))

    def lending(self, scoring: Scoring = "accuracy") -> LendingTable:
        """Return the lending example, its ridge chosen by one score or the other."""
        return LendingTable.load(self._found("lending", "paper")).scored_by(scoring)

    def _file(self, study: str, column: str) -> Path:
        return self.folder / "results" / f"{study}-{column}.parquet"

    def _found(self, study: str, column: str) -> Path:
        if not self.has(study, column):
            raise RunsError(
                f"no results of {study} ({column}) in {self.folder}; "
                f"`consequential reproduce {study} --out {self.folder}` makes them"
            )
        return self._file(study, column)
