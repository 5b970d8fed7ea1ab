"""What the site file says of workers of light tiers, which have none. The controller tells it."""

from collections.abc import Iterable, Mapping

from sluice_ops.model.tier import TierSpec
from sluice_ops.model.unknown_names import Names


def unusable_workers(
    site: Names, shifts: Mapping[str, Iterable[str]], tiers: Iterable[TierSpec]
) -> list[str]:
    """Return a sentence for each key that has no effect, because its tier is light.

    `shifts` has the tenants of each shift. A share may stay in the file until the tier is light in
    the release that runs, so nothing refuses it.
    """
    keys: dict[str, Iterable[str]] = {
        "shares": site.shares,
        "pinned": site.pinned,
        "spread": site.spread,
        "budget": site.budget,
        "scaler.tiers": site.scaler.tiers,
        **{f"shifts.{shift}.shares": only for shift, only in shifts.items()},
    }
    return [
        f"{key}.{spec.name} in the site file has no effect, because the tier is light: its driver does the "
        f"work; remove {key}.{spec.name}, or declare {spec.name} without light=True, publish it, and run "
        f"`sluice upgrade {spec.name}`"
        for spec in tiers
        if spec.light
        for key, names in keys.items()
        if spec.name in names
    ]
