"""Control groups of version 2, on a kernel that has no others."""

from pathlib import Path

import pytest

from tests.integration.sluice_ops.agent import kernel

pytestmark = [pytest.mark.long, pytest.mark.timeout(400)]


def test_units_are_limited_by_control_groups_of_version_2(tmp_path: Path) -> None:
    said = kernel.run("tests/integration/sluice_ops/agent/version_2.py", tmp_path, 300)
    assert "ended with 0" in said, said
