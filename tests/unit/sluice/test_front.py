"""A new run is level with the old one when it is at the present, not when it has done what there was at its begin."""

from sluice.driver.engine.handover_watch import Front
from sluice.kafka.positions import OutputRecord
from sluice.kafka.reader import Seen

P, OLD, NEW = "raw/0", "entry/1", "entry/2"


def seen(by: str, offset: int, at: int, arrived: int | None = None) -> Seen:
    return Seen(OutputRecord(by, P, offset, at), at - 2 if arrived is None else arrived)


def test_it_is_not_level_while_the_old_run_goes_on_ahead():
    front = Front(NEW, {P: 50}, {P: 100})
    front.saw(seen(OLD, 100, 10_000))
    for offset in range(50, 101):
        front.saw(seen(NEW, offset, 10_500 + offset, arrived=10 * offset))
        front.saw(seen(OLD, 51 + offset, 10_500 + offset))
    assert front.behind()
    assert not front.level(), "what was there at its begin is out, but a second of the present is not"
    front.saw(seen(NEW, 151, 10_660, arrived=10_590))
    assert front.level()


def test_a_replay_is_level_only_once_all_records_from_its_begin_are_out():
    front = Front(NEW, {P: 98}, {P: 100})
    front.saw(seen(NEW, 98, 1_000))
    assert not front.level()
    front.saw(seen(NEW, 99, 1_001))
    assert front.level(), "an old run that is gone is not waited for"


def test_where_nothing_was_to_be_done_the_output_does_not_tell():
    assert not Front(NEW, {P: 100}, {P: 100}).level()


def test_a_partition_that_only_the_old_run_reaches_is_waited_for():
    front = Front(NEW, {P: 99, "raw/1": 5}, {P: 100, "raw/1": 5})
    front.saw(seen(NEW, 99, 1_000))
    assert front.level()
    front.saw(Seen(OutputRecord(OLD, "raw/1", 5, 1_100), 1_099))
    assert not front.level()


def test_replays_do_not_hide_a_gap():
    front = Front(NEW, {P: 50}, {P: 100})
    front.before(seen(OLD, 99, 10_000))
    front.saw(seen(OLD, 100, 10_010))
    for offset in range(50, 101):
        front.saw(seen(NEW, offset, 10_020 + 20 * (offset - 50), arrived=9_000))
    front.saw(seen(NEW, 101, 11_500, arrived=10_012))
    assert front.gap() == (11_500 - 10_012) / 1000


def test_time_without_input_is_no_gap():
    front = Front(NEW, {P: 100}, {P: 100})
    front.before(seen(OLD, 99, 1_000))
    front.saw(seen(NEW, 100, 61_005, arrived=61_000))
    assert front.gap() == 5 / 1000
