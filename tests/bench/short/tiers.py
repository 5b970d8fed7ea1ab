"""Sluice's tiers of all workloads, in one pipeline; those of (c) and (d) are the examples."""

from collections.abc import Iterable
from dataclasses import replace

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

import hits
import nexmark
from sluice.api.declarations import Pipeline, Stream, Tier, Transform
from sluice.api.formats import Bytes
from sluice_ops.model.tier import Kind, Mode
from tests.bench.chain import DRIVER, SLOT

BYTES = "value binary"
COUNTED = "id bigint, sent bigint, user string, hops int"
QUERIES = ("q0", "q1", "q2", "q3", "q4", "q5", "q6", "q7", "q8")


def stages(
    names: Iterable[str], streams: tuple[Stream, ...], first: Transform, next_: Transform
) -> list[Tier]:
    """Return three realtime tiers, from the first of four streams to the last."""
    return [
        Tier(
            name,
            Kind.PROCESSING if number else Kind.ENTRY,
            (streams[number],),
            next_ if number else first,
            outputs=(streams[number + 1],),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        )
        for number, name in enumerate(names)
    ]


def same(records: DataFrame) -> DataFrame:
    return records


def parsed(raw: DataFrame) -> DataFrame:
    """Parse the records, and count up `hops`."""
    read = raw.select(F.from_json("value", COUNTED).alias("read"), "lineage").select("read.*", "lineage")
    return one_more(read)


def one_more(records: DataFrame) -> DataFrame:
    return records.withColumn("hops", F.col("hops") + 1)


def renamed(tier: Tier, prefix: str) -> Tier:
    """Return the tier with other names for itself and for its streams."""

    def streams(given: tuple[Stream, ...]) -> tuple[Stream, ...]:
        return tuple(replace(stream, name=prefix + stream.name) for stream in given)

    return replace(tier, name=prefix + tier.name, inputs=streams(tier.inputs), outputs=streams(tier.outputs))


PASS_STREAMS = (
    Stream("pass-raw", format=Bytes()),
    *(Stream(f"pass-{name}", BYTES, format=Bytes()) for name in ("one", "two", "three")),
)
JSON_STREAMS = (Stream("json-raw"), *(Stream(f"json-{name}", COUNTED) for name in ("one", "two", "three")))
PASS = stages(("pass-first", "pass-second", "pass-third"), PASS_STREAMS, same, same)
JSON = stages(("json-first", "json-second", "json-third"), JSON_STREAMS, parsed, one_more)
HITS = [
    *(renamed(hits.PIPELINE.tier(name), "hits-") for name in ("entry", "enrich")),
    replace(renamed(hits.PIPELINE.tier("counts"), "hits-"), interval=0.2),
]
NEXMARK = [nexmark.PIPELINE.tier(name) for name in ("entry", *QUERIES)]

PIPELINE = Pipeline((*PASS, *JSON, *HITS, *NEXMARK))
