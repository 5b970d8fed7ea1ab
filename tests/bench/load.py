"""`python -m tests.bench.load KAFKA RATE SECONDS`: records that carry when each was due, at the clock's pace whatever the pipeline does.

A record that is sent late counts from when it was due: no coordinated omission. SIGINT ends it early. It prints how many were sent.
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
    time.sleep(1.0)  # until it is connected: that is not the chain's time
    begun, sent = time.time_ns(), 0
    step = 1e9 / rate
    while sent < rate * seconds and not ended:
        now = time.time_ns()
        while begun + sent * step <= now and sent < rate * seconds:
            try:
                producer.produce(
                    "raw",
                    value=f'{{"id": {sent}, "sent": {int(begun + sent * step)}}}',
                    partition=sent % partitions,
                )
            except BufferError:  # the broker takes no more: this one is late
                break
            sent += 1
        producer.poll(0)
        time.sleep(STEP_SECONDS)
    left = producer.flush(30)
    sys.stdout.write(f"{sent - left}\n")
    return 1 if left else 0


if __name__ == "__main__":
    sys.exit(main())
