"""The drivers' figures and the audit's, out of PostgreSQL: rates, lag, latency, records by slot, losses. Without it there are none."""

from dataclasses import dataclass, field
from typing import Any

from ops import endpoints
from ops.model.incarnation import TierProgress
from ops.model.resources import Frozen

CONNECT_SECONDS = 2
QUERY = (
    "select tier, incarnation, extract(epoch from at)::float8 as at, rate_in, rate_out, lag, latency_ms, slots, details"
    " from tier_progress order by tier"
)
AUDIT = (
    "select tier, sum(once)::bigint as once, sum(again)::bigint as again, sum(lost)::bigint as lost, min(first_lost) as first_lost,"
    " bool_and(judges) as judges, extract(epoch from max(at))::float8 as at from audit group by tier order by tier"
)


class Audited(Frozen):
    """What the running audit has found of a tier."""

    tier: str
    once: int
    """Records of its input that have come out, were set aside, or left out on purpose."""
    again: int
    """Records that came out of one that had come out before: replays, or one that was made several."""
    lost: int
    first_lost: str | None
    """`stream/partition:offset`."""
    judges: bool
    at: float


@dataclass(frozen=True)
class Figures:
    """One row for each tier; `missing` says why there are none."""

    tiers: dict[str, TierProgress] = field(default_factory=dict)
    audit: tuple[Audited, ...] = ()
    missing: str | None = None

    def records(self, tenant: str, incarnation: int, address: str) -> list[int]:
        """Return the records that a tier's executors at an address have read, the oldest executor first."""
        progress = self.tiers.get(tenant)
        if progress is None or progress.incarnation != incarnation:
            return []
        places = (place.rpartition("/") for place in progress.slots)
        mine = [(int(number) if number.isdigit() else 0, number) for where, _, number in places if where == address]
        return [progress.slots[f"{address}/{number}"] for _, number in sorted(mine)]


def read_figures() -> Figures:
    """Ask PostgreSQL."""
    import psycopg2  # type: ignore[import-untyped]  # noqa: PLC0415
    import psycopg2.extras  # type: ignore[import-untyped]  # noqa: PLC0415

    try:
        with psycopg2.connect(endpoints.load().postgres, connect_timeout=CONNECT_SECONDS) as connection:
            cursor = connection.cursor(cursor_factory=psycopg2.extras.RealDictCursor)
            cursor.execute(QUERY)
            rows: list[dict[str, Any]] = [dict(row) for row in cursor.fetchall()]
            cursor.execute(AUDIT)
            audit = tuple(Audited.model_validate(dict(row)) for row in cursor.fetchall())
    except psycopg2.errors.UndefinedTable:
        return Figures(missing="no tier has reported yet")
    except psycopg2.Error as error:
        return Figures(missing=f"PostgreSQL is away: {str(error).strip().splitlines()[0]}")
    found = [TierProgress.model_validate(row) for row in rows]
    return Figures({progress.tier: progress for progress in found}, audit)
