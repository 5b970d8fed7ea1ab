"""Drivers of an older version, which cannot read a lineage in one header, are found."""

import pytest
from simulation.memory import MemoryChannel

from sluice.driver.control.packed_lineage import is_written, older_drivers
from sluice_ops.channel.client import ChannelAwayError
from sluice_ops.model import paths
from sluice_ops.model.incarnation import IncarnationReport, OwnerRecord, State
from sluice_ops.site.site_file import Site

SITE = Site(pipeline="hits", hosts=(), packed_lineage=True)


@pytest.fixture
def channel() -> MemoryChannel:
    return MemoryChannel()


def run(channel: MemoryChannel, tier: str, number: int, *, reads_packed: bool) -> None:
    report = IncarnationReport(state=State.RUNNING, since=0, pid=1, reads_packed=reads_packed)
    channel.put(paths.report(tier, number), report)


@pytest.mark.parametrize("role", ["owner", "next", "standby"])
def test_a_driver_of_an_older_version_is_named(channel: MemoryChannel, role: str) -> None:
    channel.put(paths.owner("entry"), OwnerRecord(owner=2))
    run(channel, "entry", 2, reads_packed=True)
    assert older_drivers(channel) == []
    channel.put(paths.owner("counts"), OwnerRecord(owner=5).model_copy(update={role: 7}))
    run(channel, "counts", 4, reads_packed=False)
    assert older_drivers(channel) == [], "an earlier incarnation does not count"
    run(channel, "counts", 7, reads_packed=False)
    assert not is_written(channel, SITE)
    assert older_drivers(channel) == ["counts/7"]
    run(channel, "counts", 7, reads_packed=True)
    assert older_drivers(channel) == []
    assert is_written(channel, SITE)
    assert not is_written(channel, SITE.model_copy(update={"packed_lineage": False}))


def test_drivers_that_cannot_be_seen_count_as_older() -> None:
    class Away(MemoryChannel):
        def children(self, path: str) -> list[str]:
            raise ChannelAwayError(path)

    assert not is_written(Away(), SITE)
