"""The settings of the site file, key by key; the trail records each change of them."""

from collections.abc import Iterator
from functools import lru_cache

from sluice_ops.model.approval import ApprovalRule
from sluice_ops.model.repair import Repair
from sluice_ops.model.resources import Frozen
from sluice_ops.model.scaler import ScalerSettings, TierScaling
from sluice_ops.model.trail import SiteSaid
from sluice_ops.model.wording import listed
from sluice_ops.planning.placement.cluster import Rules

MOST_NAMED = 20
"""How many differences are named at most."""


def settings_of(rules: Rules) -> SiteSaid:
    """Return all settings of the site file that the controller uses."""
    return SiteSaid(said=dict(_lines(rules)))


def _lines(rules: Rules) -> Iterator[tuple[str, str]]:
    yield from _shares(rules)
    for tenant, place in rules.locality.items():
        yield f"locality.{tenant}", place
    for tenant, spread in rules.spread.items():
        yield f"spread.{tenant}", _text(spread)
    for tier, hosts in rules.pinned.items():
        yield f"pinned.{tier}", " ".join(f"{host}={count}" for host, count in hosts.items())
    for place, tenants in rules.dedicated.items():
        yield f"dedicated.{place}", listed(sorted(tenants))
    for tenant, budget in rules.budget.items():
        yield f"budget.{tenant}", str(budget)
    for shift, shares in rules.shifts.items():
        for tenant, numbers in shares.items():
            yield f"shifts.{shift}.{tenant}", _text(numbers)
    if rules.separate:
        yield "separate", "; ".join(sorted(listed(sorted(group)) for group in rules.separate))
    yield "partitions", str(rules.partitions)
    yield "batch_quantum", _text(rules.batch_quantum)
    yield from ((f"batch_tenants.{name}", _text(tenant)) for name, tenant in rules.batch_tenants.items())
    yield "reclaim_seconds", f"{rules.reclaim_seconds:g}"
    yield from _scaler(rules.scaler)
    yield from _approval(rules.approval)
    if rules.repair is not None:
        yield "repair", _repair(rules.repair)


def _shares(rules: Rules) -> Iterator[tuple[str, str]]:
    for tenant, share in rules.shares.items():
        # without spares, the text is that of earlier versions, so that an upgrade changes nothing
        yield f"shares.{tenant}", _text(share, but="" if share.spare else "spare")
    if rules.pipeline_share is not None:
        yield "pipeline_share", _text(rules.pipeline_share)


def _repair(repair: Repair) -> str:
    window = "" if repair.window is None else f" window={repair.window}"
    return f"after={repair.after:g} changes_per_hour={repair.changes_per_hour}{window}"


def _approval(rule: ApprovalRule | None) -> Iterator[tuple[str, str]]:
    """Yield the values that differ from the defaults."""
    if rule is None:
        yield "approval", "off"
        return
    for key, value in rule:
        if value != type(rule).model_fields[key].default:
            yield f"approval.{key}", listed(value) or "nothing" if key == "always" else str(value)


def _scaler(scaler: ScalerSettings) -> Iterator[tuple[str, str]]:
    """Yield the values that differ from the defaults."""
    tiers = [(f"scaler.tiers.{tier}", scaling, scaler.defaults) for tier, scaling in scaler.tiers.items()]
    for path, scaling, defaults in (("scaler.defaults", scaler.defaults, TierScaling()), *tiers):
        yield from (
            (f"{path}.{key}", str(value)) for key, value in scaling if value != getattr(defaults, key)
        )


@lru_cache(1024)
def _text(value: Frozen, but: str = "") -> str:
    return " ".join(
        f"{key}={number}" for key, number in value.model_dump(exclude_none=True, exclude={but}).items()
    )


def differences(before: SiteSaid, after: SiteSaid) -> str:
    """Describe the keys that differ, with both values; empty if none does."""
    keys = [
        key
        for key in dict.fromkeys((*after.said, *before.said))
        if before.said.get(key) != after.said.get(key)
    ]
    named = [
        f"{key}: {before.said.get(key, 'nothing')} → {after.said.get(key, 'nothing')}"
        for key in keys[:MOST_NAMED]
    ]
    more = [f"and {len(keys) - MOST_NAMED} more"] if len(keys) > MOST_NAMED else []
    return "; ".join([*named, *more])
