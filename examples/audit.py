"""Check a loop without trusting the service: digests, seals, commitments and draws.

It reads the tables decision, epoch and day as `consequential export --table` writes them, and uses
none of our code. Run it with their folder: python examples/audit.py folder
"""

import hashlib
import hmac
import json
import sys
from pathlib import Path

import pyarrow.parquet as pq


def sha(value):
    """Return the SHA-256 of bytes, or of a value's JSON."""
    return hashlib.sha256(value if isinstance(value, bytes) else text(value)).hexdigest()


def text(value):
    """Return JSON with sorted keys and without spaces, as it was hashed."""
    return json.dumps(value, ensure_ascii=False, sort_keys=True, separators=(",", ":")).encode()


folder = Path(sys.argv[1])
tables = {
    n: pq.read_table(folder / f"{n}.parquet").to_pylist() for n in ("decision", "epoch", "day")
}
keys = {row["epoch"]: bytes.fromhex(row["key"]) for row in tables["epoch"] if row["key"]}
promised = {row["epoch"]: row["commitment"] for row in tables["epoch"]}
# what was checked, and whether it holds
checks = [(f"key of {epoch}", sha(key) == promised[epoch]) for epoch, key in keys.items()]

for row in tables["decision"]:
    who = f"decision {row['id']}"
    checks.append((f"{who}, action", row["accepted"] == (row["u"] < row["propensity"])))
    if row["epoch"] in keys:
        subject = [1, row["loop"], row["subject_id"] or row["application_id"]]
        drawn = hmac.digest(keys[row["epoch"]], text(subject), "sha256")
        checks.append((f"{who}, draw", row["u"] == (int.from_bytes(drawn[:8]) >> 11) / 2**53))
    if row["features"]:  # else they were forgotten
        known = sha((row["salt"] + row["features"]).encode())
        checks.append((f"{who}, features", known == row["features_digest"]))
for table in ("decision", "epoch"):
    digests, seal = {}, ""
    for row in tables[table]:  # in order of their ids
        later = ("digest", "features", "salt", "key")  # filled in or deleted later
        digest = sha({name: row[name] for name in row if name not in later})
        checks.append((f"{table} {row['id']}, digest", digest == row["digest"]))
        digests[row["time"][:10]] = digests.get(row["time"][:10], "") + row["digest"]
    for day in (day for day in tables["day"] if day["table"] == table):
        rows = sha(digests.get(day["date"], "").encode())
        about = [day[name] for name in ("loop", "date", "table", "rows", "summary")]
        checks.append((f"{table} {day['date']}, seal", day["seal"] == sha([*about, rows, seal])))
        seal = day["seal"]
    print(f"last seal of {table}: {seal}")

wrong = [what for what, holds in checks if not holds]
print(*wrong, f"{len(checks)} checks, {len(wrong)} failed", sep="\n")
sys.exit(bool(wrong))
