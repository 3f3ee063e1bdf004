"""Files that are written completely or not at all: text, bytes, and columns in Parquet."""

from __future__ import annotations

import glob
import hashlib
import io
import json
import os
import platform
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
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
    _remove_unfinished(target)
    writer = f"{platform.node()}.{os.getpid()}.{threading.get_ident()}"
    unfinished = target.with_name(f".{target.name}.{writer}.part")
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


def _remove_unfinished(target: Path) -> None:
    """Remove the temporary files of processes on this machine that no longer run."""
    for path in unfinished_files(target):
        writer = path.name.removeprefix(f".{target.name}.").rsplit(".", 3)
        if writer[0] == platform.node() and writer[1].isdigit() and not _runs(int(writer[1])):
            path.unlink(missing_ok=True)


def unfinished_files(target: Path) -> list[Path]:
    """Return the temporary files through which a file is, or was to be, written."""
    return list(target.parent.glob(f".{glob.escape(target.name)}.*.part"))


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


def exchange(first: Path, second: Path) -> bool:
    """Give two folders each other's name in one step; False where the system cannot."""
    import ctypes

    try:
        renameat2 = ctypes.CDLL(None).renameat2  # Linux has it, and Python no function for it
    except (AttributeError, OSError, TypeError):
        return False
    here, swap = -100, 2  # AT_FDCWD, RENAME_EXCHANGE
    return bool(renameat2(here, os.fsencode(first), here, os.fsencode(second), swap) == 0)


@contextmanager
def locked(path: Path, make: Callable[[Path], None], busy: Exception) -> Iterator[None]:
    """Make a folder and lock it; the lock ends with the process, however that ends.

    Where another process holds the lock, `busy` is raised.
    """
    if sys.platform == "win32":
        make(path)
        yield
        return
    handles: list[int] = []
    try:
        _lock(path, make, busy, handles)
        yield
    finally:
        for handle in handles:
            os.close(handle)


def _lock(path: Path, make: Callable[[Path], None], busy: Exception, handles: list[int]) -> None:
    """Make, open and lock; `handles` are to be closed, however this ends."""
    import fcntl

    while True:
        make(path)
        try:
            handles.append(os.open(path, os.O_RDONLY | os.O_NOFOLLOW))
        except FileNotFoundError:  # another process removed it since
            continue
        try:
            fcntl.flock(handles[-1], fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise busy from None
        except OSError:  # a file system without locks
            return
        # the process that had the lock before may have renamed or removed what was locked
        if path.exists() and os.path.samestat(os.fstat(handles[-1]), path.stat()):
            return
        os.close(handles.pop())


def save_columns(
    path: str | os.PathLike[str], columns: Mapping[str, NDArray[Any]], about: Any = None
) -> None:
    """Write arrays of equal length to one Parquet file; equal arrays make equal bytes.

    `about`, where given, is a dict of plain values with at least a `format` and a `schema`. It is
    stored in the file with a digest of everything, so that no damage goes unnoticed.
    """
    import pyarrow as pa
    import pyarrow.parquet

    table = pa.table({name: pa.array(values) for name, values in columns.items()})
    if about is not None:
        document = json.dumps(about | {"digest": _digest(columns, about)})
        table = table.replace_schema_metadata({about["format"]: document})
    buffer = io.BytesIO()
    pyarrow.parquet.write_table(table, buffer)
    write_atomically(path, buffer.getvalue())


def load_columns(
    path: str | os.PathLike[str], format: str = "", schemas: Sequence[int] = ()
) -> tuple[Columns, dict[str, Any]]:
    """Read what `save_columns` wrote: the arrays, and what was stored about them.

    With a `format`, a file of another format, of none of the schemas, or whose content is not
    what was written is refused; without, what is stored about the columns is not read.
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
    if not format:
        return columns, {}
    if about is None:
        raise UnreadableFileError(f"{where} is a Parquet file but holds no {format}")
    if not isinstance(about, dict) or "digest" not in about:
        raise UnreadableFileError(f"{where} is damaged: it does not say what it holds")
    if about.get("schema") not in schemas:
        known = " and ".join(map(str, schemas))
        raise UnreadableFileError(
            f"{where} has schema {about.get('schema')!r}; this version reads {known}"
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
