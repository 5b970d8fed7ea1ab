"""The figures in PostgreSQL: rates, lag, latency, records by slot, and the audit's losses.

Without PostgreSQL there are no figures, and `Figures.missing` says why.
"""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from sluice_ops.model.access import Role
from sluice_ops.model.incarnation import TierProgress
from sluice_ops.model.resources import Frozen
from sluice_ops.model.status import Check
from sluice_ops.site import endpoints
from sluice_ops.site.endpoints import Endpoints
from sluice_ops.site.installation import PlatformAwayError

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 2
TIERS_QUERY = (
    "select tier, incarnation, extract(epoch from at)::float8 as at, rate_in, rate_out, lag, latency_ms, "
    "slots, details from tier_progress order by tier"
)
AUDIT_QUERY = (
    "select tier, sum(once)::bigint as once, sum(again)::bigint as again, bool_and(judges) as judges, "
    "sum(unseen)::bigint as unseen, max(checked) as checked, extract(epoch from max(at))::float8 as at, "
    "extract(epoch from max(complete))::float8 as complete, "
    "extract(epoch from max(complete))::float8 - max(lateness) as events, "
    "coalesce(max(batches.lost), 0)::bigint as unknown, "
    "coalesce(max(batches.late), 0)::bigint as late, "
    "coalesce(json_object_agg(partition, since) filter (where partial <> ''), '{}') as since, "
    "coalesce(max(partial), '') as partial from audit "
    "left join frontier using (tier) "
    "left join (select tier, sum(lost) as lost, sum(late) as late from ledger "
    "where lost > 0 or late > 0 group by tier) as batches using (tier) group by tier order by tier"
)
LOOKED_AT_QUERY = "select tier from audit_read union select tier from audit"
LOSSES_QUERY = (
    "select number, tier, place, records, sentence, extract(epoch from found_at)::float8 as found_at"
    " from losses where settled_at is null order by number"
)
REPLAYS_QUERY = (
    "select number, tier, source, rows_out, replays as dropped, pace, sentence, extract(epoch from "
    "said_at)::float8 as said_at, (select sum(value::bigint - (done ->> key)::bigint) from "
    "jsonb_each_text(ends))::bigint as left from replays where ended_at is null and tier is not null and "
    "said_at is not null order by number"
)

SETTLE_STATEMENT = (
    "update losses set settled_at = now(), settled_by = %s where number <= %s and settled_at is null"
)


class Audited(Frozen):
    """The audit's results for one tier."""

    tier: str
    once: int
    """Input records that came out, went to quarantine, or were filtered."""
    again: int
    """Records that came out in addition: replays, or several that were made from one."""
    judges: bool
    checked: Check = Check.RECORDS
    at: float
    complete: float | None = None
    """Records that arrived before this time have gone through the tier; None: unknown."""
    events: float | None = None
    """The state has every event that happened before this time, but those that came too late.

    None: unknown, or a tier without event time.
    """
    unseen: int = 0
    """Records that left their stream before the audit read them; they may be lost."""
    unknown: int = 0
    """Records sent at most once whose delivery is unknown."""
    partial: str = ""
    """Why the audit does not cover the tier from its first record on; empty if it does."""
    since: dict[str, int | None] = Field(default_factory=dict)
    """For such a tier: partition → the first audited offset; None if the offset was not noted."""
    late: int = 0
    """Records that the tier's state left out because they came too late."""


class OpenLoss(Frozen):
    """One loss that is not settled."""

    number: int
    tier: str
    place: str
    """The place of the first lost record: `stream/partition:offset`."""
    records: int
    sentence: str
    found_at: float


class Replaying(Frozen):
    """A replay that is under way."""

    number: int
    tier: str
    source: str
    """The streams that the replay reads."""
    rows_out: int
    dropped: int
    """Records that were dropped because they were there already.

    Records that later tiers drop are in the ledgers of these tiers.
    """
    left: int
    pace: float
    """Records per second."""
    sentence: str
    """Why the replay is slower than requested."""
    said_at: float


@dataclass(frozen=True)
class Figures:
    """All figures, by tier; `missing` says why there are none."""

    tiers: dict[str, TierProgress] = field(default_factory=dict)
    audit: tuple[Audited, ...] = ()
    looked_at: frozenset[str] = frozenset()
    """The tiers that the audit has looked at, even if it has seen no record of them."""
    losses: tuple[OpenLoss, ...] = ()
    replays: tuple[Replaying, ...] = ()
    missing: str | None = None

    def lost(self, tier: str) -> int:
        """Return how many records of a tier are lost and not settled."""
        return sum(loss.records for loss in self.losses if loss.tier == tier)

    def records(self, tenant: str, incarnation: int, address: str) -> list[int]:
        """Return the records that a tier's executors at an address have read, the oldest first."""
        progress = self.tiers.get(tenant)
        if progress is None or progress.incarnation != incarnation:
            return []
        places = (place.rpartition("/") for place in progress.slots)
        executors = [
            (int(number) if number.isdigit() else 0, number)
            for where, _, number in places
            if where == address
        ]
        return [progress.slots[f"{address}/{number}"] for _, number in sorted(executors)]


def read_figures(services: Endpoints | None = None) -> Figures:
    """Read all figures from PostgreSQL, by default of this process's endpoints file.

    On an error, the result only has `missing`.
    """
    import psycopg  # noqa: PLC0415

    try:
        with connect(services) as connection:
            tiers = [TierProgress.model_validate(row) for row in connection.execute(TIERS_QUERY)]
            audit = tuple(Audited.model_validate(row) for row in connection.execute(AUDIT_QUERY))
            looked_at = frozenset(str(row["tier"]) for row in connection.execute(LOOKED_AT_QUERY))
            losses = tuple(OpenLoss.model_validate(row) for row in connection.execute(LOSSES_QUERY))
            replays = tuple(Replaying.model_validate(row) for row in connection.execute(REPLAYS_QUERY))
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return Figures(
            missing="the pipeline's tables do not exist yet; create them with `sluice up` or `sluice publish`"
        )
    except psycopg.Error as error:
        return Figures(missing=away(error))
    except endpoints.EndpointsError as error:
        return Figures(missing=str(error))
    return Figures({progress.tier: progress for progress in tiers}, audit, looked_at, losses, replays)


def settle(number: int, by: str) -> int:
    """Mark the losses up to `number` as settled; return how many were.

    PlatformAwayError without PostgreSQL.
    """
    import psycopg  # noqa: PLC0415

    try:
        with connect() as connection:
            return connection.execute(SETTLE_STATEMENT, (by, number)).rowcount
    except psycopg.Error as error:
        message = f"{away(error)}; no loss is settled"
        raise PlatformAwayError(message) from error


def away(error: Exception) -> str:
    """Return one line that says that PostgreSQL is away, and why."""
    return f"PostgreSQL does not answer: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"


def connect(services: Endpoints | None = None) -> "psycopg.Connection[dict[str, Any]]":
    """Connect to PostgreSQL as the operator, by default of this process's endpoints file.

    Rows are dicts.
    """
    import psycopg  # noqa: PLC0415
    from psycopg.rows import dict_row  # noqa: PLC0415

    url = (services or endpoints.load()).postgres_as(Role.OPERATOR)
    return psycopg.connect(url, connect_timeout=CONNECT_SECONDS, row_factory=dict_row)
