"""A fit that was cut short goes on where it ended, and ends where it would have."""

import os
import sys
from dataclasses import dataclass

import numpy as np
import pytest

from counterpoise.contexts import Contexts
from counterpoise.core.fit import Robustness, fit_problem
from counterpoise.core.oracle import LinearOracle
from counterpoise.core.problem import LinearProblem
from counterpoise.exceptions import CounterpoiseError, InvalidInputError
from counterpoise.losses import Huber, Logistic, Multinomial, Newsvendor, Pinball, Poisson
from counterpoise.rows import Answer, BlockRows, BlocksInMemory
from counterpoise.rows.blocks import of_all
from counterpoise.rows.recorded import Recorded
from tests.problems import make
from tests.rows.test_blocks import cut

LOSSES = [Logistic(), Multinomial(3), Poisson(), Huber(0.8), Pinball(0.3), Newsvendor(10.0)]
every_loss = pytest.mark.parametrize("loss", LOSSES, ids=lambda loss: loss.name)


class CutShortError(Exception):
    pass


class Fragile:
    """Blocks that answer so many questions, and then no more."""

    def __init__(self, blocks, passes=None):
        self.blocks, self.left, self.n_asked, self.n_advanced = blocks, passes, 0, 0

    def _spend(self):
        if self.left is not None and self.n_asked + self.n_advanced >= self.left:
            raise CutShortError

    def ask(self, question, states=None):
        self._spend()
        self.n_asked += 1
        return self.blocks.ask(question, states)

    def advance(self, question, states=None):
        self._spend()
        self.n_advanced += 1
        return self.blocks.advance(question, states)


def blocks_of(loss):
    X, y, codes = make(loss, 3, 2, 1, (6, 9))
    return cut(loss, X, y, codes, 3, 0), np.bincount(codes)


def fit(loss, blocks, counts):
    """Fit, references first; return all numbers of the answer."""
    summed = LinearOracle(BlockRows(blocks, loss, len(counts), 2), 0.05)
    problem = LinearProblem(summed, Contexts.counted(np.arange(len(counts)), counts), counts.astype(float))
    references = problem.references("in-sample", 1e-6)
    solution = fit_problem(problem, Robustness(radius=0.2).mixes(problem.counts), references).solution
    ends = [solution.certificate.lower, solution.certificate.upper]
    return np.concatenate([solution.theta, solution.p_worst, references.upper, ends])


