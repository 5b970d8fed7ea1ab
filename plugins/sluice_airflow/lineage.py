"""OpenLineage: streams and tables as datasets, named as OpenLineage names them.

Only Airflow's provider of OpenLineage calls these functions. Without it, nothing of OpenLineage is
imported.
"""

from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

from airflow.sdk import Asset

from sluice_airflow.assets import STREAMS, TABLES, inputs, outputs, place
from sluice_airflow.hooks.sluice import SluiceHook
from sluice_ops.site.brokers import brokers

if TYPE_CHECKING:
    from airflow.providers.common.compat.openlineage.facet import Dataset
    from airflow.providers.openlineage.extractors import OperatorLineage

KAFKA_PORT, POSTGRES_PORT = 9092, 5432


def dataset(asset: Asset, _context: object = None) -> "Dataset | None":
    """Return the dataset of a stream or a table; None for an asset that is only an event."""
    sluice_conn_id, folder, name = place(asset)
    hook = SluiceHook(sluice_conn_id)
    if folder == STREAMS:
        streams = {stream: columns for tier in hook.published() for stream, columns in tier.streams.items()}
        servers = brokers(hook.endpoints().kafka).servers
        return _dataset(f"kafka://{_first(servers, KAFKA_PORT)}", name, streams.get(name))
    if folder == TABLES:
        tables = {table: columns for tier in hook.published() for table, columns in tier.tables.items()}
        address = urlsplit(hook.endpoints().postgres)
        server = _first(address.netloc.rpartition("@")[2], POSTGRES_PORT)
        database = address.path.removeprefix("/")
        return _dataset(f"postgres://{server}", f"{database}.public.{name}", tables.get(name))
    return None


def of_tier(tier: str, sluice_conn_id: str | None) -> "OperatorLineage[Any, Any]":
    """Return the streams that a published tier reads, and the streams and tables that it writes."""
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - may be missing

    published = [each for each in SluiceHook(sluice_conn_id).published() if each.name == tier]
    return OperatorLineage(
        inputs=[dataset(asset) for each in published for asset in inputs(each, sluice_conn_id)],
        outputs=[dataset(asset) for each in published for asset in outputs(each, sluice_conn_id)],
    )


def of_application(application: str) -> "OperatorLineage[Any, Any]":
    """Return where a Spark application lies.

    The provider adds the datasets of the task's inlets and outlets.
    """
    from airflow.providers.openlineage.extractors import OperatorLineage  # noqa: PLC0415 - may be missing
    from openlineage.client.facet_v2 import source_code_location_job  # noqa: PLC0415

    url = application if "://" in application else Path(application).absolute().as_uri()
    location = source_code_location_job.SourceCodeLocationJobFacet(type="file", url=url)
    return OperatorLineage(job_facets={"sourceCodeLocation": location})


def _dataset(namespace: str, name: str, columns: dict[str, str] | None) -> "Dataset":
    from airflow.providers.common.compat.openlineage.facet import (  # noqa: PLC0415 - may be missing
        Dataset,
        SchemaDatasetFacet,
        SchemaDatasetFacetFields,
    )

    fields = [SchemaDatasetFacetFields(name=column, type=kind) for column, kind in (columns or {}).items()]
    return Dataset(namespace, name, facets={"schema": SchemaDatasetFacet(fields=fields)} if fields else {})


def _first(servers: str, port: int) -> str:
    """Return the first of several servers with its port."""
    server = servers.split(",", maxsplit=1)[0]
    return server if server.rpartition(":")[2].isdigit() else f"{server}:{port}"
