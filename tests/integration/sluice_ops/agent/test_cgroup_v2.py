"""Control groups of version 2, on a kernel that has no other version."""

from pathlib import Path

import pytest

from tests.integration.sluice_ops.agent import user_mode_linux

pytestmark = [pytest.mark.endurance, pytest.mark.timeout(400)]


def test_units_are_limited_by_control_groups_of_version_2(tmp_path: Path) -> None:
    output = user_mode_linux.run("tests/integration/sluice_ops/agent/cgroup_v2_cases.py", tmp_path, 300)
    assert "ended with 0" in output, output
