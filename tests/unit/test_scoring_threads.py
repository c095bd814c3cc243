"""Threads that wait for processes: results in order, jobs as they are needed, and an end whenever it is wanted."""

import itertools
import os
from collections.abc import Iterator
from contextlib import closing

import pytest

from cospec.scoring.threads import in_order, stoppable_threads, wait_readable


@pytest.fixture
def silent() -> Iterator[int]:
    """A descriptor through which nothing comes."""
    reading, writing = os.pipe()
    yield reading
    os.close(reading)
    os.close(writing)


def test_results_come_in_order_from_jobs_without_end() -> None:
    with stoppable_threads(4) as pool, closing(in_order(pool, lambda job: job * job, itertools.count())) as results:
        assert list(itertools.islice(results, 5000)) == [job * job for job in range(5000)]


def test_leaving_the_block_stops_what_waits_for_ever(silent: int) -> None:
    ends: list[str] = []

    def wait(job: int) -> None:
        try:
            wait_readable(silent, None)
        finally:
            ends.append("tidied up")

    with pytest.raises(ZeroDivisionError), stoppable_threads(2) as pool:  # noqa: PT012
        jobs = [pool.submit(wait, job) for job in range(100)]
        while not all(job.running() for job in jobs[:2]):
            pass
        raise ZeroDivisionError
    assert ends == ["tidied up"] * 2
    assert sum(job.cancelled() for job in jobs) == 98
    assert isinstance(jobs[0].exception(), KeyboardInterrupt)


def test_waiting_is_for_something_or_for_the_other_side_to_hang_up(silent: int) -> None:
    assert not wait_readable(silent, 0.01)
    reading, writing = os.pipe()
    os.write(writing, b"x")
    assert wait_readable(reading, None)
    os.read(reading, 1)
    os.close(writing)
    assert wait_readable(reading, None)
    os.close(reading)
