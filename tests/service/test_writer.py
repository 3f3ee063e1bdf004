"""The group commit: two writers at once, retries, and what it counts."""

from __future__ import annotations

import asyncio

from lending_loop import LOOP, applicants, decide, start
from prometheus_client import REGISTRY

from consequential.service.deciding import live_loops
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