@every_loss
def test_a_fit_goes_on_after_any_pass_and_ends_with_the_same_bits(loss, tmp_path):
    blocks, counts = blocks_of(loss)
    whole = Fragile(blocks)
    expected = fit(loss, whole, counts)
    passes = whole.n_asked + whole.n_advanced
    for k in {1, passes // 2, passes - 1}:
        path = tmp_path / f"{k}"
        first = Fragile(blocks, k)
        with pytest.raises(CutShortError):
            fit(loss, Recorded(first, path, b"rows"), counts)
        second = Fragile(blocks)
        again = Recorded(second, path, b"rows")
        assert again.n_known == k
        np.testing.assert_array_equal(fit(loss, again, counts), expected)
        # What is asked again are the states of rows alone, which are not written down.
        assert first.n_asked + second.n_asked == whole.n_asked
        assert second.n_advanced <= whole.n_advanced


@every_loss
def test_a_fit_that_is_cut_short_again_and_again_ends(loss, tmp_path):
    blocks, counts = blocks_of(loss)
    expected = fit(loss, blocks, counts)
    for _ in range(200):
        known = Recorded(blocks, tmp_path / "kept", b"rows").n_known
        # States are made anew first, so that much must be allowed for.
        fragile = Fragile(blocks, known + 7)
        try:
            found = fit(loss, Recorded(fragile, tmp_path / "kept", b"rows"), counts)
        except CutShortError:
            continue
        np.testing.assert_array_equal(found, expected)
        return
    pytest.fail("no end")


@pytest.mark.parametrize("loss", [Logistic(), Pinball(0.3), Newsvendor(10.0)], ids=lambda loss: loss.name)
def test_a_finished_fit_is_read_without_a_pass(loss, tmp_path):
    blocks, counts = blocks_of(loss)
    expected = fit(loss, Recorded(blocks, tmp_path / "kept", b"rows"), counts)
    nothing = Fragile(blocks, 0)
    np.testing.assert_array_equal(fit(loss, Recorded(nothing, tmp_path / "kept", b"rows"), counts), expected)


# --- files --------------------------------------------------------------------------------------------------


def kept_file(tmp_path, loss=Newsvendor(10.0), passes=12):  # noqa: B008
    blocks, counts = blocks_of(loss)
    with pytest.raises(CutShortError):
        fit(loss, Recorded(Fragile(blocks, passes), tmp_path / "kept", b"rows"), counts)
    return tmp_path / "kept", blocks, counts


def test_a_tail_that_was_cut_is_dropped_wherever_it_was_cut(tmp_path):
    path, blocks, counts = kept_file(tmp_path)
    expected, content = fit(Newsvendor(10.0), blocks, counts), path.read_bytes()
    for size in np.linspace(0, len(content), 6).astype(int):
        path.write_bytes(content[:size])
        recorded = Recorded(blocks, path, b"rows")
        assert recorded.n_known <= 12
        np.testing.assert_array_equal(fit(Newsvendor(10.0), recorded, counts), expected)
        # What was written after the cut is read again.
        assert Recorded(blocks, path, b"rows").n_known > 12


def test_answers_that_were_spoilt_are_asked_for_again(tmp_path):
    path, blocks, counts = kept_file(tmp_path)
    expected, content = fit(Newsvendor(10.0), blocks, counts), path.read_bytes()
    for place in np.linspace(70, len(content) - 1, 4).astype(int):
        path.write_bytes(content[:place] + bytes([content[place] ^ 0xFF]) + content[place + 1 :])
        np.testing.assert_array_equal(fit(Newsvendor(10.0), Recorded(blocks, path, b"rows"), counts), expected)
    path.write_bytes(content + b"\xff" * 500)
    assert Recorded(blocks, path, b"rows").n_known == 12


def test_a_file_that_is_no_checkpoint_is_left_alone(tmp_path):
    path = tmp_path / "thesis.txt"
    path.write_text("years of work")
    with pytest.raises(InvalidInputError, match="is no checkpoint"):
        Recorded(BlocksInMemory([]), path, b"rows")
    assert path.read_text() == "years of work"


def test_the_checkpoint_of_other_rows_is_refused_and_kept(tmp_path):
    path, blocks, _ = kept_file(tmp_path)
    content = path.read_bytes()
    with pytest.raises(InvalidInputError, match="other data"):
        Recorded(blocks, path, b"other rows")
    assert path.read_bytes() == content


@pytest.mark.parametrize("kind", ["folder", "nowhere", "inside a file"])
def test_a_place_that_cannot_be_written_is_named(kind, tmp_path):
    (tmp_path / "file").write_text("")
    path = {"folder": tmp_path, "nowhere": tmp_path / "a" / "b", "inside a file": tmp_path / "file" / "c"}[kind]
    with pytest.raises(CounterpoiseError, match="cannot be used as a checkpoint") as caught:
        Recorded(BlocksInMemory([]), path, b"rows")
    assert str(path) in str(caught.value)


@pytest.mark.skipif(not os.path.exists("/dev/full"), reason="needs a device that is always full")
def test_a_full_disk_is_said_so(tmp_path):
    blocks, counts = blocks_of(Logistic())
    recorded = Recorded(blocks, tmp_path / "kept", b"rows")
    (tmp_path / "kept").unlink()
    (tmp_path / "kept").symlink_to("/dev/full")
    with pytest.raises(CounterpoiseError, match="cannot be written"):
        fit(Logistic(), recorded, counts)


def test_finishing_removes_the_file_and_twice_is_once(tmp_path):
    path, blocks, _ = kept_file(tmp_path)
    recorded = Recorded(blocks, path, b"rows")
    recorded.finish()
    assert not path.exists()
    recorded.finish()


# --- states -------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Counted(Answer):
    n: object = of_all()


class Count:
    """A question whose state is how often it was asked."""

    answers = Counted

    def about(self, contexts):
        return self

    def __call__(self, block, state):
        n = (0 if state is None else state) + 1
        return n, Counted(block.contexts, np.zeros(1, dtype=int), np.array(float(n)))


def test_states_are_made_only_when_needed_however_long_their_chain(tmp_path):
    blocks, _ = blocks_of(Logistic())
    n = sys.getrecursionlimit() + 50
    for recorded in (Recorded(blocks, tmp_path / "kept", b"rows"), Recorded(blocks, tmp_path / "kept", b"rows")):
        fresh = recorded.n_known == 0
        before, states = blocks.n_passes, None
        for _ in range(n):
            states, answer = recorded.advance(Count(), states)
        assert float(answer.n) == 3.0 * n
        assert blocks.n_passes - before == (n if fresh else 0)
    _, answer = recorded.advance(Count(), states)
    assert float(answer.n) == 3.0 * (n + 1)
    assert blocks.n_passes - before == n + 1
