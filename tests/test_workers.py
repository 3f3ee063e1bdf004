"""Workers: work on this machine's files, shared by several processes."""

from __future__ import annotations

import os
import socket
import subprocess
import sys

import pytest

from consequential.workers import spread


def who_squares(number):
    return os.getpid(), number**2


def reciprocal(number):
    return 1 / number


@pytest.mark.parametrize("n_jobs", [1, 2])
def test_results_come_in_the_order_of_items_whoever_worked(n_jobs):
    found = list(spread(who_squares, range(8), n_jobs, ordered=True, local=True))
    assert [square for _, square in found] == [0, 1, 4, 9, 16, 25, 36, 49]
    assert (os.getpid() in {process for process, _ in found}) == (n_jobs == 1)


@pytest.mark.parametrize("place", [0, 3])
def test_what_fails_elsewhere_fails_here(place):
    numbers = [1.0, 2.0, 4.0, 5.0]
    numbers[place] = 0.0
    with pytest.raises(ZeroDivisionError):
        list(spread(reciprocal, numbers, 2, ordered=True, local=True))


def test_no_work_has_no_results():
    assert list(spread(reciprocal, [], 2, ordered=True, local=True)) == []


BUSY = """
import socket, sys, time
from consequential.workers import spread

def busy(port):
    with socket.create_connection(("127.0.0.1", port)):
        time.sleep(300.0)

list(spread(busy, [int(sys.argv[1])] * 4, 2, ordered=True, local=True))
"""


@pytest.mark.skipif(os.name == "nt", reason="a process does not see there that its parent ended")
def test_the_workers_of_a_killed_process_end():
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.settimeout(60.0)
        program = [sys.executable, "-c", BUSY, str(server.getsockname()[1])]
        with subprocess.Popen(program) as process:
            workers = [server.accept()[0] for _ in range(2)]
            process.kill()
        for connection in workers:
            with connection:
                connection.settimeout(30.0)
                assert connection.recv(1) == b""  # the system closed it with its process


def test_both_ways_of_sharing_work_can_follow_each_other_in_one_process():
    assert list(spread(reciprocal, [1.0, 2.0, 4.0], 2, ordered=True, local=True)) == [
        1.0,
        0.5,
        0.25,
    ]
    assert sorted(spread(reciprocal, [1.0, 2.0, 4.0], 2)) == [0.25, 0.5, 1.0]
