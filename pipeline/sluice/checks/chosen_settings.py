"""A tier's own Spark settings, in a session that several tiers share."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from sluice.api.declarations import DeclarationError, Tier
from sluice.failures import error_text

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

SQL = "spark.sql."


@contextmanager
def with_settings_of(tier: Tier, session: "SparkSession") -> Iterator[None]:
    """Use the tier's settings of SQL inside the block. DeclarationError: Spark refuses one.

    Its settings of Hadoop only matter to a driver, which opens its own session.
    """
    chosen = {name: value for name, value in tier.spark.items() if name.startswith(SQL)}
    before = {name: session.conf.get(name, None) for name in chosen}
    try:
        for name, value in chosen.items():
            _set(tier, session, name, value)
        yield
    finally:
        for name, earlier in before.items():
            if earlier is None:
                session.conf.unset(name)
            else:
                session.conf.set(name, earlier)


def _set(tier: Tier, session: "SparkSession", name: str, value: str) -> None:
    try:
        session.conf.set(name, value)
    except Exception as error:
        message = f'tier "{tier.name}": Spark refuses the setting {name}={value}: {error_text(error)}'
        raise DeclarationError(message) from error
