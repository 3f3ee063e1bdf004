"""Claims of the paper: sentences in claims.toml, each tested on stored results or by exact sums."""

from __future__ import annotations

import pkgutil
import tomllib
from collections.abc import Iterator
from importlib.resources import files
from typing import TYPE_CHECKING

from consequential.lab.paper import truths
from consequential.lab.paper.claims.claim import Checked, Claim

if TYPE_CHECKING:
    from consequential.lab.paper.results import Results


def _claims() -> Iterator[Claim]:
    """Yield the claims of the file; those about COMPAS for each orientation of the label."""
    listed = tomllib.loads((files(__package__) / "claims.toml").read_text(encoding="utf-8"))
    compas = [{"name": name, "label": label} for name, label in truths.ORIENTATIONS.items()]
    for key, words in (("claims", {}), *(("compas", each) for each in compas)):
        for stored in listed[key]:
            yield Claim(
                stored["id"].format(**words),
                stored["section"],
                " ".join(stored["text"].format(**words).split()),
                " ".join(stored["criterion"].split()),
                " ".join(stored["rejects"].split()),
                tuple(name.format(**words) for name in stored.get("studies", ())),
                pkgutil.resolve_name(f"{__package__}.{stored['test']}"),
                tuple(name.format(**words) for name in stored.get("worlds", ())),
                " ".join(stored.get("note", "").split()),
            )


CLAIMS: tuple[Claim, ...] = tuple(_claims())


def check_claims(results: Results) -> list[Checked]:
    """Test every claim on what there is."""
    return [claim.check(results) for claim in CLAIMS]
