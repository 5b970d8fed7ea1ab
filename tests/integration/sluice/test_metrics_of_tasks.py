"""Counters of a pipeline's own count in Python functions of a real Spark, also if a task fails.

`test_micro_batches` counts in a tier's workers, and reads the driver's scrape.
"""

import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pandas as pd  # type: ignore[import-untyped]
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812

from sluice import metrics
from sluice_ops.site.java import home_for_spark

ROWS = metrics.counter("rows_of_test", "Rows that a function has seen.")

pytestmark = pytest.mark.timeout(240)


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SparkSession]:
    """Start a Spark that tries a failed task again."""
    metrics.receive()
    builder = SparkSession.builder.master("local[2, 2]").config("spark.ui.enabled", "false")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("JAVA_HOME", str(home_for_spark(tmp_path_factory.mktemp("java"))))
        patch.setenv("PYSPARK_PYTHON", sys.executable)
        session = builder.config("spark.driver.host", "127.0.0.1").getOrCreate()
        yield session
        session.stop()


def counted(rows: DataFrame) -> int:
    """Compute the rows; return by how much the counter has grown."""
    before = metrics.totals()["rows_of_test"]
    rows.write.format("noop").mode("overwrite").save()
    return metrics.totals()["rows_of_test"] - before


def seen(rows: DataFrame) -> DataFrame:
    def see(counter: metrics.Counter, number: int) -> int:
        counter.add()
        return number

    return rows.select(F.udf(lambda number: see(ROWS, number), "bigint")("id").alias("id"))


def test_each_row_of_two_tasks_counts_once(spark: SparkSession) -> None:
    numbers = spark.range(0, 20, 1, 2)
    assert counted(seen(numbers)) == 20
    assert counted(seen(numbers)) == 20, "workers are used again"


def test_a_function_of_a_module_that_the_worker_imports_counts(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "shop_of_test.py").write_text(
        "from sluice import metrics\n"
        "ROWS = metrics.counter('rows_of_test', 'Rows that a function has seen.')\n"
        "def seen(number):\n"
        "    ROWS.add()\n"
        "    return number\n"
    )
    monkeypatch.syspath_prepend(str(tmp_path))
    spark.sparkContext.addPyFile(str(tmp_path / "shop_of_test.py"))
    shop_of_test = import_module("shop_of_test")
    assert counted(spark.range(0, 7, 1, 1).select(F.udf(shop_of_test.seen, "bigint")("id"))) == 7


def test_a_function_on_whole_columns_counts(spark: SparkSession) -> None:
    @F.pandas_udf("bigint")  # type: ignore[untyped-decorator]
    def whole(numbers: pd.Series) -> pd.Series:
        ROWS.add((numbers % 2 == 0).sum())
        return numbers

    assert counted(spark.range(0, 10, 1, 2).select(whole("id"))) == 5


def test_a_failed_task_counts_nothing_and_its_second_try_counts(spark: SparkSession, tmp_path: Path) -> None:
    failed = tmp_path / "failed"

    def fail_once(number: int) -> int:
        if number == 9 and not failed.exists():
            failed.touch()
            message = "the first try fails after nine rows"
            raise ValueError(message)
        return number

    rows = seen(spark.range(0, 10, 1, 1))
    assert counted(rows.select(F.udf(lambda number: fail_once(number) + 0, "bigint")("id"))) == 10
    assert failed.exists()


def test_rows_that_are_computed_twice_count_twice(spark: SparkSession) -> None:
    rows = seen(spark.range(0, 10, 1, 1))
    assert counted(rows) + counted(rows) == 20
