"""What the site file says, key by key: the trail tells each change of it, whoever leads when it is seen."""

from collections.abc import Iterator

from pydantic import BaseModel

from sluice_ops.model.trail import SiteSaid
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Rules

NAMED = 20
"""So many differences are named at most."""


def settings_of(rules: Rules) -> SiteSaid:
    """Return what the site file says of all that the controller goes by."""
    return SiteSaid(said=dict(_lines(rules)))


def _lines(rules: Rules) -> Iterator[tuple[str, str]]:
    for tenant, share in rules.shares.items():
        yield f"shares.{tenant}", _words(share)
    for tenant, place in rules.locality.items():
        yield f"locality.{tenant}", place
    for tenant, spread in rules.spread.items():
        yield f"spread.{tenant}", _words(spread)
    for place, tenants in rules.dedicated.items():
        yield f"dedicated.{place}", listed(sorted(tenants))
    for tenant, budget in rules.budget.items():
        yield f"budget.{tenant}", str(budget)
    for shift, shares in rules.shifts.items():
        for tenant, numbers in shares.items():
            yield f"shifts.{shift}.{tenant}", _words(numbers)
    if rules.separate:
        yield "separate", "; ".join(sorted(listed(sorted(group)) for group in rules.separate))
    yield "partitions", str(rules.partitions)
    yield "batch_quantum", _words(rules.batch_quantum)
    yield "reclaim_seconds", f"{rules.reclaim_seconds:g}"
    if rules.repair_seconds is not None:
        yield "repair_seconds", f"{rules.repair_seconds:g}"


def _words(value: BaseModel) -> str:
    return " ".join(f"{key}={number}" for key, number in value.model_dump(exclude_none=True).items())


def differences(before: SiteSaid, after: SiteSaid) -> str:
    """Say which keys say something else, and what; the empty text where none does."""
    keys = [
        key
        for key in dict.fromkeys((*after.said, *before.said))
        if before.said.get(key) != after.said.get(key)
    ]
    named = [
        f"{key}: {before.said.get(key, 'nothing')} → {after.said.get(key, 'nothing')}" for key in keys[:NAMED]
    ]
    more = [f"and {len(keys) - NAMED} more"] if len(keys) > NAMED else []
    return "; ".join([*named, *more])
