"""A new run is level with the old run when it writes present records, not when it has written the
records from before its start.
"""

from sluice.driver.engine.handover_watch import OutputProgress
from sluice.kafka.positions import OutputRecord
from sluice.kafka.reader import Seen

P, OLD, NEW = "raw/0", "entry/1", "entry/2"


def written(by: str, offset: int, at: int, arrived: int | None = None) -> Seen:
    return Seen(OutputRecord(by, P, offset, at), at - 2 if arrived is None else arrived)


def test_a_run_is_not_level_while_the_old_run_is_ahead():
    front = OutputProgress(NEW, {P: 50}, {P: 100})
    front.saw(written(OLD, 100, 10_000))
    for offset in range(50, 101):
        front.saw(written(NEW, offset, 10_500 + offset, arrived=10 * offset))
        front.saw(written(OLD, 51 + offset, 10_500 + offset))
    assert front.behind()
    assert not front.level(), "the records from before the start are out, but the last second is not"
    front.saw(written(NEW, 151, 10_660, arrived=10_590))
    assert front.level()


def test_a_replay_is_level_once_all_records_from_before_it_are_out():
    front = OutputProgress(NEW, {P: 98}, {P: 100})
    front.saw(written(NEW, 98, 1_000))
    assert not front.level()
    front.saw(written(NEW, 99, 1_001))
    assert front.level(), "the new run does not wait for an old run that is gone"


def test_without_records_to_process_a_run_is_not_level_by_output():
    assert not OutputProgress(NEW, {P: 100}, {P: 100}).level()


def test_a_run_that_began_idle_is_level_with_its_first_record():
    front = OutputProgress(NEW, {P: 100}, {P: 100})
    front.saw(written(OLD, 100, 1_000))
    assert not front.level()
    front.saw(written(NEW, 100, 1_050, arrived=998))
    assert front.level(), "so the watch ends, also where the stream was empty before"


def test_a_run_is_not_level_while_the_old_run_alone_has_a_partition():
    front = OutputProgress(NEW, {P: 99, "raw/1": 5}, {P: 100, "raw/1": 5})
    front.saw(written(NEW, 99, 1_000))
    assert front.level()
    front.saw(Seen(OutputRecord(OLD, "raw/1", 5, 1_100), 1_099))
    assert not front.level()


def test_replays_do_not_hide_a_gap():
    front = OutputProgress(NEW, {P: 50}, {P: 100})
    front.before(written(OLD, 99, 10_000))
    front.saw(written(OLD, 100, 10_010))
    for offset in range(50, 101):
        front.saw(written(NEW, offset, 10_020 + 20 * (offset - 50), arrived=9_000))
    front.saw(written(NEW, 101, 11_500, arrived=10_012))
    assert front.gap() == (11_500 - 10_012) / 1000


def test_time_without_input_is_no_gap():
    front = OutputProgress(NEW, {P: 100}, {P: 100})
    front.before(written(OLD, 99, 1_000))
    front.saw(written(NEW, 100, 61_005, arrived=61_000))
    assert front.gap() == 5 / 1000


def test_records_that_waited_for_a_killed_run_are_part_of_the_gap():
    front = OutputProgress(NEW, {P: 50}, {P: 100})
    assert front.silence() is None
    assert front.gap() is None
    front.before(written(OLD, 49, 10_000))
    front.saw(written(NEW, 50, 23_200, arrived=10_005))
    front.saw(written(NEW, 51, 23_300, arrived=10_010))
    assert front.silence() == front.gap() == (23_200 - 10_005) / 1000
    front.saw(written(NEW, 100, 23_400, arrived=23_390))
    assert front.gap() == (23_200 - 10_005) / 1000


def test_records_of_one_millisecond_are_one_moment_of_output():
    front = OutputProgress(NEW, {P: 50}, {P: 50})
    front.before(written(OLD, 49, 10_000))
    for offset, arrived in enumerate((10_350, 10_290, 10_400), start=50):
        front.saw(written(NEW, offset, 10_400, arrived=arrived))
    assert front.gap() == (10_400 - 10_290) / 1000, "the first record of the moment waited longest"


def test_time_without_input_is_no_silence():
    front = OutputProgress(NEW, {P: 100}, {P: 100})
    front.saw(written(NEW, 100, 61_005, arrived=61_000))
    assert front.silence() is None, "nothing is known of the output before"
    front.before(written(OLD, 99, 1_000))
    assert front.silence() == 5 / 1000
