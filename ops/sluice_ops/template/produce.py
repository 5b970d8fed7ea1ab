"""An example of a producer: sends orders into the stream `raw`.

(umask 077; sluice endpoints --client-properties outside > outside.properties)
python produce.py 100
"""

import json
import sys
from pathlib import Path

from confluent_kafka import Producer

count = int(sys.argv[1]) if len(sys.argv) > 1 else 1
settings = dict(line.split("=", 1) for line in Path("outside.properties").read_text().splitlines())
producer = Producer(settings)
for number in range(count):
    order = {"id": f"order-{number}", "item": ("tea", "rice", "salt")[number % 3], "count": 1}
    producer.produce("raw", json.dumps(order), key=order["item"])
undelivered = producer.flush(30)
print(f"{count - undelivered} of {count} orders are in the stream `raw`")
