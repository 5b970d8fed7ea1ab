"""The pages of the reference, each generated from the code that it describes."""

from collections.abc import Callable

from docs.site.reference import airflow, command_line, pipeline, postgresql, site_file, zookeeper

_CONTENTS = """# Which reference pages are there?

Each page is generated from the code when the site is built.

| page | generated from |
|---|---|
| [`from sluice import …`](pipeline.md) | the public names of the package `sluice` |
| [Site file](site-file.md) | the models that read `site.yaml` |
| [Command line](command-line.md) | the commands of `sluice` |
| [Airflow](airflow.md) | the classes of the package `sluice_airflow` |
| [PostgreSQL tables](postgresql.md) | the statements that `sluice publish` runs |
| [ZooKeeper nodes](zookeeper.md) | the paths and the table of rights |

A test compares the tables of [Metrics](../metrics.md) with the metrics of the code. Each kind of
change has a page in [Runbooks](../runbooks/README.md).
"""


def contents() -> str:
    return _CONTENTS


PAGES: dict[str, Callable[[], str]] = {
    "reference/README.md": contents,
    "reference/pipeline.md": pipeline.page,
    "reference/site-file.md": site_file.page,
    "reference/command-line.md": command_line.page,
    "reference/airflow.md": airflow.page,
    "reference/postgresql.md": postgresql.page,
    "reference/zookeeper.md": zookeeper.page,
}
"""Place in the site → the function that makes the page."""
