"""The chain of `tests.bench.chain` with batches of three, four and five minutes, so that the next
run takes over two, three and four minutes after a tier's start.
"""

from sluice.driver.engine import kafka_sink
from tests.bench.chain import PIPELINE

__all__ = ["PIPELINE"]

# the driver's process loads this module before its query starts
kafka_sink.BATCH_MINUTES, kafka_sink.APART_MINUTES = 2, 1
