"""Which Spark settings a tier may choose."""

from collections.abc import Mapping

CHOICES = ("spark.sql.", "spark.hadoop.")
"""The beginnings of the settings that a tier may choose."""
OWN = (
    "spark.hadoop.fs.defaultFS",
    "spark.hadoop.fs.file.",
    "spark.hadoop.fs.s3a.aws.",
    "spark.hadoop.fs.s3a.endpoint",
    "spark.hadoop.fs.s3a.path.style.access",
    "spark.sql.adaptive.",
    "spark.sql.catalogImplementation",
    "spark.sql.extensions",
    "spark.sql.icu.",
    "spark.sql.session.timeZone",
    "spark.sql.shuffle.partitions",
    "spark.sql.streaming.",
    "spark.sql.ui.",
    "spark.sql.warehouse.dir",
)
"""The beginnings of the settings that Sluice sets, or that a running session cannot change.

Spark finds the checkpoints by those of Hadoop; a tier has `spark.hadoop.fs.s3a.bucket.NAME.*`.
"""


def problems(settings: Mapping[str, object]) -> list[str]:
    """Return a sentence for each setting that a tier may not choose."""
    sentences = []
    for name, value in settings.items():
        if not name.startswith(CHOICES):
            sentences.append(
                f"the Spark setting {name} is not one of {' and '.join(f'{begin}*' for begin in CHOICES)}; "
                "remove it. Processors, memory and threads are set by `quantum` and `driver`"
            )
        elif name.startswith(OWN):
            sentences.append(
                f"the Spark setting {name} belongs to Sluice, which relies on its value; remove it"
            )
        elif not isinstance(value, str):
            sentences.append(
                f"the Spark setting {name} is {value!r}; write it as a text, such as {str(value)!r}"
            )
    return sentences
