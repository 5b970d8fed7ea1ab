"""Check whether the streams of the pipeline keep their records if one broker loses its disk.

`sluice doctor` runs `python -m sluice.commands.durability [--as driver]`, which prints a line for
each weak stream. Exit codes: 0 no stream is weak; 1 a stream is weak, or the site file or the
pipeline cannot be read; 2 Kafka does not answer.
"""

import argparse
import sys

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

from sluice.api import declarations
from sluice.kafka import topics
from sluice.kafka.durability import WeakStreamError, check
from sluice_ops.model.kafka_access import ONE_COPY, User
from sluice_ops.site import endpoints, project, site_file
from sluice_ops.site.brokers import brokers

LOOK_SECONDS = 5.0
"""The wait of a doctor for Kafka. Other checks of the doctor also ask Kafka."""
FAILED = 1
AWAY = 2


def main(arguments: list[str] | None = None) -> int:
    """Check the streams of the site's pipeline; return the exit code."""
    parser = argparse.ArgumentParser(
        prog="python -m sluice.commands.durability",
        description="Check whether the loss of one broker's disk could lose acknowledged records.",
    )
    parser.add_argument(
        "--as",
        dest="user",
        type=User,
        choices=list(User),
        default=User.PUBLISHER,
        help="the user of Kafka for the check",
    )
    user = parser.parse_args(arguments).user
    try:
        settings = site_file.load(project.site_path())
        kafka, wanted = endpoints.load().kafka_as(user), settings.durability
        if wanted == ONE_COPY:
            sys.stdout.write(
                "the site file has replication: 1, so a lost disk of a broker loses acknowledged records\n"
            )
            return 0
        names = topics.wanted(declarations.load(settings.pipeline))
        admin = AdminClient({**brokers(kafka).client, "log_level": 2})
        check(admin, admin.list_topics(timeout=LOOK_SECONDS), names, wanted)
    except KafkaException as error:
        sys.stderr.write(f"Kafka does not answer about the settings of its streams: {error.args[0].str()}\n")
        return AWAY
    except (
        site_file.SiteError,
        declarations.DeclarationError,
        endpoints.EndpointsError,
        FileNotFoundError,
        WeakStreamError,
    ) as error:
        sys.stderr.write(f"{error}\n")
        return FAILED
    sys.stdout.write(
        f"each record is on {wanted.replication} brokers, on {wanted.in_sync} before Kafka acknowledges it\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
