"""The transforms of the pipeline, on given records; `sluice test` runs these tests."""

from shop import PIPELINE

from sluice.testing import run

ORDERS, SALES = PIPELINE.tier("orders"), PIPELINE.tier("sales")


def test_good_orders_pass_and_bad_ones_go_to_quarantine():
    result = run(ORDERS, ['{"id": "1", "item": "tea", "count": 2}', '{"id": "2", "count": 1}', "no JSON"])
    assert [(row["item"], row["count"]) for row in result.rows] == [("tea", 2)]
    assert [row["reason"] for row in result.quarantined] == ["item is missing", "id is missing"]


def test_each_order_counts_once():
    result = run(SALES, [{"id": "1", "item": "tea", "count": 2}, {"id": "2", "item": "tea", "count": 5}])
    assert [(row["item"], row["orders"], row["pieces"]) for row in result.rows] == [
        ("tea", 1, 2),
        ("tea", 1, 5),
    ]
