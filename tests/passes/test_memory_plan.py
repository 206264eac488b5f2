"""The memory plan: buffers alive together never overlap, and it comes close to the least that any plan needs."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tilewright.passes.memory_plan import ALIGN, Interval, plan

lives = st.lists(st.tuples(st.integers(0, 5000), st.integers(0, 40), st.integers(0, 12)), max_size=40).map(
    lambda raw: [Interval(k, n, first, first + length) for k, (n, first, length) in enumerate(raw)]
)


@given(lives)
def test_buffers_alive_together_do_not_overlap(intervals: list[Interval[int]]) -> None:
    made = plan(intervals)
    assert set(made.offsets) == {i.key for i in intervals}
    for a in intervals:
        at = made.offsets[a.key]
        assert at % ALIGN == 0 and at + a.nbytes <= made.nbytes
        for b in intervals:
            if a.key < b.key and a.first <= b.last and b.first <= a.last:
                start, end = made.offsets[b.key], made.offsets[b.key] + b.nbytes
                assert at + a.nbytes <= start or end <= at or 0 in (a.nbytes, b.nbytes)


@given(lives)
def test_no_plan_beats_the_lower_bound(intervals: list[Interval[int]]) -> None:
    made = plan(intervals)
    assert made.lower_bound <= made.nbytes


def test_a_chain_needs_two_buffers() -> None:
    made = plan([Interval(k, 1000, k, k + 1) for k in range(10)])
    assert made.nbytes == made.lower_bound == 2 * 1024


def test_what_lies_between_two_large_buffers_stays_in_one_piece() -> None:
    """The first two stages of a ResNet-50: with every buffer as low as it can be, a ninth is lost."""
    lives = [
        (6, 0, 1), (32, 1, 2), (8, 2, 8), (8, 3, 4), (18, 4, 5), (18, 5, 6), (8, 6, 7), (32, 7, 8), (32, 8, 13),
        (8, 9, 10), (18, 10, 11), (18, 11, 12), (8, 12, 13), (32, 13, 18), (8, 14, 15), (18, 15, 16), (18, 16, 17),
        (8, 17, 18), (32, 18, 22), (16, 19, 20), (4, 20, 21), (16, 21, 22), (16, 22, 27),
    ]  # fmt: skip
    made = plan([Interval(k, n << 12, first, last) for k, (n, first, last) in enumerate(lives)])
    assert made.nbytes == made.lower_bound
