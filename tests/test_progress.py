"""Progress bars."""

from __future__ import annotations

import io
import sys
import time

from consequential import workers


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_shows_how_far_long_work_is(monkeypatch):
    terminal = Terminal()
    monkeypatch.setattr(sys, "stderr", terminal)
    monkeypatch.setattr(workers, "_DELAY", 0.01)
    for _ in workers.shown(range(3), "models"):
        time.sleep(0.15)
    assert "models" in terminal.getvalue()
    assert "2/3" in terminal.getvalue()


def test_nothing_is_written_where_nobody_looks(capsys):
    assert list(workers.shown(range(3), "models")) == [0, 1, 2]
    assert capsys.readouterr().err == ""
