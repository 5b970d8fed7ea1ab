"""Batches of neighbouring realtime tiers end at different times, so that only one tier pauses at
once.
"""

from itertools import pairwise
from types import SimpleNamespace

import pytest

from sluice.driver.engine.kafka_sink import batch_minutes
from sluice.driver.engine.streams import StreamsEngine
from sluice.kafka.positions import RecordsGoneError

QUARTER = 15
MONTH = 30 * 24 * 60


def test_batches_of_three_tiers_started_together_end_apart_for_a_month():
    lengths = [batch_minutes(distance) for distance in (1, 2, 3)]
    ends = sorted(end for length in lengths for end in range(length, MONTH, length))
    assert len(ends) >= 80
    assert all(later - sooner > QUARTER for sooner, later in pairwise(ends))


class Replaced(StreamsEngine):
    """An engine of which only the decision to replace a batch is real."""

    def __init__(self, begins: dict[str, int] | Exception, *, elected: bool = False) -> None:
        self._config = SimpleNamespace(hops_to_end=1)
        self._inputs = SimpleNamespace(logs=SimpleNamespace(epochs={}))
        self._batch_ends = 0.0
        self._found, self._elected, self.starts = begins, elected, []

    def _find_start(self):
        if self._elected:
            self._inputs.logs = SimpleNamespace(epochs={"raw/0": 2})
        if isinstance(self._found, Exception):
            raise self._found
        return self._found, {"raw/0": 20_000}, {}

    def _overlap(self, _query, start):
        self.starts.append(start)


@pytest.mark.parametrize(("begin", "elected", "overlaps"), [(19_000, False, 1), (0, False, 0), (0, True, 1)])
def test_a_batch_is_replaced_unless_much_would_be_read_again(begin, elected, overlaps):
    engine = Replaced({"raw/0": begin}, elected=elected)
    engine._replace_batch(None)
    assert engine.starts == [({"raw/0": begin}, {"raw/0": 20_000}, {})] * overlaps
    assert engine._batch_ends == 60 * batch_minutes(1), "the next batch is replaced, too"


def test_a_batch_goes_on_where_no_start_is_known():
    engine = Replaced(RecordsGoneError("expired"))
    engine._replace_batch(None)
    assert not engine.starts
    with pytest.raises(RecordsGoneError):
        Replaced(RecordsGoneError("cut"), elected=True)._replace_batch(None)
