"""A pipeline whose middle tier waits for a slow service: its workers sleep for each record, and use
almost no processor time.
"""

from typing import TYPE_CHECKING

from pyspark.sql import functions as F  # noqa: N812

from sluice import Delivery, Kind, Lag, Mode, Once, Pipeline, Quantum, Stream, Tier, Watermarks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

QUESTION = "number bigint, at bigint"
PARTITIONS = 10
"""Twice the most workers of `ask`, so that each further worker takes work from the others."""
SERVICE_MS = 50
"""How long the service takes; a worker asks about one record at a time. Unit: milliseconds."""
BATCH = 50 * PARTITIONS
"""The largest micro-batch: two and a half seconds in each partition. Unit: records."""
MARKS = Watermarks(high=Lag(records=100_000, seconds=900))
"""The entry is not throttled: more workers are the answer, not backpressure."""
DRIVER = Quantum(cpu=0.5, memory=800, threads=1, disk=2048)


def slot(cpu: float, threads: int) -> Quantum:
    return Quantum(cpu=cpu, memory=750, threads=threads, disk=2048)


def received(raw: "DataFrame") -> "DataFrame":
    """Parse the questions."""
    return raw.select(F.from_json("value", QUESTION).alias("read"), "lineage").select("read.*", "lineage")


def answered(questions: "DataFrame") -> "DataFrame":
    """Wait for the service."""
    waited = F.java_method(F.lit("java.lang.Thread"), F.lit("sleep"), F.lit(SERVICE_MS).cast("bigint"))
    return questions.select("number", "at", F.substring(waited, 1, 4).alias("answer"), "lineage")


def kept(answers: "DataFrame") -> "DataFrame":
    """Keep each answer."""
    return answers.select("number", "answer", "lineage")


RAW = Stream("raw")
QUESTIONS = Stream("questions", QUESTION, watermarks=MARKS)
ANSWERS = Stream("answers", f"{QUESTION}, answer string")
KEPT = Once("kept", {"number": "bigint", "answer": "text"}, stamp="kept_at")

PIPELINE = Pipeline(
    (
        Tier(
            "receive",
            Kind.ENTRY,
            (RAW,),
            received,
            outputs=(QUESTIONS,),
            mode=Mode.REALTIME,
            quantum=slot(0.5, PARTITIONS),
            driver=DRIVER,
        ),
        Tier(
            "ask",
            Kind.PROCESSING,
            (QUESTIONS,),
            answered,
            outputs=(ANSWERS,),
            max_offsets=BATCH,
            quantum=slot(1.0, 1),
            driver=DRIVER,
        ),
        Tier(
            "keep",
            Kind.OUTBOUND,
            (ANSWERS,),
            kept,
            sink=KEPT,
            delivery=Delivery.EXACTLY_ONCE,
            quantum=slot(0.5, 4),
            driver=DRIVER,
        ),
    )
)
