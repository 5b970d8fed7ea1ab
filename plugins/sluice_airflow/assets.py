"""Assets: events by which one DAG starts another, and the pipeline in Airflow's graph of assets."""

from collections.abc import Iterable
from urllib.parse import quote, unquote

from airflow.sdk import Asset

from sluice_airflow.forms import dag_id
from sluice_ops.model.tier import PublishedTier

SCHEME = "sluice://"
STREAMS, TABLES = "streams", "tables"


def slots_lent(sluice_conn_id: str | None = None) -> Asset:
    """Return the asset of the event that a shift has lent slots to the tenant `batch`, so that
    batch jobs may start.
    """
    return _asset("slots_lent_to_batch", "shares/batch", sluice_conn_id)


def hour_complete(sluice_conn_id: str | None = None) -> Asset:
    """Return the asset of the event that all records of some hours have left all tiers.

    They arrived between the event's `extra["from"]` and `extra["until"]`, whole hours in UTC.
    """
    return _asset("hour_complete", "pipeline/hours", sluice_conn_id)


def stream(name: str, sluice_conn_id: str | None = None) -> Asset:
    """Return the asset of a stream. Its event says that a run launched the tier that writes it."""
    return _asset(f"stream_{name}", f"{STREAMS}/{quote(name, safe='')}", sluice_conn_id)


def table(name: str, sluice_conn_id: str | None = None) -> Asset:
    """Return the asset of a table.

    The event of a tier's table is that of `hour_complete`: the table has all records of these
    hours. The event of a batch job's table says that a task with this outlet has succeeded.
    """
    return _asset(f"table_{name}", f"{TABLES}/{quote(name, safe='')}", sluice_conn_id)


def inputs(tier: PublishedTier, sluice_conn_id: str | None = None) -> list[Asset]:
    """Return the streams that a tier reads."""
    return [stream(name, sluice_conn_id) for name in tier.inputs]


def outputs(tier: PublishedTier, sluice_conn_id: str | None = None) -> list[Asset]:
    """Return the streams and tables that a tier writes."""
    return [*(stream(name, sluice_conn_id) for name in tier.outputs), *tables([tier], sluice_conn_id)]


def tables(tiers: Iterable[PublishedTier], sluice_conn_id: str | None = None) -> list[Asset]:
    """Return the tables that tiers write."""
    return [table(name, sluice_conn_id) for tier in tiers for name in tier.tables]


def is_table(asset: object) -> bool:
    """Tell whether an asset is a table of a pipeline."""
    return isinstance(asset, Asset) and asset.uri.startswith(SCHEME) and place(asset)[1] == TABLES


def place(asset: Asset) -> tuple[str | None, str, str]:
    """Return an asset's connection, its folder such as `streams`, and its name there."""
    *connection, folder, name = asset.uri.removeprefix(SCHEME).split("/")
    return connection[0] if connection else None, folder, unquote(name)


def _asset(name: str, path: str, sluice_conn_id: str | None) -> Asset:
    site = "" if sluice_conn_id is None else f"{sluice_conn_id}/"
    return Asset(name=dag_id(name, sluice_conn_id), uri=f"{SCHEME}{site}{path}", group="sluice")


SLOTS_LENT = slots_lent()
"""`slots_lent()` of the pipeline of this process's environment."""
HOUR_COMPLETE = hour_complete()
"""`hour_complete()` of the pipeline of this process's environment."""
