"""The state of a host as commands and pages show it."""

import pytest

from sluice_ops.model.assignment import HostRecord, HostState


@pytest.mark.parametrize("written", HostState)
def test_a_host_without_its_agent_is_lost_unless_it_is_being_rebooted(written: HostState) -> None:
    record = HostRecord(state=written)
    assert record.seen(live=True) is written
    assert record.seen(live=False) is (
        HostState.REBOOTING if written is HostState.REBOOTING else HostState.LOST
    )
