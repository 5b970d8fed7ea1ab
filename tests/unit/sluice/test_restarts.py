"""A failed query is restarted in place, after a longer wait each time, up to a limit."""

from sluice.driver.control.restarts import Restarts


def test_each_restart_waits_twice_as_long_as_the_one_before():
    restarts = Restarts(limit=3, seconds=60, first_wait=1)
    assert restarts.failed(100)
    assert restarts.overdue(100.9) < 0 <= restarts.overdue(101)
    restarts.begun()
    assert not restarts.waiting
    assert restarts.failed(102)
    assert restarts.overdue(103.9) < 0 <= restarts.overdue(104)


def test_after_the_limit_no_restart_follows():
    restarts = Restarts(limit=2, seconds=60, first_wait=1)
    assert [restarts.failed(at) for at in (0, 1, 2)] == [True, True, False]


def test_old_failures_do_not_count():
    restarts = Restarts(limit=2, seconds=60, first_wait=1)
    assert all(restarts.failed(at) for at in range(0, 400, 40))


def test_no_restart_is_due_before_a_failure():
    assert Restarts(limit=2, seconds=60, first_wait=1).overdue(1e9) < 0


def test_a_postponed_restart_is_due_later_and_counts_as_no_failure():
    restarts = Restarts(limit=1, seconds=60, first_wait=1)
    for at in range(0, 100, 2):
        restarts.put_off(at, 2)
        assert restarts.waiting
        assert restarts.overdue(at + 1.9) < 0 <= restarts.overdue(at + 2)
    assert restarts.failed(100)
