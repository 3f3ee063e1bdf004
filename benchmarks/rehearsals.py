"""What whole rehearsals come to, each a service of its own over HTTP, one after the other.

    python benchmarks/rehearsals.py [--seeds 10] [--months 24] [--decisions 5000]

Prints a row per seed: the month after which a candidate decides, the true utility and gap when
times get worse, and the seconds it took, which mean something on an idle machine only. Exits with
1 where fewer than 9 of 10 seeds promote, or one that does ends below 0.170 or with a gap over 0.15.
"""

from __future__ import annotations

import argparse
import json
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from measure import machine


def rehearsed(seed: int, months: int, decisions: int) -> tuple[list[dict], float]:
    """Run the command and return its months, and how long it took."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    with tempfile.TemporaryDirectory() as folder:
        directory = Path(folder) / "service"
        asked = ["--months", months, "--decisions", decisions, "--seed", seed, "--port", port]
        command = [
            sys.executable,
            "-m",
            "consequential",
            "rehearse",
            directory,
            "--no-wait",
            *asked,
        ]
        start = time.perf_counter()
        subprocess.run([str(each) for each in command], check=True, stdout=subprocess.DEVNULL)
        seconds = time.perf_counter() - start
        return json.loads((directory / "rehearsal.json").read_text()), seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    for name, default in (("--seeds", 10), ("--months", 24), ("--decisions", 5000)):
        parser.add_argument(name, type=int, default=default)
    options = parser.parse_args()
    print(f"{machine()}\n\n| seed | promoted after month | utility | gap | rolled back | seconds |")
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    promoted, good = 0, True
    for seed in range(options.seeds):
        months, seconds = rehearsed(seed, options.months, options.decisions)
        decides = [
            k
            for k, month in enumerate(months, 1)
            if any(what.endswith("decides") for what in month["happened"])
        ]
        last = months[options.months - 1]
        back = any("rolled back" in "; ".join(month["happened"]) for month in months)
        if decides:
            promoted += 1
            good &= last["utility"] >= 0.170 and last["gap"] <= 0.15
        figures = f"{last['utility']:.4f} | {last['gap']:.3f} | {'yes' if back else 'no'}"
        after = ", ".join(map(str, decides)) or "never"
        print(f"| {seed} | {after} | {figures} | {seconds:.0f} |", flush=True)
    print(f"\n{promoted} of {options.seeds} promoted")
    return 0 if good and promoted >= 0.9 * options.seeds else 1


if __name__ == "__main__":
    sys.exit(main())
