"""A Spark application for tests.

`application.py MASTER LABEL SECONDS` runs one task of SECONDS seconds in a slot with that label.
"""

import sys
import time

from pyspark.sql import SparkSession

master, label, seconds = sys.argv[1], sys.argv[2], float(sys.argv[3])
session = (
    SparkSession.builder.master(master)
    .appName(label)
    .config("spark.ui.enabled", "false")
    .config("spark.driver.host", "127.0.0.1")
    .config("spark.driver.memory", "300m")
    .config("spark.testing.reservedMemory", str(32 << 20))
    .config("spark.executor.memory", "350m")
    .config("spark.executor.cores", "2")
    .config("spark.cores.max", "2")
    .config(f"spark.executor.resource.{label}.amount", "1")
    .config(f"spark.task.resource.{label}.amount", "0.5")
    .config("spark.decommission.enabled", "true")
    .getOrCreate()
)


def work(number: int) -> int:
    print(f"task {number} begins", file=sys.stderr, flush=True)
    time.sleep(seconds)
    return number


print("result", session.sparkContext.parallelize([7], 1).map(work).collect(), flush=True)
session.stop()
