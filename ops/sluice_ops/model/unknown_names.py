"""Names in the site file that are no tiers: typing errors, or tiers that are not yet published.

`sluice.commands.publish` compares the file with the declared tiers, and the controller compares it
with the published tiers.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from sluice_ops.model.ids import BATCH
from sluice_ops.model.scaler import ScalerSettings


class Names(Protocol):
    """The site file, or the rules that were made from it."""

    @property
    def shares(self) -> Mapping[str, object]:
        """By tenant."""

    @property
    def locality(self) -> Mapping[str, object]:
        """By tenant."""

    @property
    def spread(self) -> Mapping[str, object]:
        """By tier."""

    @property
    def pinned(self) -> Mapping[str, object]:
        """By tier."""

    @property
    def separate(self) -> Iterable[Iterable[str]]:
        """Groups of tiers."""

    @property
    def dedicated(self) -> Mapping[str, Iterable[str]]:
        """Tenants, by place."""

    @property
    def budget(self) -> Mapping[str, object]:
        """By tier."""

    @property
    def scaler(self) -> ScalerSettings:
        """With the settings of single tiers."""


def unknown(site: Names, shifts: Mapping[str, Iterable[str]], tiers: Collection[str]) -> list[str]:
    """Return a sentence for each name that is no tier, nor `batch` where that is allowed.

    `shifts` has the tenants of each shift.
    """
    tenants = {*tiers, BATCH}
    return [
        *_unknown_of_key("shares", site.shares, tenants),
        *_unknown_of_key("locality", site.locality, tenants),
        *_unknown_of_key("spread", site.spread, tiers),
        *_unknown_of_key("pinned", site.pinned, tiers),
        *_unknown_of_key("separate", sorted({name for group in site.separate for name in group}), tiers),
        *(
            line
            for place, only in site.dedicated.items()
            for line in _unknown_of_key(f"dedicated.{place}", sorted(only), tenants)
        ),
        *_unknown_of_key("budget", site.budget, tiers),
        *_unknown_of_key("scaler.tiers", site.scaler.tiers, tiers),
        *(
            line
            for shift, only in shifts.items()
            for line in _unknown_of_key(f"shifts.{shift}.shares", only, tenants)
        ),
    ]


def _unknown_of_key(key: str, names: Iterable[str], known: Collection[str]) -> Iterator[str]:
    return (f'{key} in the site file names "{name}", which is no tier' for name in names if name not in known)
