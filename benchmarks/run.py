"""The CPU's benchmarks: `make bench` prints and stores ratios, and fails where one is too low.

Work is measured per policy update (one run, one time step), so that the slow loops need not run to
the end: their cost per step does not change over time.
"""

from __future__ import annotations

import argparse
import datetime
import json
import sys
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
from kernels import gradient_kernel
from measure import alternately, exponent, in_fresh_process, machine

import consequential as cq

PENALTIES = tuple(float(penalty) for penalty in np.logspace(-0.5, 4, 19))
RESULTS = Path(__file__).parent / "results"


@dataclass
class Report:
    """Lines to print, figures to store, and promises that were not kept."""

    lines: list[str] = field(default_factory=list)
    figures: dict[str, float] = field(default_factory=dict)
    broken: list[str] = field(default_factory=list)

    def say(self, line: str = "") -> None:
        self.lines.append(line)
        print(line, flush=True)

    def promise(self, what: str, value: float, *, at_least: float = 0.0, at_most: float = np.inf):
        kept = at_least <= value <= at_most
        bound = f">= {at_least:g}" if np.isinf(at_most) else f"<= {at_most:g}"
        if at_least and not np.isinf(at_most):
            bound = f"{at_least:g} to {at_most:g}"
        self.figures[what] = value
        self.say(f"| {what} | {value:.3g} | {bound} | {'yes' if kept else 'NO'} |")
        if not kept:
            self.broken.append(what)


def update_seconds(world, *, seeds, penalties, time_steps, engine="compiled", threads=1):
    """Return a task that simulates, and how many policy updates it makes."""

    def task() -> None:
        cq.simulate(
            world,
            cq.lab.LearnToDecide(),
            seeds=seeds,
            penalties=penalties,
            time_steps=time_steps,
            engine=engine,
            n_jobs=threads,
            progress=False,
        )

    return task, seeds * len(penalties) * time_steps


def engines(report: Report, repeats: int) -> None:
    """One run of each setting, the sweep of the first, and COMPAS: every engine."""
    first, second, compas = (
        cq.worlds.first_setting(),
        cq.worlds.second_setting(),
        cq.worlds.compas(),
    )
    one = (10.0,)
    cases = {
        # name: (world, NumPy: penalties and steps, compiled: seeds, penalties, steps)
        "(a) first setting, one run": (first, (one, 4), (1, one, 40)),
        "(a) second setting, one run": (second, (one, 10), (1, one, 200)),
        "(a) COMPAS, one run": (compas, (one, 1), (1, one, 10)),
        "(b) first setting, 30 seeds x 19 penalties": (
            first,
            (PENALTIES[::9], 2),
            (30, PENALTIES, 10),
        ),
        "(c) COMPAS, M = 2560, 19 penalties": (compas, (one, 1), (4, PENALTIES, 2)),
    }
    report.say("## Milliseconds per policy update, and ratios to the NumPy loop\n")
    report.say("| | NumPy loop | kernel, 1 thread | kernel, 2 threads |")
    report.say("| --- | --- | --- | --- |")
    for name, (world, numpy_work, work) in cases.items():
        penalties, steps = numpy_work
        sized = {
            "numpy": update_seconds(
                world, seeds=1, penalties=penalties, time_steps=steps, engine="numpy"
            )
        }
        seeds, penalties, steps = work
        for threads in (1, 2):
            sized[f"kernel {threads}"] = update_seconds(
                world, seeds=seeds, penalties=penalties, time_steps=steps, threads=threads
            )
        took = alternately({key: task for key, (task, _) in sized.items()}, repeats)
        each = {key: 1e3 * took[key] / updates for key, (_, updates) in sized.items()}
        cells = [f"{each['numpy']:.3g}"] + [
            f"{each[key]:.3g} ({each['numpy'] / each[key]:.0f} x)"
            for key in ("kernel 1", "kernel 2")
        ]
        report.say(f"| {name} | {' | '.join(cells)} |")
        for key, value in each.items():
            report.figures[f"{name}: {key}, ms"] = value
    report.say("\n## What it must show\n")
    report.say("| | measured | promised | kept |")
    report.say("| --- | --- | --- | --- |")
    for case, at_least in (("(b)", 50), ("(c)", 25)):
        name = next(name for name in cases if name.startswith(case))
        slow, fast = (report.figures[f"{name}: {key}, ms"] for key in ("numpy", "kernel 2"))
        what = f"{case} kernel, 2 threads, against the NumPy loop"
        report.promise(what, slow / fast, at_least=at_least)


