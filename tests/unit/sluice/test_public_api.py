"""The public API is complete, and importing the package imports no large library."""

import subprocess
import sys

import sluice


def test_every_name_of_the_public_api_can_be_imported():
    assert all(getattr(sluice, name) is not None for name in sluice.__all__)
    assert set(sluice.__all__) <= set(dir(sluice))


def test_importing_the_package_imports_no_large_library():
    completed = subprocess.run(
        [sys.executable, "-c", "import sys, sluice; print(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    assert not {"pyspark", "psycopg", "httpx", "pydantic"} & set(completed.stdout.split())
