"""Logs written to files, to be scanned."""

from __future__ import annotations

import numpy as np
import pyarrow.parquet as pq

NAMES = {
    "features": ["x0", "x1"],
    "decision": "decision",
    "propensity": "propensity",
    "label": "label",
    "sensitive": "sensitive",
}


def written(log, folder, n_files=3, row_group_size=150):
    folder.mkdir(parents=True, exist_ok=True)
    for k, rows in enumerate(np.array_split(np.arange(len(log)), n_files)):
        table = log.take(rows).to_frame()
        pq.write_table(table, folder / f"part-{k}.parquet", row_group_size=row_group_size)
    return folder
