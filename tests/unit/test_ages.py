"""How long a thing has lasted is counted from when it was first seen, whatever its stamp says."""

from sluice_ops.process.durations import Ages


def test_a_stamp_is_as_old_as_it_is_known():
    now = 100.0
    ages = Ages(lambda: now)
    ages.note([5.0, 1e9])
    assert ages.known() == {5.0: 0.0, 1e9: 0.0}
    now = 130.0
    ages.note([5.0, 7.0])
    assert ages.known() == {5.0: 30.0, 7.0: 0.0}
    assert ages.seen(5.0) == 100.0
    assert ages.seen(1e9) == 130.0, "what is gone is forgotten"
