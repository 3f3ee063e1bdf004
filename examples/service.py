"""A service in rehearsal: decide for half a year, report outcomes, learn, deploy a better policy.

Run it with the name of a folder to make: python examples/service.py rehearsal
"""

import socket
import subprocess
import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path

import numpy as np

import consequential as cq
from consequential.service.client import Client
from consequential.service.exports import log_columns
from consequential.service.settings import loop_settings

folder = Path(sys.argv[1] if len(sys.argv) > 1 else "rehearsal")
rng = np.random.default_rng(0)
income = {"low": 0, "high": 20, "phrase": "Income"}
purpose = {"words": ["car", "home"], "phrase": "Purpose"}
SETTINGS = {"cost": 0.6, "floor": 0.1, "features": {"income": income, "purpose": purpose}}
SETTINGS |= {"horizon": 1, "rehearsal": True}  # time comes with the requests
LINK = "smooth_semi_logistic"


def consequential(*arguments: str) -> str:
    """Run a command and return what it prints."""
    command = [sys.executable, "-m", "consequential", *arguments]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


# a service of our own, with the keys of two people: one proposes policies, the other deploys them
key = consequential("init", str(folder)).split()[-1]
author = ["key", str(folder), "--name", "author", "--scopes", "learn"]
authors_key = consequential(*author).split()[-1]
with socket.socket() as free:
    free.bind(("127.0.0.1", 0))
    port = str(free.getsockname()[1])
command = [sys.executable, "-m", "consequential", "serve", str(folder), "--port", port]
service = subprocess.Popen(command, stdout=subprocess.DEVNULL)
url = f"http://127.0.0.1:{port}"

with Client(url, key, attempts=20) as client, Client(url, authors_key) as proposer:
    client.put_loop("lending", SETTINGS)
    summary = cq.FeatureSummary.of([[3.0], [5.0], [8.0]], ["income"])
    harsh = cq.Policy([-4.0, 0.5], LINK, floor=0.1, feature_names=["income"], summary=summary)
    old = proposer.propose("lending", cq.policy_to_json(harsh))
    client.deploy("lending", {old: 1.0}, why="what we did until now")

    for month in range(1, 7):
        day = datetime(2026, month, 15, tzinfo=UTC)
        incomes = rng.gamma(4.0, 1.2, 800).clip(0, 20)
        applications = [
            {
                "application_id": f"{month}-{k}",
                "time": day.isoformat(),
                "features": {"income": float(incomes[k]), "purpose": ["car", "home"][k % 2]},
            }
            for k in range(800)
        ]
        decisions = client.decide_batch("lending", applications)
        repaid = rng.random(800) < 1.0 / (1.0 + np.exp(3.5 - incomes))
        happened = (day + timedelta(days=10)).isoformat()
        outcomes = [
            {"event_id": d.id, "decision_id": d.id, "label": int(label), "happened": happened}
            for d, label in zip(decisions, repaid, strict=True)
            if d.accepted
        ]
        client.report_outcomes(outcomes)

    (folder / "log.parquet").write_bytes(client.export("lending"))
    log = cq.DecisionLog.from_file(folder / "log.parquet", **log_columns(loop_settings(SETTINGS)))
    print(log)
    past, future = log.split(0.5)
    learner = cq.FairPolicyLearner(
        cost=0.6, link=LINK, floor=0.1, method="direct", unsupported="trust_model"
    ).fit_log(past)
    print(cq.compare(learner, cq.Logged(), future, cost=0.6).verdict)
    # learned from an export and not from frozen cohorts: it would be proven on later months
    new = proposer.propose("lending", cq.policy_to_json(learner.policy_), cohorts=["none"])
    client.deploy("lending", {new: 0.2, old: 0.8}, why="the comparison above")
    last = client.decide("lending", "last", applications[0]["features"], time=day.isoformat())
    print(f"replays: {client.replay(last.id)['agrees']}")

service.terminate()
service.wait()
print(consequential("verify", str(folder)), end="")
