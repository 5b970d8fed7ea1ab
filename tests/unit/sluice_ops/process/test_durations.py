"""The age of a timestamp counts from when the process first saw it, whatever the timestamp says."""

from sluice_ops.process.durations import TimestampAges


def test_a_timestamp_ages_from_when_it_was_first_seen():
    now = 100.0
    ages = TimestampAges(lambda: now)
    ages.track([5.0, 1e9])
    assert ages.ages() == {5.0: 0.0, 1e9: 0.0}
    now = 130.0
    ages.track([5.0, 7.0])
    assert ages.ages() == {5.0: 30.0, 7.0: 0.0}
    assert ages.first_seen(5.0) == 100.0
    assert ages.first_seen(1e9) == 130.0, "a timestamp that is no longer tracked is forgotten"
