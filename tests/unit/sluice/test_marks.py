"""High-water marks accept each record once, whichever runs wrote it and however often, as long as
writers keep the order.
"""

from hypothesis import given
from hypothesis import strategies as st

from sluice.api.marks import Marks, first_seen
from sluice.api.origins import position


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 40)), min_size=1, max_size=6),
    st.randoms(use_true_random=False),
    st.integers(1, 20),
)
def test_each_record_counts_once_although_writers_overlap(runs, random, size):
    """Each run starts at or before the first missing record and writes in order.

    Two runs may interleave, and batches end anywhere.
    """
    reach, queues = 0, []
    for begin, length in runs:
        first = min(begin, reach)
        queues.append(list(range(first, first + length)))
        reach = max(reach, first + length)
    stream, written = [], 0
    while any(queues):
        ready = [queue for queue in queues if queue and queue[0] <= written]
        queue = random.choice(ready)
        offset = queue.pop(0)
        written = max(written, offset + 1)
        stream.append(f"0:{offset}")
    marks: Marks = {}
    accepted = []
    for cut in range(0, len(stream), size):
        part = stream[cut : cut + size]
        accepted.extend(part[row] for row in first_seen(marks, ["0/1"] * len(part), part))
    assert accepted == [f"0:{offset}" for offset in range(reach)]


def test_paths_do_not_disturb_each_other():
    marks: Marks = {}
    assert first_seen(marks, ["0/0", "0/1", "0/0"], ["0:7", "0:3", "0:5"]) == [0, 1]
    assert marks == {"0/0": (7,), "0/1": (3,)}


def test_records_split_from_one_are_distinguished_by_their_index():
    marks: Marks = {}
    assert first_seen(marks, ["0"] * 4, ["0:1:0", "0:1:1", "0:1:0", "0:2:0"]) == [0, 1, 3]
    assert first_seen(marks, ["1"] * 4, ["0:1:0:0", "0:1:0:1", "0:1:1:0", "0:1:0:1"]) == [0, 1, 2], (
        "records that were split twice"
    )
    assert [position(origin) for origin in ("3:12", "other/3:12", "3:12&other:4")] == [(12,), (12,), (12, 4)]
