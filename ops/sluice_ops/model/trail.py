"""The trail of changes: who asked for what, when, from which layer, and what became of it. Entries are made once, and never changed."""

from enum import StrEnum

from sluice_ops.model.change import CONTROLLER, ChangeSpec
from sluice_ops.model.ids import ChangeId
from sluice_ops.model.resources import Frozen
from sluice_ops.model.share import Layer


class Outcome(StrEnum):
    """What an entry tells of a change."""

    BEGUN = "begun"
    REFUSED = "refused"
    """It was asked for, and nothing came of it."""
    ABORT = "abort"
    """Somebody asked to undo it."""
    ABORTED = "aborted"
    DONE = "done"


class Entry(Frozen):
    """`trail/<role>/<name>`, until the audit has moved it to PostgreSQL: written by that role, as the channel's access lists prove."""

    at: float
    by: str
    """As it said itself: `cli:anna`, `airflow:drain_host/manual__1`; or `site file`."""
    layer: str | None = None
    """`person`, `maintenance`, `schedule`, `base`; None: no layer's, or the platform's own."""
    what: str
    change: ChangeId | None = None
    outcome: Outcome
    sentence: str = ""


class SiteSaid(Frozen):
    """`controller/site`: what the leader goes by of the site file, so that whoever leads next can tell what has changed."""

    said: dict[str, str]
    """By key, as a person would write it: `shares.enrich` → `minimum=1 target=2 maximum=4`."""


SITE_FILE = "site file"
"""Who set what it says."""


def layer_of(usual: Layer, by: str, named: str | None = None) -> str | None:
    """Return the layer that a change speaks for: the one that its spec names, or that is usual for its kind.

    None for the controller's own changes.
    """
    if by == CONTROLLER:
        return None
    return named or usual.name.lower()


def what_of(spec: ChangeSpec) -> str:
    """Say what is wanted: `scale enrich k=3`."""
    named = [str(word) for word in (spec.host, spec.tier, spec.shift, *spec.workers) if word is not None]
    said = [
        f"{key}={value}"
        for key in ("k", "minimum", "maximum", "to", "release", "partitions", "layer", "until")
        if (value := getattr(spec, key)) is not None
    ]
    return " ".join([spec.kind, *named, *said])
