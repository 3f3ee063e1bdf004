"""A worker that is killed: the next one goes on, repeats nothing, and ends with the same tables."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from learning_loop import copied, tables

from consequential.service import schema
from consequential.service.database import Store
from consequential.service.verify import verify


class Killed(BaseException):
    """What no worker catches."""


def killed_at(number: int) -> Callable[[Store], Any]:
    """`Store.write`, of which one call kills."""
    write, calls = Store.write, iter(range(number + 1))

    def counted(store: Store) -> Any:
        if next(calls, None) == number:
            raise Killed
        return write(store)

    return counted


@pytest.mark.parametrize("step", [29, pytest.param(1, marks=pytest.mark.slow)])
def test_a_worker_killed_before_any_transaction_ends_with_the_same_tables(
    rehearsed, tmp_path_factory, monkeypatch, step
):
    """A day that is closed, cohorts frozen, a candidate learned and others looked at."""
    loop = rehearsed
    for _ in range(4):  # the last of them is the eighth cohort
        loop.decide(200)
    places = tmp_path_factory.mktemp("killed")
    whole = copied(loop, places / "whole")
    calls: list[int] = []
    write = Store.write
    monkeypatch.setattr(Store, "write", lambda store: calls.append(1) or write(store))
    whole.work()
    monkeypatch.undo()
    assert len(whole.rows(schema.candidate)) == 4
    for number in range(0, len(calls), step):
        again = copied(loop, places / str(number))
        monkeypatch.setattr(Store, "write", killed_at(number))
        with pytest.raises(Killed):
            again.work()
        monkeypatch.undo()
        again.work()
        assert tables(again) == tables(whole), number
        assert list(verify(again.store, again.service.secret)) == []
        again.store.close()
    whole.store.close()
