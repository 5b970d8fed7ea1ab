"""Says what to write instead of code that needs Spark while a pipeline's module is imported."""

import traceback
from pathlib import Path

ADVICE = (
    "Spark does not run yet when the module is imported: make columns (F.col, F.lit …) inside the "
    "transform, and give `@F.udf` its type as an object, such as LongType() of pyspark.sql.types"
)


def advice(error: BaseException) -> str | None:
    """Return the advice for an error of an import; None if the error does not come from PySpark."""
    last = Path(traceback.extract_tb(error.__traceback__)[-1].filename)
    needs_spark = "SESSION_OR_CONTEXT_NOT_EXISTS" in str(error) or (
        isinstance(error, AssertionError) and "pyspark" in last.parts
    )
    return ADVICE if needs_spark else None
