"""Who does the work: processes here, or the workers of a cluster, through joblib."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import Any, TypeVar

__all__ = ["cluster", "in_order", "on_cluster", "side_by_side", "spread"]

Item = TypeVar("Item")
Result = TypeVar("Result")


@contextmanager
def cluster(client: Any) -> Iterator[Any]:
    """Within the block, let a Dask cluster do what can be spread.

    `simulate`, `reproduce` and `frontier` send seeds and bounds to its workers, bootstrap intervals
    their replicates. Results are the same as without it, whatever the number of workers; a worker
    that is lost is made up for by the others.

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


def spread(
    function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None = None
) -> Iterator[Result]:
    """Yield the results as they come, in any order; n_jobs is for processes here."""
    return _results(function, items, n_jobs, "generator_unordered")


def in_order(
    function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None = None
) -> Iterator[Result]:
    """Yield the results in the order of the items."""
    return _results(function, items, n_jobs, "generator")


def side_by_side(
    function: Callable[[Item], Result], items: Sequence[Item], n_jobs: int | None = None
) -> list[Result]:
    """Return the results of work on files of this machine, whatever the cluster.

    This process begins with the first item and the others with the last: they have much to load.
    """
    from joblib.executor import get_memmapping_executor

    n_others = min(n_jobs or os.cpu_count() or 1, len(items)) - 1
    if n_others < 1:
        return [function(item) for item in items]
    left, found = deque(enumerate(items)), dict[int, Result]()
    # joblib reuses the executor later, so it must be of the kind that joblib makes
    executor = get_memmapping_executor(n_others)

    def elsewhere() -> None:
        # one at a time: what waits in the executor's queue could not be done here
        while own := _taken(left.pop):
            found[own[0]] = executor.submit(_alone, function, own[1]).result()

    with ThreadPoolExecutor(n_others) as pool:
        feeding = [pool.submit(elsewhere) for _ in range(n_others)]
        try:
            while own := _taken(left.popleft):
                found[own[0]] = function(own[1])
            for each in feeding:
                each.result()
        finally:
            left.clear()
    return [found[place] for place in range(len(items))]


def _taken(take: Callable[[], Item]) -> Item | None:
    """Return what is taken, or None where nothing is left."""
    try:
        return take()
    except IndexError:
        return None


def _results(
    function: Callable[[Item], Result], items: Iterable[Item], n_jobs: int | None, how: str
) -> Iterator[Result]:
    from joblib import Parallel, delayed, effective_n_jobs

    # what a function holds travels with it; an argument would lie with one worker, and work there
    alone = partial(_alone, function)
    if on_cluster() and effective_n_jobs(-1) == 1:
        yield from _by_the_only_worker(alone, items)
        return
    many = -1 if on_cluster() else n_jobs
    yield from Parallel(n_jobs=many, return_as=how, batch_size=1)(
        delayed(alone)(item) for item in items
    )


def _by_the_only_worker(
    function: Callable[[Item], Result], items: Iterable[Item]
) -> Iterator[Result]:
    """Send work to a cluster of one thread, which joblib would take for nobody and do here."""
    from distributed import default_client

    client: Any = default_client()  # type: ignore[no-untyped-call]
    futures = client.map(function, list(items), pure=False)
    try:
        for future in futures:
            yield future.result()
    finally:
        client.cancel(futures)


def _alone(function: Callable[[Item], Result], item: Item) -> Result:
    """Work with one thread of linear algebra: the order of sums is then the same everywhere."""
    from threadpoolctl import threadpool_limits

    with threadpool_limits(limits=1, user_api="blas"):
        return function(item)
