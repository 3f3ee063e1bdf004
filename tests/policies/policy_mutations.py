"""Mutations: policy files changed at random by somebody who can compute every digest anew."""

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
    *(None, True, "", "x", [], {}, [[]], "nan", {"float": "nan"}, 1e308, -1e308, 0.5),
    *(-3, 0, 1, 2, 7, 2**31 - 1, 2**31, -(2**63), 2**64, 10**400, "\ud800", "../x", "O", "<f4"),
    {"array": [1.0], "dtype": "<U900000000", "shape": [1]},
    {"scalar": 1, "dtype": "V2000000000"},
]
DTYPES = [
    "'<f8'",
    "'<f4'",
    "'>f8'",
    "'<i8'",
    "'|O'",
    "'<U9'",
    "'|b1'",
    "'|V8'",
    "'<c16'",
    "'<M8[s]'",
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
    """Return a policy file with one or two random changes, and every digest made anew."""
    document = json.loads(text)
    archives = [holder for holder, key in places(document) if key == "skops"]
    if archives and rng.random() < 0.7:
        archive = archives[rng.integers(len(archives))]
        files = files_of(archive)
        for _ in range(int(rng.integers(1, 3))):
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
    match int(rng.integers(6)):
        case 0 if isinstance(holder, dict):
            del holder[key]
        case 1 if isinstance(value, list) and value:
            holder[key] = value[: int(rng.integers(len(value)))]
        case 2:
            holder[key] = nested(600)
        case 3 if isinstance(value, int | float) and not isinstance(value, bool):
            holder[key] = value * int(rng.choice([-1, 2, 10**9])) + int(rng.integers(-1, 2))
        case 4:
            other, place = known[rng.integers(len(known))]
            holder[key] = json.loads(json.dumps(other[place]))
        case _:
            odd = ODD[rng.integers(len(ODD))]
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
    header, numbers = files[name][:HEADER], files[name][HEADER:]
    match int(rng.integers(4)):
        case 0:
            numbers = numbers[: int(rng.integers(len(numbers) + 1))]
        case 1:
            changed = bytearray(numbers)
            for _ in range(int(rng.integers(1, 9)) if changed else 0):
                changed[rng.integers(len(changed))] = int(rng.integers(256))
            numbers = bytes(changed)
        case 2:
            sizes = [b"(1,)", b"(0,)", b"()", b"(1, 5)", b"(-1,)", b"(1073741824,)"]
            header = with_header(header, b"'shape': ", sizes[rng.integers(len(sizes))])
        case _:
            header = with_header(header, b"'descr': ", DTYPES[rng.integers(len(DTYPES))].encode())
    files[name] = header + numbers


def with_header(header: bytes, field: bytes, value: bytes) -> bytes:
    """Return the header of an array with another value of one field."""
    before, found, after = header.partition(field)
    if not found:
        return header
    end = after.index(b")") + 1 if field.startswith(b"'shape") else after.index(b",")
    changed = before + field + value + after[end:].rstrip()
    return changed[: HEADER - 1].ljust(HEADER - 1) + b"\n"
