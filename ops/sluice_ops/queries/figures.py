"""The drivers' figures and the audit's, out of PostgreSQL: rates, lag, latency, records by slot, losses. Without it there are none."""

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from pydantic import Field

from sluice_ops.model.access import Role
from sluice_ops.model.incarnation import TierProgress
from sluice_ops.model.resources import Frozen
from sluice_ops.model.status import Check
from sluice_ops.site import endpoints
from sluice_ops.site.installation import PlatformAwayError

if TYPE_CHECKING:
    import psycopg

CONNECT_SECONDS = 2
QUERY = (
    "select tier, incarnation, extract(epoch from at)::float8 as at, rate_in, rate_out, lag, latency_ms, slots, details"
    " from tier_progress order by tier"
)
AUDIT = (
    "select tier, sum(once)::bigint as once, sum(again)::bigint as again, bool_and(judges) as judges,"
    " sum(unseen)::bigint as unseen, max(checked) as checked,"
    " extract(epoch from max(at))::float8 as at, extract(epoch from max(complete))::float8 as complete,"
    " coalesce(max(batches.lost), 0)::bigint as unknown, coalesce(max(batches.late), 0)::bigint as late,"
    " coalesce(json_object_agg(partition, since) filter (where partial <> ''), '{}') as since,"
    " coalesce(max(partial), '') as partial"
    " from audit left join frontier using (tier)"
    " left join (select tier, sum(lost) as lost, sum(late) as late from ledger where lost > 0 or late > 0 group by tier) as batches"
    " using (tier)"
    " group by tier order by tier"
)
LOOKED_AT = "select tier from audit_read union select tier from audit"
LOSSES = (
    "select number, tier, place, records, sentence, extract(epoch from found_at)::float8 as found_at"
    " from losses where settled_at is null order by number"
)
REPLAYS = (
    "select number, tier, source, rows_out, replays as dropped, pace, sentence, extract(epoch from said_at)::float8 as said_at,"
    " (select sum(value::bigint - (done ->> key)::bigint) from jsonb_each_text(ends))::bigint as left"
    " from replays where ended_at is null and tier is not null and said_at is not null order by number"
)

SETTLE = "update losses set settled_at = now(), settled_by = %s where number <= %s and settled_at is null"


class Audited(Frozen):
    """What the running audit has found of a tier."""

    tier: str
    once: int
    """Records of its input that have come out, were set aside, or left out on purpose."""
    again: int
    """Records that came out of one that had come out before: replays, or one that was made several."""
    judges: bool
    checked: Check = Check.RECORDS
    at: float
    complete: float | None = None
    """Everything that arrived before this moment has gone through the tier; None while nobody knows."""
    unseen: int = 0
    """Records that were no longer in their stream when the audit came to them: nobody knows whether they are lost."""
    unknown: int = 0
    """Records that it has sent, at most once, and of which nobody knows whether they were taken."""
    partial: str = ""
    """Why the audit does not cover the tier from its first record on; empty when it does."""
    since: dict[str, int | None] = Field(default_factory=dict)
    """Of such a tier the first offset that the audit judges, by partition; None where it was not noted."""
    late: int = 0
    """Records that its state did not take, because they came too late."""


class Found(Frozen):
    """One loss that the audit has found and that nobody has settled."""

    number: int
    tier: str
    place: str
    """Of its first record, `stream/partition:offset`."""
    records: int
    sentence: str
    found_at: float


class Replaying(Frozen):
    """A replay that is not done."""

    number: int
    tier: str
    source: str
    """The streams that it reads."""
    rows_out: int
    dropped: int
    """Records that were there; those that tiers further on drop are in the ledger of these."""
    left: int
    pace: float
    """Records per second."""
    sentence: str
    """Why it is not as fast as it was asked to be."""
    said_at: float


@dataclass(frozen=True)
class Figures:
    """One row for each tier; `missing` says why there are none."""

    tiers: dict[str, TierProgress] = field(default_factory=dict)
    audit: tuple[Audited, ...] = ()
    looked_at: frozenset[str] = frozenset()
    """The tiers that the audit has looked at, also those of which it has seen no record yet."""
    losses: tuple[Found, ...] = ()
    replays: tuple[Replaying, ...] = ()
    missing: str | None = None

    def lost(self, tier: str) -> int:
        """Return how many records of a tier are lost, as far as nobody has settled it."""
        return sum(loss.records for loss in self.losses if loss.tier == tier)

    def records(self, tenant: str, incarnation: int, address: str) -> list[int]:
        """Return the records that a tier's executors at an address have read, the oldest executor first."""
        progress = self.tiers.get(tenant)
        if progress is None or progress.incarnation != incarnation:
            return []
        places = (place.rpartition("/") for place in progress.slots)
        mine = [
            (int(number) if number.isdigit() else 0, number)
            for where, _, number in places
            if where == address
        ]
        return [progress.slots[f"{address}/{number}"] for _, number in sorted(mine)]


def read_figures() -> Figures:
    """Read all figures from PostgreSQL."""
    import psycopg  # noqa: PLC0415

    try:
        with _connect() as connection:
            tiers = [TierProgress.model_validate(row) for row in connection.execute(QUERY)]
            audit = tuple(Audited.model_validate(row) for row in connection.execute(AUDIT))
            looked_at = frozenset(str(row["tier"]) for row in connection.execute(LOOKED_AT))
            losses = tuple(Found.model_validate(row) for row in connection.execute(LOSSES))
            replays = tuple(Replaying.model_validate(row) for row in connection.execute(REPLAYS))
    except (psycopg.errors.UndefinedTable, psycopg.errors.UndefinedColumn):
        return Figures(
            missing="the pipeline's tables do not exist yet; `make up` makes them, or "
            "`python -m sluice.commands.publish`"
        )
    except psycopg.Error as error:
        return Figures(missing=away(error))
    except endpoints.EndpointsError as error:
        return Figures(missing=str(error))
    return Figures({progress.tier: progress for progress in tiers}, audit, looked_at, losses, replays)


def settle(number: int, by: str) -> int:
    """Mark the losses up to `number` as settled; return how many losses were settled."""
    import psycopg  # noqa: PLC0415

    try:
        with _connect() as connection:
            return connection.execute(SETTLE, (by, number)).rowcount
    except psycopg.Error as error:
        message = f"{away(error)}; no loss is settled"
        raise PlatformAwayError(message) from error


def away(error: Exception) -> str:
    """Return one line: PostgreSQL is away, and why."""
    return f"PostgreSQL is away: {next(iter(str(error).strip().splitlines()), type(error).__name__)}"


def _connect() -> "psycopg.Connection[dict[str, Any]]":
    import psycopg  # noqa: PLC0415
    from psycopg.rows import dict_row  # noqa: PLC0415

    url = endpoints.load().postgres_as(Role.OPERATOR)
    return psycopg.connect(url, connect_timeout=CONNECT_SECONDS, row_factory=dict_row)
