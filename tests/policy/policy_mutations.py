"""Mutations: policy files changed by somebody who can compute every digest anew."""

from __future__ import annotations

import base64
import hashlib
import json
import zlib
from collections.abc import Iterator
from io import BytesIO
from typing import Any
from zipfile import ZipFile

import numpy as np

HEADER = 128  # bytes before the numbers of a small array in NumPy's format
ODD = [
    *(None, True, "", "x", [], {}, [[]], "nan", 1e308, -1e308, 0.5, "\ud800", "../x", "O", "<f4"),
    *(-3, 0, 1, 2, 7, 2**31 - 1, 2**31, -(2**63), 2**64, 10**400, {"skops": "", "sha256": ""}),
]
FIELDS = [  # of an array's header: as written, and what to write in its place
    (b"'<f8'", b"'|O' ", b"'<U9'", b"'>f8'", b"'|V8'", b"'<M8[s]'"),
    (b"'shape': (", b"'shape': (9,", b"'shape': (-1,", b"'shape': (1073741824,"),
]


def nested(depth: int) -> list[Any]:
    found: list[Any] = []
    for _ in range(depth):
        found = [found]
    return found


def resealed(document: dict[str, Any]) -> str:
    """Return a document with its digest made anew, as somebody could who knows how it is made."""

    def without_archive(data):
        return {key: value for key, value in data.items() if key != "skops"}

    content = {key: value for key, value in document.items() if key != "digest"}
    content = json.loads(json.dumps(content), object_hook=without_archive)
    canonical = json.dumps(content, sort_keys=True, separators=(",", ":"))
    return json.dumps(document | {"digest": hashlib.sha256(canonical.encode()).hexdigest()})


def files_of(stored: dict[str, str]) -> dict[str, bytes]:
    """Return the files of an archive."""
    with ZipFile(BytesIO(zlib.decompress(base64.b64decode(stored["skops"])))) as files:
        return {name: files.read(name) for name in files.namelist()}


def packed(files: dict[str, bytes], **options: Any) -> dict[str, str]:
    """Return an archive of files as somebody makes it who knows how digests are made."""
    buffer, digest = BytesIO(), hashlib.sha256()
    with ZipFile(buffer, "w", **options) as archive:
        for name, data in sorted(files.items()):
            archive.writestr(name, data)
            digest.update(f"{name} {len(data)}\n".encode() + data)
    text = base64.b64encode(zlib.compress(buffer.getvalue())).decode()
    return {"skops": text, "sha256": digest.hexdigest()}


def mutated(text: str, rng: np.random.Generator) -> str:
    """Return a policy file with one random change, in an archive if it has any, resealed."""
    document = json.loads(text)
    archives = [holder for holder, key in places(document) if key == "skops"]
    if archives and rng.random() < 0.7:
        archive = archives[rng.integers(len(archives))]
        files = files_of(archive)
        change_files(files, rng)
        archive.update(packed(files))
    else:
        change_tree(document, rng)
    return resealed(document)


def places(tree: Any) -> Iterator[tuple[Any, Any]]:
    """Yield every container of a tree with each of its keys or indices."""
    if isinstance(tree, dict | list):
        for key in list(tree) if isinstance(tree, dict) else range(len(tree)):
            yield tree, key
            yield from places(tree[key])


def change_tree(tree: Any, rng: np.random.Generator) -> None:
    """Change one value of a tree of plain values, or one inside JSON that it has as text."""
    known = list(places(tree))
    holder, key = known[rng.integers(len(known))]
    value = holder[key]
    match int(rng.integers(4)):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(value, list) and value:
            holder[key] = value[: int(rng.integers(len(value)))]
        case 2:
            other, place = known[rng.integers(len(known))]
            holder[key] = json.loads(json.dumps(other[place]))
        case _:
            odd = [*ODD, nested(600)][rng.integers(len(ODD) + 1)]
            # skops has values as JSON in text
            holder[key] = json.dumps(odd) if key == "content" else odd


def change_files(files: dict[str, bytes], rng: np.random.Generator) -> None:
    """Change one file of an archive: its tree of types and values, or an array."""
    arrays = [name for name in files if name.endswith(".npy")]
    if not arrays or rng.random() < 0.6:
        tree = json.loads(files["schema.json"])
        change_tree(tree, rng)
        files["schema.json"] = json.dumps(tree).encode()
        return
    name = arrays[rng.integers(len(arrays))]
    header, numbers = files[name][:HEADER], bytearray(files[name][HEADER:])
    match int(rng.integers(3)):
        case 0:
            del numbers[int(rng.integers(len(numbers) + 1)) :]
        case 1 if numbers:
            numbers[rng.integers(len(numbers))] ^= 1 << int(rng.integers(8))
        case _:
            written, *others = FIELDS[rng.integers(2)]
            header = header.replace(written, others[rng.integers(len(others))]).rstrip()
            header = header[: HEADER - 1].ljust(HEADER - 1) + b"\n"
    files[name] = header + bytes(numbers)
