"""`python -m tests.bench.load KAFKA RATE SECONDS`: send records at a fixed pace, each with the time
when it was due.

A late record counts from its due time, so there is no coordinated omission. SIGINT ends the load
early. It prints how many records it sent.
"""

import signal
import sys
import time

from confluent_kafka import Producer

STEP_SECONDS = 0.0005


def main() -> int:
    kafka, rate, seconds = sys.argv[1], float(sys.argv[2]), float(sys.argv[3])
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
    partitions = len(producer.list_topics("raw", timeout=10).topics["raw"].partitions)
    time.sleep(1.0)  # the connection's setup is not part of the chain's latency
    start, sent = time.time_ns(), 0
    step = 1e9 / rate
    while sent < rate * seconds and not ended:
        now = time.time_ns()
        while start + sent * step <= now and sent < rate * seconds:
            try:
                producer.produce(
                    "raw",
                    value=f'{{"id": {sent}, "sent": {int(start + sent * step)}}}',
                    partition=sent % partitions,
                )
            except BufferError:  # the queue is full: this record is late
                break
            sent += 1
        producer.poll(0)
        time.sleep(STEP_SECONDS)
    unsent = producer.flush(30)
    sys.stdout.write(f"{sent - unsent}\n")
    return 1 if unsent else 0


if __name__ == "__main__":
    sys.exit(main())
