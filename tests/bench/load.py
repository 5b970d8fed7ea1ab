"""`python -m tests.bench.load KAFKA RATE SECONDS STREAM RECORDS FIRST`: send records at a fixed
pace, each with the time when it was due.

RECORDS is a key of `tests.bench.records.SMALL` or a file of templates, and FIRST the number of the
first record. A late record counts from its due time, so there is no coordinated omission. SIGINT
ends the load early. It prints how many records it sent, and when the first one was due (ns since
1970).
"""

import json
import signal
import sys
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.bench.records import SMALL, read

STEP_SECONDS = 0.0005


def main() -> int:
    kafka, rate, seconds, topic = sys.argv[1], float(sys.argv[2]), float(sys.argv[3]), sys.argv[4]
    records, first = sys.argv[5], int(sys.argv[6])
    record = SMALL.get(records) or read(Path(records).read_text())
    ended: list[int] = []
    signal.signal(signal.SIGINT, lambda number, _: ended.append(number))
    producer = Producer(
        {
            "bootstrap.servers": kafka,
            "acks": "all",
            "enable.idempotence": True,
            "linger.ms": 0,
            "log_level": 2,
        }
    )
    partitions = len(producer.list_topics(topic, timeout=10).topics[topic].partitions)
    time.sleep(1.0)  # the connection's setup is not part of the chain's latency
    start, sent = time.time_ns(), 0
    step = 1e9 / rate
    while sent < rate * seconds and not ended:
        now = time.time_ns()
        while start + sent * step <= now and sent < rate * seconds:
            try:
                producer.produce(
                    topic,
                    value=record(first + sent, int(start + sent * step)),
                    partition=sent % partitions,
                )
            except BufferError:  # the queue is full: this record is late
                break
            sent += 1
        producer.poll(0)
        time.sleep(STEP_SECONDS)
    unsent = producer.flush(30)
    sys.stdout.write(json.dumps({"sent": sent - unsent, "start": start}) + "\n")
    return 1 if unsent else 0


if __name__ == "__main__":
    sys.exit(main())
