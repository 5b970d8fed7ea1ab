"""How long a thing has lasted is counted from when it was first seen, whatever its stamp says."""

from sluice_ops.process.durations import TimestampAges


def test_a_stamp_is_as_old_as_it_is_known():
    now = 100.0
    ages = TimestampAges(lambda: now)
    ages.track([5.0, 1e9])
    assert ages.ages() == {5.0: 0.0, 1e9: 0.0}
    now = 130.0
    ages.track([5.0, 7.0])
    assert ages.ages() == {5.0: 30.0, 7.0: 0.0}
    assert ages.first_seen(5.0) == 100.0
    assert ages.first_seen(1e9) == 130.0, "what is gone is forgotten"
