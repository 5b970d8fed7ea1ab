"""A realtime tier of which next to nothing comes out: whoever goes on after it does not read all of it again. On real Kafka."""

import signal

import pytest

from ops.model.incarnation import State
from tests.integration.pipeline.test_added import fed
from tests.integration.pipeline.test_streams import records
from tests.lab import Lab, until

PIPELINE_MODULE = "tests.integration.pipeline.choosing"
QUIET = ("raw/1", "raw/2", "raw/3")
MANY = 100

pytestmark = pytest.mark.timeout(600)


def settled(lab: Lab) -> dict[str, int]:
    """Return up to where the first incarnation says that all is out."""
    said = lab.report("choose", 1)
    return {} if said is None or said.settled is None else said.settled.positions


def test_where_nothing_comes_out_what_was_read_tells_where_the_next_one_begins(lab: Lab) -> None:
    lab.cold("choose", 1, "h1")
    lab.wait("choose", 1, State.RUNNING)
    with fed(lab) as numbers:
        until("much was read of the quiet partitions", lambda: all(settled(lab).get(name, 0) > MANY for name in QUIET))
        lab.driver("choose", 1).send_signal(signal.SIGKILL)
        lab.retire("choose", 1)
        before = settled(lab)
        assert all(at <= len(numbers) // 4 + 1 for at in before.values())
        lab.cold("choose", 2, "h2")
        lab.wait("choose", 2, State.RUNNING)
        said = lab.report("choose", 2)
        assert said is not None
        assert said.started_from is not None
        assert all(said.started_from.positions[name] >= before[name] for name in QUIET)
        out = len(records(lab, "chosen"))
        until("it puts out what comes", lambda: len(records(lab, "chosen")) > out + MANY)
    wanted = set(numbers[::4])
    until("all of it is out", lambda: {record.value["n"] for record in records(lab, "chosen")} == wanted, 60)
