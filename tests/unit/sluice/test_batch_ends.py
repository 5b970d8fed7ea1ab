"""Batches of neighbouring realtime tiers end at different times, so that only one tier pauses at
once.
"""

from itertools import pairwise

from sluice.driver.engine.kafka_sink import batch_length

QUARTER = 15
MONTH = 30 * 24 * 60


def test_batches_of_three_tiers_started_together_end_apart_for_a_month():
    lengths = [int(batch_length(distance).removesuffix(" minutes")) for distance in (1, 2, 3)]
    ends = sorted(end for length in lengths for end in range(length, MONTH, length))
    assert len(ends) >= 80
    assert all(later - sooner > QUARTER for sooner, later in pairwise(ends))
