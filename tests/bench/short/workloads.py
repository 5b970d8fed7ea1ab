"""The workloads, and how each system runs them."""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import count, pairwise
from pathlib import Path
from urllib.parse import urlencode, urlsplit

import psycopg

from sluice.api.declarations import Tier
from tests.bench.flow import Feed
from tests.bench.peers import java
from tests.bench.peers.flink import PLACES, Flink, Job, Memory, passing
from tests.bench.peers.ours import Ours
from tests.bench.peers.system import System
from tests.bench.records import Template, written
from tests.bench.short import checks, pools, streams, tiers
from tests.bench.short.measure import Side
from tests.bench.short.outputs import StreamOutput, TableOutput
from tests.lab import Lab, until

SQL = java.HERE / "sql"
HERE = PLACES[:1]
"""No spare TaskManager: nothing is killed here."""
SQL_MEMORY = Memory(jobmanager=768, task=1024, managed=256)
STAGES = ("one", "two", "three")
TABLES = """
CREATE TABLE flink_booked_ads (ad text PRIMARY KEY, campaign text);
CREATE TABLE flink_campaign_counts (campaign text, window_start timestamp, views bigint, clicks bigint,
    buys bigint, PRIMARY KEY (campaign, window_start));
CREATE TABLE flink_q0_bids (part integer, place bigint, auction bigint, bidder bigint, price bigint,
    at timestamp, PRIMARY KEY (part, place));
CREATE TABLE flink_q1_bids_in_euros (part integer, place bigint, auction bigint, bidder bigint,
    price numeric, at timestamp, PRIMARY KEY (part, place));
CREATE TABLE flink_q2_bids_on_some_auctions (part integer, place bigint, auction bigint, price bigint,
    PRIMARY KEY (part, place));
CREATE TABLE flink_q3_local_items (auction bigint PRIMARY KEY, name text, city text, state text);
CREATE TABLE flink_q4_prices_by_category (category integer PRIMARY KEY, auctions bigint,
    average double precision);
CREATE TABLE flink_q5_hot_auctions (since timestamp, auction bigint, bids bigint,
    PRIMARY KEY (since, auction));
CREATE TABLE flink_q6_prices_by_seller (seller bigint PRIMARY KEY, average double precision);
CREATE TABLE flink_q7_highest_bids (since timestamp PRIMARY KEY, auction bigint, bidder bigint,
    price bigint, at timestamp);
CREATE TABLE flink_q8_new_sellers (person bigint, since timestamp, name text, PRIMARY KEY (person, since));
"""
"""Flink's tables, like those that Sluice makes; a partition and an offset stand for an origin."""
PASSED_ON = {
    "sluice": "at least once; each record keeps its lineage, by which the next reader drops replays",
    "flink": "at least once; nothing marks a replay",
}
"""The guarantees of (a) and (b)."""
Check = Callable[[], str | None]
Start = Callable[[Lab, Path], Side]


@dataclass(frozen=True)
class Workload:
    title: str
    visible: str
    """The end of a record's latency."""
    guarantees: dict[str, str]
    """System → what holds after a failure."""
    first_rate: int
    """The first offered rate of the search."""
    templates: list[Template] | None
    """The templates of the records, or None for one of `tests.bench.records.SMALL`."""
    records: str
    """The name of the records."""
    sides: dict[str, Callable[[Lab, Path], Side]]
    """System → what runs this workload; the folder is the system's own."""

    def feed(self, stream: str, folder: Path) -> Feed:
        """Return the feed of the load; a file of templates is written to the folder."""
        if self.templates is None:
            return Feed(stream, self.records)
        file = folder / f"{self.records}.json"
        file.write_text(written(self.templates))
        return Feed(stream, str(file))


def make_tables(lab: Lab) -> None:
    """Make the tables of the other system."""
    with psycopg.connect(lab.endpoints.postgres) as connection:
        connection.execute(TABLES.encode())
        rows = list(checks.campaigns_by_ad().items())
        connection.cursor().executemany("INSERT INTO flink_booked_ads VALUES (%s, %s)", rows)


def names_of(listed: list[Tier]) -> list[str]:
    return [tier.name for tier in listed]


# -- (a) and (b): three stages from stream to stream


def chain_check(check: Callable[[str, str, str], str | None], lab: Lab, prefix: str) -> Check:
    return lambda: check(lab.endpoints.kafka, f"{prefix}-raw", f"{prefix}-three")


def chain_of_tiers(prefix: str, stages: list[Tier], check: Callable[[str, str, str], str | None]) -> Start:
    def start(lab: Lab, _folder: Path) -> Side:
        output = StreamOutput(lab.endpoints.kafka, f"{prefix}-three")
        return Side(Ours(lab, names_of(stages)), f"{prefix}-raw", output, chain_check(check, lab, prefix))

    return start


def chain_of_jobs(prefix: str, check: Callable[[str, str, str], str | None], *, sql: bool) -> Start:
    def start(lab: Lab, folder: Path) -> Side:
        kafka, mine = lab.endpoints.kafka, f"flink-{prefix}"
        names = [f"{mine}-{name}" for name in ("raw", *STAGES)]
        streams.make(kafka, names[0], names[1:])
        stages = {f"{mine}-{number}": pair for number, pair in enumerate(pairwise(names))}
        jobs = (
            {
                name: sql_job("counted", name, lab, folder, source=source, target=target)
                for name, (source, target) in stages.items()
            }
            if sql
            else passing(kafka, stages)
        )
        system = Flink(folder, jobs, SQL_MEMORY if sql else Memory(), HERE)
        return Side(system, names[0], StreamOutput(kafka, names[-1]), chain_check(check, lab, mine))

    return start


