"""The tiers that the site file names and that there are not: a slip of the keyboard, or one that is to be published yet.

`sluice.commands.publish` compares the file with the declared tiers, the controller with the published ones.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Protocol

from sluice_ops.model.ids import BATCH


class Names(Protocol):
    """The file, or the rules that were made of it."""

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
    def separate(self) -> Iterable[Iterable[str]]:
        """Groups of tiers."""

    @property
    def dedicated(self) -> Mapping[str, Iterable[str]]:
        """Tenants, by place."""

    @property
    def budget(self) -> Mapping[str, object]:
        """By tier."""


def unknown(said: Names, shifts: Mapping[str, Iterable[str]], tiers: Collection[str]) -> list[str]:
    """Say of each key which name in it is no tier (nor `batch`, where that may be); `shifts` are the tenants of each."""
    tenants = {*tiers, BATCH}
    return [
        *_strange("shares", said.shares, tenants),
        *_strange("locality", said.locality, tenants),
        *_strange("spread", said.spread, tiers),
        *_strange("separate", sorted({name for group in said.separate for name in group}), tiers),
        *(
            line
            for place, only in said.dedicated.items()
            for line in _strange(f"dedicated.{place}", sorted(only), tenants)
        ),
        *_strange("budget", said.budget, tiers),
        *(
            line
            for shift, only in shifts.items()
            for line in _strange(f"shifts.{shift}.shares", only, tenants)
        ),
    ]


def _strange(key: str, names: Iterable[str], known: Collection[str]) -> Iterator[str]:
    return (
        f'{key} in the site file speaks of "{name}", which is no tier' for name in names if name not in known
    )
