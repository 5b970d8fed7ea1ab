"""The edits that make the next version for tests of rolling upgrades still apply.

Those tests themselves run seldom.
"""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.versions import EDITS, edited, make_next


@pytest.mark.parametrize("name", EDITS)
def test_each_edit_of_the_next_version_applies(name: str) -> None:
    compile(edited(name), name, "exec")


def test_a_kind_of_change_is_added_in_one_file(tmp_path: Path) -> None:
    code = make_next(tmp_path)
    program = "from sluice_ops.planning.changes.kinds import KINDS; print(*KINDS['survey'].steps)"
    env = {"PYTHONPATH": str(code / "ops")}
    completed = subprocess.run(
        [sys.executable, "-c", program], env=env, capture_output=True, text=True, check=True
    )
    assert completed.stdout.strip() == "survey"
