"""Assets: names and addresses of streams and tables, by pipeline."""

import pytest
from airflow.sdk import Asset

from sluice_airflow.assets import hour_complete, is_table, place, slots_lent, stream, table

pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def test_a_stream_and_a_table_of_one_name_are_two_assets():
    assert [(each.name, each.uri, each.group) for each in (stream("hits"), table("hits"))] == [
        ("stream_hits", "sluice://streams/hits", "sluice"),
        ("table_hits", "sluice://tables/hits", "sluice"),
    ]


def test_each_connection_has_assets_of_its_own():
    assert (stream("hits", "shop").name, stream("hits", "shop").uri) == (
        "shop_stream_hits",
        "sluice://shop/streams/hits",
    )
    assert table("hits", "shop") not in (table("hits"), table("hits", "billing"))


@pytest.mark.parametrize("conn", [None, "shop"])
@pytest.mark.parametrize("name", ["hits", "hits.v2", "a/b #1?x=2%"])
def test_an_address_names_the_connection_and_the_stream(conn, name):
    assert place(stream(name, conn)) == (conn, "streams", name)
    assert place(table(name, conn)) == (conn, "tables", name)


def test_only_tables_of_a_pipeline_are_tables():
    assert is_table(table("hits"))
    assert is_table(table("hits", "shop"))
    others = [
        stream("tables"),
        stream("hits", "tables"),
        slots_lent("shop"),
        hour_complete(),
        Asset("s3://x/tables/y"),
        "tables",
    ]
    assert not any(map(is_table, others))


def test_the_addresses_of_events_are_those_of_earlier_versions():
    assert (slots_lent().name, slots_lent().uri) == ("slots_lent_to_batch", "sluice://shares/batch")
    assert hour_complete("shop").uri == "sluice://shop/pipeline/hours"
