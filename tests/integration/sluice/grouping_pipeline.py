"""A pipeline for tests: one tier writes a stream of each grouping, another sends records back to
itself.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

from sluice import metrics
from sluice.api.declarations import Pipeline, Stream, Tier
from sluice.api.grouping import All, Direct, Fields, Global, Local, Shuffle
from sluice_ops.model.resources import Quantum
from sluice_ops.model.tier import Kind, Mode

NUMBER = "n bigint, who string"
RAW = Stream("raw")
GROUPED = {
    "local": Stream("local", NUMBER, Local()),
    "shuffled": Stream("shuffled", NUMBER, Shuffle()),
    "by-who": Stream("by-who", NUMBER, Fields("who")),
    "everywhere": Stream("everywhere", NUMBER, All()),
    "one": Stream("one", NUMBER, Global()),
    "said": Stream("said", NUMBER, Direct("place")),
}
ROUNDS = 3
BACK = Stream("back", NUMBER, rounds=ROUNDS)
DONE = Stream("done", "n bigint, rounds bigint")
TOLD = Stream("told", "n bigint, words string")
SLOT = Quantum(cpu=1, memory=750, threads=8)
DRIVER = Quantum(cpu=0.5, memory=800, threads=1)


def spread(raw: DataFrame) -> DataFrame:
    """Write each number into every stream; every fifth has a place unknown to the direct
    grouping.
    """
    read = raw.select(F.from_json("value", NUMBER).alias("read"), "lineage").select("read.*", "lineage")
    streams = F.explode(F.array(*(F.lit(name) for name in GROUPED))).alias("to")
    return read.select("n", "who", (F.col("n") % 5).alias("place"), streams, "lineage")


def halved(numbers: DataFrame) -> DataFrame:
    """Halve a number until it is at most one."""
    over = F.col("n") <= 1
    return numbers.select(
        F.when(over, F.col("n")).otherwise(F.floor(F.col("n") / 2)).alias("n"),
        "who",
        F.col("lineage.round").alias("rounds"),
        F.when(over, "done").otherwise("back").alias("to"),
        "lineage",
    )


TOLD_NUMBERS = metrics.counter("told_numbers", "Numbers that were told in words.")


def in_words(noun: str, number: int) -> str:
    TOLD_NUMBERS.add()
    return f"{noun} {number}"


def with_words(numbers: DataFrame) -> DataFrame:
    """Use a Python function, which realtime does not allow."""
    told = F.udf(lambda number: in_words("number", number), "string")
    return numbers.select("n", told("n").alias("words"), "lineage")


PIPELINE = Pipeline(
    (
        Tier(
            "spread",
            Kind.ENTRY,
            (RAW,),
            spread,
            outputs=tuple(GROUPED.values()),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "tell",
            Kind.PROCESSING,
            (GROUPED["shuffled"],),
            with_words,
            (TOLD,),
            mode=Mode.BATCH,
            quantum=SLOT,
            driver=DRIVER,
        ),
        Tier(
            "halve",
            Kind.PROCESSING,
            (GROUPED["local"], BACK),
            halved,
            (BACK, DONE),
            mode=Mode.REALTIME,
            quantum=SLOT,
            driver=DRIVER,
        ),
    )
)
