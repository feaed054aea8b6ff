"""Work shared among threads: the same answers in the same order, and the BLAS as it was."""

import threading

import numpy as np
import pytest
from threadpoolctl import threadpool_limits

from counterpoise import threads


@pytest.fixture(params=[1, 2, 3])
def allowed(request):
    with threadpool_limits(request.param, "blas"):
        # A machine may have fewer cores than that.
        yield threads.n_threads()


def test_answers_come_in_the_order_of_the_items(allowed):
    assert threads.spread(lambda k: k * k, range(50)) == [k * k for k in range(50)]
    assert threads.spread(lambda k: k, []) == []


def test_inside_the_blas_has_one_thread_and_afterwards_as_many_as_before(allowed):
    inside = threads.spread(lambda _: threads.n_threads(), range(4))
    assert inside == [1] * 4
    assert threads.n_threads() == allowed


def test_limits_that_overlap_are_taken_off_by_the_last(allowed):
    first, second = threads.one_thread(), threads.one_thread()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert threads.n_threads() == 1
    second.__exit__(None, None, None)
    assert threads.n_threads() == allowed


def test_many_callers_at_once_leave_the_blas_as_it_was(allowed):
    callers = [threading.Thread(target=threads.spread, args=(lambda k: k, range(20))) for _ in range(8)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert threads.n_threads() == allowed


def test_what_is_ignored_outside_is_ignored_inside(allowed):
    with np.errstate(over="ignore"):
        assert threads.spread(lambda x: float(np.square(np.array([x]))[0]), [1e300] * 3) == [np.inf] * 3


def test_an_error_in_a_thread_reaches_the_caller(allowed):
    def fail(k):
        raise ValueError(f"item {k}")

    with pytest.raises(ValueError, match="item 0"):
        threads.spread(fail, range(3))
    assert threads.n_threads() == allowed


@pytest.mark.parametrize("n", [0, 1, 2, 7, 1000])
@pytest.mark.parametrize("entries", [0, threads.WORTHWHILE])
def test_parts_cover_all_rows_once(allowed, n, entries):
    parts = threads.parts(n, entries)
    assert np.concatenate([np.arange(n)[part] for part in parts]).tolist() == list(range(n))
    assert len(parts) == (1 if entries == 0 else allowed)
