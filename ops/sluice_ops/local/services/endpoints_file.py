"""Write `endpoints.json` of the embedded platform, which every process of Sluice reads."""

import json

from pydantic import ValidationError

from sluice_ops.local.layout import ADDRESS, Layout
from sluice_ops.local.services import kafka_users
from sluice_ops.site import credentials
from sluice_ops.site.database import without_user
from sluice_ops.site.endpoints import AirflowEndpoint, Endpoints
from sluice_ops.site.files import write_private


def write(layout: Layout, pipeline: str, *, users: bool, roles: bool) -> Endpoints:
    """Write the file, and create missing credentials.

    `users`: Kafka asks for a user. `roles`: PostgreSQL has roles. Without roles, every process is
    PostgreSQL's superuser: parts that run alone, for tests and benches.
    """
    ports, keys = layout.ports, layout.secrets()
    address = f"postgresql://sluice:{keys.postgres}@{ADDRESS}:{ports.postgres}/sluice"
    endpoints = Endpoints(
        kafka=kafka_users.address(layout) if users else f"{ADDRESS}:{ports.kafka}",
        zookeeper=f"{ADDRESS}:{ports.zookeeper}/sluice/{pipeline}",
        postgres=without_user(address, layout.postgres_users) if roles else address,
        airflow=AirflowEndpoint(url=f"http://{ADDRESS}:{ports.airflow}"),
        spark=f"spark://{ADDRESS}:{ports.spark}",
        ec2=f"http://{ADDRESS}:{ports.ec2}",
        home=layout.home,
        access=credentials.make(layout.credentials),
        spark_secret=keys.spark,
    )
    write_private(layout.endpoints, json.dumps(json.loads(endpoints.model_dump_json()), indent=2))
    (layout.home / "port-base").write_text(str(ports.zookeeper - 1))
    return endpoints


def pipeline(layout: Layout) -> str | None:
    """Return the name of the pipeline that the home belongs to; None without a usable file."""
    try:
        endpoints = Endpoints.model_validate_json(layout.endpoints.read_bytes())
    except (FileNotFoundError, ValidationError):
        return None
    return endpoints.zookeeper.rpartition("/")[2]