def sql_job(file: str, name: str, lab: Lab, folder: Path, **words: str) -> Job:
    """Write the statements of a file with the job's own words into the folder; return the job."""
    text = (SQL / f"{file}.sql").read_text()
    own = {"name": name, "kafka": lab.endpoints.kafka, "postgres": jdbc(lab.endpoints.postgres), **words}
    for word, value in own.items():
        text = text.replace(f"{{{word}}}", value)
    path = folder / f"{name}.sql"
    path.write_text(text)
    return Job("FlinkSql", (name, str(path)))


def jdbc(postgres: str) -> str:
    """Return the address of a database as Java's driver takes it."""
    url = urlsplit(postgres)
    user = urlencode({"user": url.username or "", "password": url.password or ""})
    return f"jdbc:postgresql://{url.hostname}:{url.port}{url.path}?{user}"


# -- (c) and (d): tables


def hits_on_tiers(lab: Lab, _folder: Path) -> Side:
    return hits_side(lab, Ours(lab, names_of(tiers.HITS)), "hits-raw", "campaign_counts")


def hits_on_flink(lab: Lab, folder: Path) -> Side:
    source = "flink-hits-raw"
    streams.make(lab.endpoints.kafka, source)
    system = Flink(folder, {"hits": sql_job("hits", "hits", lab, folder, source=source)}, SQL_MEMORY, HERE)
    return hits_side(lab, system, source, "flink_campaign_counts")


def hits_side(lab: Lab, system: System, source: str, table: str) -> Side:
    kafka, postgres = lab.endpoints.kafka, lab.endpoints.postgres
    output = TableOutput(kafka, postgres, table, "sum(views + clicks + buys)")
    return Side(system, source, output, lambda: checks.counts(kafka, source, postgres, table))


def queries_on_tiers(lab: Lab, _folder: Path) -> Side:
    names = names_of(tiers.NEXMARK)

    def waiting() -> int:
        """Return the largest lag of a tier, as its driver measured it last."""
        listed = ", ".join(f"'{name}'" for name in names)
        query = f"SELECT coalesce(max(lag), 0) FROM tier_progress WHERE tier IN ({listed})"  # noqa: S608
        return int(lab.query(query)[0][0])

    sent = count()

    def send(events: Sequence[checks.Event]) -> None:
        streams.send_as_entry(lab.endpoints.kafka, [(next(sent), each) for each in events])

    return queries_side(lab, Ours(lab, names), "raw", "", send, waiting)


def queries_on_flink(lab: Lab, folder: Path) -> Side:
    source = "flink-nexmark-raw"
    streams.make(lab.endpoints.kafka, source)
    job = sql_job("nexmark", "nexmark", lab, folder, source=source)
    system = Flink(folder, {"nexmark": job}, SQL_MEMORY, HERE)

    def send(events: Sequence[checks.Event]) -> None:
        streams.send(lab.endpoints.kafka, source, [json.dumps(one) for one in events])

    return queries_side(lab, system, source, "flink_", send)


def queries_side(
    lab: Lab,
    system: System,
    source: str,
    prefix: str,
    send: Callable[[Sequence[checks.Event]], None],
    waiting: Callable[[], int] | None = None,
) -> Side:
    kafka, postgres = lab.endpoints.kafka, lab.endpoints.postgres
    output = TableOutput(kafka, postgres, f"{prefix}q0_bids", comes=pools.is_bid)

    def before() -> str | None:
        """Compare the answers on a bounded input, and return when q0 has all bids of it."""
        bids, turns = 0, count()

        def give(events: Sequence[checks.Event]) -> None:
            nonlocal bids
            send(events)
            bids += sum(one["kind"] == "bid" for one in events)

        bounded = checks.bounded_events()
        give(bounded)
        until("q0 has the bounded input", lambda: output.count() >= bids)
        fault = checks.answers(
            postgres, prefix, bounded, lambda: give(checks.later_events(next(turns), bounded[0]["at"]))
        )
        until("q0 has the later bids", lambda: output.count() >= bids)
        return fault

    return Side(system, source, output, waiting=waiting, before=before)


WORKLOADS = {
    "a": Workload(
        "three stages pass bytes on",
        "the record in the last stream",
        PASSED_ON,
        40_000,
        None,
        "chain",
        {
            "sluice": chain_of_tiers("pass", tiers.PASS, checks.passed),
            "flink": chain_of_jobs("pass", checks.passed, sql=False),
        },
    ),
    "b": Workload(
        "three stages parse JSON, count up a field and write JSON",
        "the record in the last stream",
        PASSED_ON,
        40_000,
        None,
        "counted",
        {
            "sluice": chain_of_tiers("json", tiers.JSON, checks.counted_up),
            "flink": chain_of_jobs("json", checks.counted_up, sql=True),
        },
    ),
    "c": Workload(
        "hits: check, join with campaigns, count by window, upsert into PostgreSQL",
        "the record in the counts of the table",
        {
            "sluice": "exactly once: counts and positions are one transaction",
            "flink": "exactly once: counts from checkpoints overwrite the rows by key; after a failure, rows "
            "show older counts for a moment",
        },
        8_000,
        pools.hits(),
        "hits",
        {"sluice": hits_on_tiers, "flink": hits_on_flink},
    ),
    "d": Workload(
        "Nexmark q0 to q8 at once, each into a table in PostgreSQL",
        "the bid in the table of q0",
        {
            "sluice": "exactly once: rows and positions are one transaction",
            "flink": "exactly once: rows overwrite themselves by key, which is partition and offset of a bid",
        },
        4_000,
        pools.events(),
        "events",
        {"sluice": queries_on_tiers, "flink": queries_on_flink},
    ),
}
