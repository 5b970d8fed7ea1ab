"""The next version, as the tests of a rolling upgrade make it of this one, can still be made: they themselves run seldom."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.versions import EDITS, edited, make_next


@pytest.mark.parametrize("name", EDITS)
def test_what_the_next_version_changes_is_there(name: str) -> None:
    compile(edited(name), name, "exec")


def test_a_kind_of_change_is_added_in_one_file(tmp_path: Path) -> None:
    code = make_next(tmp_path)
    look = "from sluice_ops.planning.changes.kinds import KINDS; print(*KINDS['survey'].steps)"
    env = {"PYTHONPATH": str(code / "ops")}
    done = subprocess.run([sys.executable, "-c", look], env=env, capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "survey"