def threads(report: Report, repeats: int) -> None:
    """How much a second thread brings, beside what it brings to pure arithmetic."""
    from kernels import arithmetic_in_threads

    world = cq.worlds.first_setting()
    tasks = {}
    for n in (1, 2):
        tasks[f"sweep {n}"], _ = update_seconds(
            world, seeds=30, penalties=PENALTIES, time_steps=50, threads=n
        )
        tasks[f"arithmetic {n}"] = arithmetic_in_threads(n)
    took = alternately(tasks, 2 * repeats - 1)
    bare = took["arithmetic 1"] / took["arithmetic 2"]
    report.figures["1 -> 2 threads, arithmetic alone"] = bare
    report.say(f"| 1 -> 2 threads, arithmetic alone (what this machine allows) | {bare:.3g} | | |")
    report.promise("1 -> 2 threads, the sweep", took["sweep 1"] / took["sweep 2"], at_least=1.8)


def growth(report: Report, repeats: int) -> None:
    """Fitted exponents of cost in rows, runs, penalties and features."""
    world = cq.worlds.first_setting()

    def fitted(sizes, make) -> float:
        tasks = {str(size): make(size) for size in sizes}
        often = 20 if make is rows else 1  # milliseconds, not seconds
        took = alternately(tasks, often * (2 * repeats - 1), of=min)  # noise only ever adds
        return exponent(list(sizes), [took[str(size)] for size in sizes])

    def rows(n: int):
        from kernels import ascent_of

        return ascent_of(n_rows=n, n_features=1)

    def features(m: int):
        from kernels import ascent_of

        return ascent_of(n_rows=2**15, n_features=m)

    def runs(n: int):
        return update_seconds(world, seeds=n, penalties=PENALTIES, time_steps=20)[0]

    def penalties(n: int):
        spread = tuple(np.logspace(-0.5, 4, n))
        return update_seconds(world, seeds=2, penalties=spread, time_steps=10)[0]

    near_one = {"at_least": 0.95, "at_most": 1.05}
    for what, sizes, make in (
        ("growth with rows, 2^18 to 2^21", [2**k for k in range(18, 22)], rows),
        ("growth with runs, 4 to 32 seeds x 19 penalties", [4, 8, 16, 32], runs),
        ("growth with penalties, 192 to 768", [192, 384, 768], penalties),
    ):
        report.promise(what, fitted(sizes, make), **near_one)
    slope = fitted([8, 16, 32], features)
    report.figures["growth with features, 8 to 32"] = slope
    report.say(f"| growth with features, 8 to 32 (the step's matrix is square) | {slope:.3g} | | |")


def memory(report: Report) -> None:
    """Peak memory of 1000 aggregated runs of the first setting, in two threads."""
    code = (
        "import numpy as np, consequential as cq\n"
        "cq.simulate(\n"
        "    cq.worlds.first_setting(), cq.lab.LearnToDecide('logistic', 'aggregated'), seeds=50,\n"
        "    penalties=np.logspace(-.5, 4, 20), time_steps=10, n_jobs=2, progress=False)\n"
        # not getrusage: its maximum includes what the parent had when it forked
        "status = dict(line.split(':', 1) for line in open('/proc/self/status'))\n"
        "print(int(status['VmHWM'].split()[0]) / 2**20)\n"
    )
    report.promise("GiB, 1000 aggregated runs", float(in_fresh_process(code)), at_most=1.0)


def import_time(report: Report) -> None:
    """Seconds that `import consequential` takes beyond NumPy's own import."""
    code = (
        "import time, numpy; start = time.perf_counter()\n"
        "import consequential; print(time.perf_counter() - start)"
    )
    report.promise(
        "seconds, import consequential after numpy",
        min(float(in_fresh_process(code)) for _ in range(3)),
        at_most=0.3,
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--repeats", type=int, default=3, help="how often each task is timed")
    parser.add_argument(
        "--only", nargs="*", help="sections: engines kernel threads growth memory import"
    )
    arguments = parser.parse_args()
    wanted = arguments.only or ["engines", "kernel", "threads", "growth", "memory", "import"]
    report = Report()
    report.say(f"# Measured on {datetime.date.today()}: {machine()}\n")
    sections = {
        "engines": lambda: engines(report, arguments.repeats),
        "kernel": lambda: gradient_kernel(report, arguments.repeats),
        "threads": lambda: threads(report, arguments.repeats),
        "growth": lambda: growth(report, arguments.repeats),
        "memory": lambda: memory(report),
        "import": lambda: import_time(report),
    }
    for name in wanted:
        sections[name]()
    RESULTS.mkdir(exist_ok=True)
    (RESULTS / "cpu.md").write_text("\n".join(report.lines) + "\n")
    (RESULTS / "cpu.json").write_text(json.dumps(report.figures, indent=1) + "\n")
    if report.broken:
        sys.exit("not kept: " + "; ".join(report.broken))


if __name__ == "__main__":
    main()
