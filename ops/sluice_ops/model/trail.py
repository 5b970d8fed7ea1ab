"""The trail of changes: who requested which change, when, in which layer, and the outcome.

Entries are written once and never changed.
"""

from datetime import UTC, datetime
from enum import StrEnum

from sluice_ops.model.change import CONTROLLER, ChangeSpec
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Layer


class Outcome(StrEnum):
    """The event of an entry."""

    ASKED = "asked"
    """The change waits for the approval of another person; nothing was changed."""
    APPROVED = "approved"
    """Another person approved the change."""
    BEGUN = "begun"
    REFUSED = "refused"
    """The change was refused, by a rule or by another person; nothing was changed."""
    ABORT = "abort"
    """An abort was requested."""
    ABORTED = "aborted"
    DONE = "done"


class Entry(Frozen):
    """`trail/<role>/<name>`, until the audit moves the entry to PostgreSQL.

    Access lists prove that a process of this role wrote the entry.
    """

    at: float
    by: str
    """The requester in its own words:

    `cli:anna`, `airflow:drain_host/manual__1`; or `site file`.
    """
    layer: str | None = None
    """`person`, `maintenance`, `autoscaler`, `schedule` or `base`; None: no layer, or the
    platform's own.
    """
    what: str
    change: ChangeId | None = None
    outcome: Outcome
    sentence: str = ""


class SiteSaid(Frozen):
    """`controller/site`: the settings of the site file that the leader uses.

    The next leader compares them with the file to find changes.
    """

    said: dict[str, str]
    """By key, as a person would write the value:

    `shares.enrich` → `minimum=1 target=2 maximum=4`.
    """


SITE_FILE = "site file"
"""The requester of the settings in the site file."""


def layer_of(usual: Layer, by: str, named: str | None = None) -> str | None:
    """Return the layer of a change: the layer of its spec, or else the usual layer of its kind.

    Return None for the controller's own changes.
    """
    if by == CONTROLLER:
        return None
    return named or usual.name.lower()


def what_of(spec: ChangeSpec) -> str:
    """Return a change in one line: `scale enrich k=3 until=2026-11-28T06:00Z`."""
    names = [
        str(name)
        for name in (spec.fault, *spec.named_hosts, *spec.named_tiers, spec.shift, *spec.workers)
        if name is not None
    ]
    settings = [
        f"{key}={datetime.fromtimestamp(value, UTC):%Y-%m-%dT%H:%MZ}" if key == "until" else f"{key}={value}"
        for key in ("k", "minimum", "maximum", "to", "release", "partitions", "layer", "until")
        if (value := getattr(spec, key)) is not None
    ]
    return " ".join([spec.kind, *names, *settings])
