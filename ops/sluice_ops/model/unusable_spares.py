"""Spares in the site file for tiers that cannot have any.

`sluice.commands.publish` refuses them, and the controller tells them in its status.
"""

from collections.abc import Iterable, Mapping

from sluice_ops.model.share import Amount, Numbers, Share, is_zero
from sluice_ops.model.tier import TierSpec, why_no_spares


def unusable_spares(
    shares: Mapping[str, Share], shifts: Mapping[str, Mapping[str, Numbers]], tiers: Iterable[TierSpec]
) -> list[str]:
    """Return a sentence for each number of spares that has no effect; `shifts` are their shares."""
    sentences = []
    for spec in tiers:
        why = why_no_spares(spec)
        if why is None:
            continue
        spares: dict[str, Amount | None] = {
            "shares": shares[spec.name].spare if spec.name in shares else None,
            **{
                f"shifts.{shift}.shares": numbers[spec.name].spare
                for shift, numbers in shifts.items()
                if spec.name in numbers
            },
        }
        sentences += [
            f"{key}.{spec.name} in the site file has spare: {amount}, but the tier cannot have spares: "
            f"{why}; remove spare from {key}.{spec.name}"
            for key, amount in spares.items()
            if amount is not None and not is_zero(amount)
        ]
    return sentences
