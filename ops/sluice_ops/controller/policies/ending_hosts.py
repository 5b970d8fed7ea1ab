"""Burst hosts that EC2 will end: they are cordoned, and drained within the notice.

A rebalance recommendation says that EC2 may need the instance: nothing new is placed there. A spot
notice says when EC2 ends it, two minutes ahead: `settling` drains the host, and tries again while
the notice stands. Both are in what the host's agent reports.
"""

from dataclasses import dataclass

from sluice_ops.controller.pass_state import Draft
from sluice_ops.model.assignment import HostState
from sluice_ops.model.ids import HostName

NOTICE = "EC2's notice"
"""`HostRecord.by` of a host that EC2 will end."""
_GONE = frozenset({HostState.DRAINED, HostState.REBOOTING, HostState.LOST})


@dataclass(frozen=True)
class EndingRuling:
    """The hosts to cordon, each with the reason."""

    reasons: dict[HostName, str]

    def apply(self, draft: Draft) -> None:
        """Cordon the hosts."""
        for name, reason in self.reasons.items():
            draft.set_host_state(name, HostState.CORDONED, NOTICE)
            draft.log(f"{reason}; nothing new is placed there")


def hosts_to_cordon(draft: Draft) -> EndingRuling:
    """Return the hosts that are up and that EC2 will end.

    A host that a person returned after a rebalance recommendation stays up.
    """
    reasons: dict[HostName, str] = {}
    for name, host in draft.view.hosts.items():
        record, seen = draft.records[name], host.observed
        reason = None if seen is None or not host.live else seen.ending(name)
        if seen is None or reason is None or record.state is not HostState.UP:
            continue
        if seen.ends_at is not None or record.since < (seen.at_risk_since or 0.0):
            reasons[name] = reason
    return EndingRuling(reasons)


def noticed(draft: Draft) -> list[tuple[float, HostName, str]]:
    """Return the hosts with a spot notice that are not drained, the earliest end first.

    Each has the end as epoch seconds, and the notice as a sentence.
    """
    return sorted(
        (seen.ends_at, name, reason)
        for name, host in draft.view.hosts.items()
        if host.live
        and (seen := host.observed) is not None
        and seen.ends_at is not None
        and (reason := seen.ending(name)) is not None
        and draft.host_state(name) not in _GONE
    )
