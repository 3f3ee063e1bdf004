"""The worker that `serve` starts: it is there as long as the service is."""

from __future__ import annotations

import os
import signal
import sys
import time

import pytest

from consequential.cli import service


def test_a_worker_that_ends_is_started_again_and_ends_with_the_service(tmp_path, monkeypatch):
    started = tmp_path / "started"
    program = tmp_path / "worker"
    program.write_text(f"#!/bin/sh\necho $$ >> {started}\nexec cat > /dev/null\n")
    program.chmod(0o700)
    monkeypatch.setattr(sys, "executable", str(program))
    monkeypatch.setattr(service, "_WATCHED", 0.01)

    def wait_for(n: int) -> int:
        end = time.monotonic() + 30.0
        while time.monotonic() < end:
            pids = started.read_text().split() if started.exists() else []
            if len(pids) == n:
                return int(pids[-1])
            time.sleep(0.01)
        raise TimeoutError

    with service._worker(tmp_path):
        os.kill(wait_for(1), signal.SIGKILL)
        second = wait_for(2)
        os.kill(second, 0)  # it runs
    with pytest.raises(ProcessLookupError):
        os.kill(second, 0)
