"""The records and the producer of the sink `KafkaTopic`, without a cluster."""

import gc
import time

import pytest
from confluent_kafka import KafkaException

from sluice.api.sink import Rows
from sluice.kafka.producer import TransactionalProducer
from sluice.sinks.kafka_topic import KafkaTopic

NOWHERE = "127.0.0.1:1"
COLUMNS = {"id": "bigint", "shop": "text"}
ROWS = Rows({"id": [1, 2], "shop": ["north", None]}, ["0:0", "0:1"], ["0", "0"])


@pytest.mark.parametrize(
    ("key", "keys"), [(None, [None, None]), ("id", [b"1", b"2"]), ("shop", [b"north", None])]
)
def test_a_record_is_the_row_as_json_with_its_column_as_key(key, keys):
    sink = KafkaTopic("out", COLUMNS, topic="orders", kafka=NOWHERE, key=key)
    records = [sink.encoded(ROWS, row) for row in range(len(ROWS))]
    assert [key for key, _ in records] == keys
    assert [value for _, value in records] == [b'{"id": 1, "shop": "north"}', b'{"id": 2, "shop": null}']


def test_a_producer_with_records_in_flight_is_dropped_at_once():
    producer = TransactionalProducer({"bootstrap.servers": NOWHERE, "log_level": 0})
    results = []
    producer.produce("orders", b"1", on_delivery=lambda error, _: results.append(error.str()))
    began = time.monotonic()
    del producer
    gc.collect()
    assert results == ["Local: Purged in queue"]
    assert time.monotonic() - began < 5


def test_a_producer_whose_settings_are_refused_is_dropped_in_silence(recwarn):
    with pytest.raises(KafkaException, match="No such configuration property"):
        TransactionalProducer({"no.such.setting": 1})
    gc.collect()
    assert not recwarn.list
