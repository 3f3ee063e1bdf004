"""Workers: processes on this machine, or those of a cluster; and how far long work is."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sized
from contextlib import contextmanager
from functools import cache, partial
from typing import Any, TypeVar

__all__ = ["begun", "cluster", "on_cluster", "spread", "threads_for"]


MANY_ROWS = 100_000  # from which on several threads are faster than one

Item = TypeVar("Item")
Result = TypeVar("Result")
_DELAY = 2.0


@contextmanager
def cluster(client: Any) -> Iterator[Any]:
    """Within the block, let a Dask cluster do what can be spread.

    `simulate`, `reproduce` and `frontier` send seeds and bounds to its workers. Results are the
    same as without it, whatever the number of workers; a worker that is lost is made up for by the
    others.

    Parameters
    ----------
    client
        A `dask.distributed.Client`, or a scheduler's address such as `"tcp://10.0.0.1:8786"`.

    Examples
    --------
    >>> import consequential as cq
    >>> with cq.cluster("tcp://nowhere"):
    ...     pass
    Traceback (most recent call last):
    ConnectionError: no Dask scheduler answers at tcp://nowhere
    """
    from joblib import parallel_config

    try:
        import distributed
    except ImportError:
        raise ImportError("a cluster needs Dask: pip install 'consequential[cluster]'") from None
    connect: Any = distributed.Client
    mine = None
    if isinstance(client, str):
        try:
            client = mine = connect(client, timeout=5)
        except (OSError, ValueError) as error:
            raise ConnectionError(f"no Dask scheduler answers at {client}") from error
    try:
        with client.as_current(), parallel_config(backend="dask"):
            yield client
    finally:
        if mine is not None:
            mine.close()


def on_cluster() -> bool:
    """Whether work is sent to a cluster just now."""
    from joblib.parallel import get_active_backend

    backend, _ = get_active_backend()
    return type(backend).__name__ == "DaskDistributedBackend"


def begun(task: Callable[[], Result], client: Any = None) -> Callable[[], Result]:
    """Return how to get a task's result; with the client of a cluster the task begins at once."""
    return task if client is None else client.submit(task, pure=False).result


def spread(
    function: Callable[[Item], Result],
    items: Iterable[Item],
    n_jobs: int | None = None,
    *,
    ordered: bool = False,
    local: bool = False,
) -> Iterator[Result]:
    """Yield results as they come, or in the order of the items; n_jobs is for processes here.

    `local` is for work on files of this machine: then no cluster does it.
    """
    from joblib import Parallel, delayed, effective_n_jobs

    # what a partial function holds is sent with every task; Dask would keep an argument with one
    # worker, and send all tasks there
    task = partial(_with_one_thread, function, os.getpid())
    options: dict[str, Any] = {"n_jobs": n_jobs}
    if local:
        options = {"n_jobs": n_jobs or os.cpu_count(), "backend": "loky"}
    elif on_cluster():
        if effective_n_jobs(-1) == 1:
            yield from _by_the_only_worker(task, items)
            return
        options = {"n_jobs": -1}
    how = "generator" if ordered else "generator_unordered"
    parallel = Parallel(**options, return_as=how, batch_size=1)
    yield from parallel(delayed(task)(item) for item in items)


def _by_the_only_worker(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Send work to a cluster of one thread, which joblib would ignore."""
    from distributed import default_client

    client: Any = default_client()  # type: ignore[no-untyped-call]
    futures = client.map(function, list(items), pure=False)
    try:
        for future in futures:
            yield future.result()
    finally:
        client.cancel(futures)


def _with_one_thread(function: Callable[[Item], Result], parent: int, item: Item) -> Result:
    """Work with one thread of linear algebra: the order of sums is then the same everywhere."""
    from threadpoolctl import threadpool_limits

    _end_with(parent)
    with threadpool_limits(limits=1, user_api="blas"):
        return function(item)


@cache
def _end_with(parent: int) -> None:
    """End this process, if it is a child, within a second after its parent was killed.

    The workers of joblib would wait for more work for minutes.
    """

    def watch() -> None:
        while os.getppid() == parent:
            time.sleep(1.0)
        os._exit(1)

    if os.getppid() == parent:
        threading.Thread(target=watch, daemon=True).start()


def threads_for(n_rows: int) -> Any:
    """Return a context in which libraries use several threads for many rows, and one for few.

    With few rows each thread has little to do between two points where all of them wait for one
    another, and where other processes are busy too that takes a hundred times as long.
    """
    return _thread_pools().limit(limits=None if n_rows >= MANY_ROWS else 1)


@cache
def _thread_pools() -> Any:
    """The pools of libraries that are loaded by now; to find them takes a millisecond."""
    import sklearn.ensemble  # noqa: F401  # loads OpenMP
    from threadpoolctl import ThreadpoolController

    return ThreadpoolController()


def shown(items: Iterable[Item], what: str) -> Iterable[Item]:
    """Return the items; while one goes through them, a terminal shows how many are left."""
    from tqdm import tqdm

    total = len(items) if isinstance(items, Sized) else None
    # None: shown only where standard error is a terminal
    return tqdm(items, desc=what, total=total, leave=False, delay=_DELAY, disable=None)
