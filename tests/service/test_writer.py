"""The group commit: two writers at once, retries, and what it counts."""

from __future__ import annotations

import asyncio

import pytest
from lending_loop import LOOP, START, applicants, decide, start
from prometheus_client import REGISTRY

from consequential.service import writer
from consequential.service.deciding import live_loops
from consequential.service.problems import Problem
from consequential.service.writer import Writer


def test_two_writers_with_the_same_people_in_opposite_order_both_answer(store, service):
    start(store, service)

    async def answers() -> None:
        with store.read() as connection:
            live = live_loops(connection, {})[LOOP]
        writers = [Writer(store, service.secret) for _ in range(2)]
        for k in range(10):
            people = applicants(200, name=f"A{k}")
            orders = people, people[::-1]
            asked = [each.decide(live, order) for each, order in zip(writers, orders, strict=True)]
            one, other = await asyncio.gather(*asked)
            assert one.decisions == other.decisions[::-1]
        for each in writers:
            await each.close()

    asyncio.run(answers())


def test_only_decisions_on_disk_are_counted(store, service):
    def counted() -> float:
        return REGISTRY.get_sample_value("consequential_decisions_total", {"loop": LOOP}) or 0.0

    start(store, service)
    before = counted()
    decide(store, service, applicants(3))
    decide(store, service, applicants(5))  # rolled back once, because of the three
    assert counted() - before == 5


def test_the_keys_of_many_epochs_are_not_all_kept(store, service, monkeypatch):
    monkeypatch.setattr(writer, "_EPOCHS", 2)
    start(store, service)

    async def answers() -> None:
        with store.read() as connection:
            live = live_loops(connection, {})[LOOP]
        own = Writer(store, service.secret)
        people = [
            applicants(2, START.replace(month=month), name=f"M{month}")
            for month in (1, 2, 3, 4, 5, 1)
        ]
        told = [await own.decide(live, some) for some in people]
        assert told[0].decisions == told[-1].decisions
        assert len(own._epochs) <= 3
        await own.close()

    asyncio.run(answers())


def test_the_clock_of_a_rehearsal_does_not_jump(store, service):
    start(store, service)
    first = decide(store, service, applicants(1))

    async def decided(people) -> list[dict]:
        with store.read() as connection:
            live = live_loops(connection, {})[LOOP]
        own = Writer(store, service.secret)
        try:
            return (await own.decide(live, people)).decisions
        finally:
            await own.close()

    for year in (2206, 2019):
        with pytest.raises(Problem, match=r"at 2026-01-10.*in steps") as raised:
            asyncio.run(decided(applicants(1, START.replace(year=year), name="B")))
        assert (raised.value.code, raised.value.status) == ("clock", 422)
    decide(store, service, applicants(1, START.replace(year=2027), name="C"))
    decide(store, service, applicants(1, START.replace(year=2028), name="D"))
    assert decide(store, service, applicants(1)) == first  # what was decided is answered again
