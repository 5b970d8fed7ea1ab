"""The drivers' figures out of PostgreSQL: rates, lag, latency, records by slot. Without PostgreSQL there are none, and that is said."""

from dataclasses import dataclass, field
from typing import Any

from ops import endpoints
from ops.model.incarnation import TierProgress

CONNECT_SECONDS = 2
QUERY = "select distinct on (tier) * from tier_progress order by tier, at desc"


@dataclass(frozen=True)
class Figures:
    """The newest row of each tier; `missing` says why there are none."""

    tiers: dict[str, TierProgress] = field(default_factory=dict)
    missing: str | None = None

    def records(self, host: str, slot: str) -> int | None:
        """Return the records that a slot's executor has read."""
        for progress in self.tiers.values():
            if f"{host}/{slot}" in progress.slots:
                return progress.slots[f"{host}/{slot}"]
        return None


def read_figures() -> Figures:
    """Ask PostgreSQL."""
    import psycopg2  # type: ignore[import-untyped]  # noqa: PLC0415
    import psycopg2.extras  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        with psycopg2.connect(endpoints.load().postgres, connect_timeout=CONNECT_SECONDS) as connection:
            cursor = connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor)
            cursor.execute(QUERY)
            rows: list[dict[str, Any]] = [dict(row) for row in cursor.fetchall()]
    except psycopg2.errors.UndefinedTable:
        return Figures(missing="no tier has reported yet")
    except psycopg2.Error as error:
        return Figures(missing=f"PostgreSQL is away: {str(error).strip().splitlines()[0]}")
    known = TierProgress.model_fields.keys()
    found = [TierProgress.model_validate({key: value for key, value in row.items() if key in known}) for row in rows]
    return Figures({progress.tier: progress for progress in found})
