"""Files and folders that are written completely or not at all: text, bytes, columns in Parquet."""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import platform
import shutil
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

Columns = dict[str, NDArray[Any]]


class UnreadableFileError(ValueError):
    """A file that is damaged or holds something else."""


def write_atomically(
    path: str | os.PathLike[str], content: str | bytes, *, replace: bool = True
) -> None:
    """Write a file through a temporary one beside it, so that no reader sees half of it.

    A symbolic link stays, and the file that it leads to is written; a device, a pipe or a folder is
    refused. What processes left that were killed is removed. Without `replace`, a file that is
    there is refused. No lock is taken: Ctrl-C may come at any moment, and would leave it behind.
    """
    target = Path(os.path.realpath(path))
    if not target.parent.is_dir():
        raise FileNotFoundError(f"no folder {os.fspath(target.parent)!r} to write to")
    # what /dev/stdout leads to may have no path: it is there and is no file
    if (os.path.exists(path) or os.path.lexists(target)) and not target.is_file():
        raise OSError(f"{os.fspath(path)} is a folder or a device, not a file that can be replaced")
    data = content.encode("utf-8") if isinstance(content, str) else content
    unfinished = _unfinished(target)
    try:
        with open(unfinished, "wb") as stream:
            stream.write(data)
            stream.flush()
            os.fsync(stream.fileno())
        if target.exists():
            if not replace:
                raise FileExistsError(f"{target} exists: choose another file")
            os.chmod(unfinished, target.stat().st_mode & 0o777)
        os.replace(unfinished, target)
    except BaseException as error:
        unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename is None and error.errno is not None:
            error.filename = os.fspath(target)  # a full disk does not say which file it was for
        raise


@contextmanager
def new_folder(target: Path, *, replace: bool = False, mode: int = 0o777) -> Iterator[Path]:
    """Give a temporary folder to write to, which becomes `target` when everything is in it.

    An empty folder may be there before, any other only with `replace`: it is renamed to
    `.NAME.replaced` until the new one has its name. A process that is killed in between leaves it
    there, and `put_back` finds it.
    """
    put_back(target)
    unfinished = _unfinished(target)
    shutil.rmtree(unfinished, ignore_errors=True)  # of a killed process that had our id
    unfinished.mkdir(mode=mode)
    try:
        yield unfinished
        sync(unfinished)
        if target.exists():
            shutil.copymode(target, unfinished)
            if replace:
                target.rename(_aside(target))
            else:
                target.rmdir()  # refuses what another process wrote since
        unfinished.rename(target)
    finally:
        shutil.rmtree(unfinished, ignore_errors=True)
        put_back(target)


def put_back(target: Path) -> None:
    """Put back a folder whose replacement never came; remove it where the replacement did."""
    aside = _aside(target)
    if aside.is_dir():
        with suppress(FileNotFoundError):  # another process did it since
            if target.exists():
                # renamed first: what is half removed must not be put back
                shutil.rmtree(aside.rename(_unfinished(target)))
            else:
                aside.rename(target)


def sync(path: Path) -> None:
    """Wait until a file's content, or the names in a folder, are on disk."""
    if sys.platform == "win32" and path.is_dir():  # where a folder cannot be opened
        return
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _aside(target: Path) -> Path:
    return target.with_name(f".{target.name}.replaced")


def _unfinished(target: Path) -> Path:
    """Return a temporary name beside a target, and remove what killed processes left there."""
    for path in target.parent.glob(f".{glob.escape(target.name)}.*.part"):
        host, process, *_ = path.name.removeprefix(f".{target.name}.").rsplit(".", 3)
        if host == platform.node() and process.isdigit() and not _runs(int(process)):
            with suppress(FileNotFoundError):
                shutil.rmtree(path) if path.is_dir() else path.unlink()
    writer = f"{platform.node()}.{os.getpid()}.{threading.get_ident()}"
    return target.with_name(f".{target.name}.{writer}.part")


def _runs(process: int) -> bool:
    if sys.platform == "win32":  # where signal 0 would end it
        return True
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except OSError:  # it is another user's
        return True
    return True


def save_columns(
    path: str | os.PathLike[str], columns: Mapping[str, NDArray[Any]], about: dict[str, Any]
) -> None:
    """Write arrays of equal length to one Parquet file; equal arrays make equal bytes.

    `about` has plain values, at least a `format` and a `schema`. It is stored in the file with a
    digest of everything, so that no damage goes unnoticed.
    """
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    document = json.dumps(about | {"digest": _digest(columns, about)})
    table = table.replace_schema_metadata({about["format"]: document})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    write_atomically(path, buffer.getvalue())


def load_columns(
    path: str | os.PathLike[str], format: str, schema: int
) -> tuple[Columns, dict[str, Any]]:
    """Read what `save_columns` wrote: the arrays, and what was stored about them.

    A file of another format, of another schema, or whose content is not what was written is
    refused.
    """
    import pyarrow as pa
    import pyarrow.parquet

    where = os.fspath(path)
    if not Path(path).exists():
        raise FileNotFoundError(f"no file {where!r}")
    try:
        table = pyarrow.parquet.read_table(path)
        stored = (table.schema.metadata or {}).get(format.encode())
        about = None if stored is None else json.loads(stored)
        columns = {
            name: table[name].combine_chunks().to_numpy(zero_copy_only=False)
            for name in table.column_names
        }
    except (pa.ArrowException, OSError, ValueError) as error:
        raise UnreadableFileError(f"{where} is damaged or no Parquet file: {error}") from None
    if not isinstance(about, dict) or "digest" not in about:
        raise UnreadableFileError(f"{where} is a Parquet file but holds no {format}")
    if about.get("schema") != schema:
        raise UnreadableFileError(
            f"{where} has schema {about.get('schema')!r}; this version reads {schema}"
        )
    if about.pop("digest") != _digest(columns, about):
        raise UnreadableFileError(f"{where} is damaged: its content is not what was written")
    return columns, about


def _digest(columns: Mapping[str, NDArray[Any]], about: dict[str, Any]) -> str:
    digest = hashlib.sha256(json.dumps(about, sort_keys=True).encode())
    for name, column in columns.items():
        digest.update(name.encode())
        is_text = column.dtype.kind in "OU"
        digest.update("\0".join(map(str, column)).encode() if is_text else column.tobytes())
    return digest.hexdigest()


def joined_columns(pieces: Sequence[Columns]) -> Columns:
    """Return the rows of several pieces, one after the other."""
    return {name: np.concatenate([piece[name] for piece in pieces]) for name in pieces[0]}
