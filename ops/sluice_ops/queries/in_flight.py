"""What PostgreSQL says about records between the tiers, for a drain to empty."""

from sluice_ops.model.ids import TierName
from sluice_ops.planning.pipeline_drain import Audit, Flow, Measured
from sluice_ops.queries.figures import away, connect, read_figures
from sluice_ops.queries.verdicts import verdict
from sluice_ops.site.endpoints import Endpoints

LOOK_QUERY = (
    "select extract(epoch from max(at))::float8 as at from audit_read "
    "where tier = (select min(tier) from audit_read)"
)
ENDS_QUERY = (
    "select stream || '/' || partition as place, (seen->>0)::bigint as ends_at "
    "from audit_streams, jsonb_each(ends) as each (partition, seen)"
)
JUDGED_QUERY = "select tier, partition, judged from audit"
SINKS_QUERY = "select tier, sum(rows_out)::bigint as rows from ledger group by tier"


def measure(services: Endpoints | None = None) -> Measured:
    """Read all figures, by default of this process's endpoints file.

    On an error, the result only has `missing`.
    """
    import psycopg  # noqa: PLC0415

    figures = read_figures(services)
    if figures.missing is not None:
        return Measured(missing=figures.missing)
    try:
        with connect(services) as connection:
            # the look first: the ends are then at least as new
            (looked,) = connection.execute(LOOK_QUERY).fetchall()
            ends = {row["place"]: row["ends_at"] for row in connection.execute(ENDS_QUERY)}
            judged: dict[str, dict[str, int]] = {}
            for row in connection.execute(JUDGED_QUERY):
                judged.setdefault(row["tier"], {})[row["partition"]] = row["judged"]
            sinks = {TierName(row["tier"]): row["rows"] for row in connection.execute(SINKS_QUERY)}
    except psycopg.Error as error:
        return Measured(missing=away(error))
    audits = {
        TierName(line.tier): Audit(
            judged=judged.get(line.tier, {}),
            once=line.once,
            lost=figures.lost(line.tier),
            judges=line.judges,
            verdict=verdict(line, figures.lost(line.tier)),
        )
        for line in figures.audit
    }
    return Measured(
        ends=ends,
        look=looked["at"],
        flows={
            TierName(name): Flow(row.at, row.lag, row.rate_in, row.details.get("positions", {}))
            for name, row in figures.tiers.items()
        },
        audits=audits,
        sinks=sinks,
        replays=tuple(sorted({replay.tier for replay in figures.replays})),
    )
