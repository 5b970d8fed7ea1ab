"""Releases of the pipeline with state whose code differs from the shipped one."""

import re
import subprocess
import sys
from pathlib import Path

from tests.integration.sluice import stateful_pipeline
from tests.lab import ROOT, Lab

MARK = 10**12
"""The new code adds this number to each sum that it writes."""
SHIPPED = 'counted.select("who", F.col("window.start").alias("since"), "hits", "ids")'
MARKED = SHIPPED.replace('"ids"', f'(F.col("ids") + {MARK}).alias("ids")')
SUM, OTHER_STATE = "F.sum(", "F.max("


def publish_edited(
    lab: Lab, folder: Path, *, transform: str = "by_window", result: str = SHIPPED, sums: str = SUM
) -> str:
    """Publish the pipeline with edits of one transform, from a folder; return the release."""
    module_file = folder / Path(stateful_pipeline.__file__).relative_to(ROOT)
    module_file.parent.mkdir(parents=True, exist_ok=True)
    earlier, define, code = Path(stateful_pipeline.__file__).read_text().partition(f"def {transform}(")
    own, end, later = code.partition("\n\n\n")
    for before, after in ((SHIPPED, result), (SUM, sums)):
        assert before in own, before
        own = own.replace(before, after)
    module_file.write_text(earlier + define + own + end + later)
    for parent in list(module_file.relative_to(folder).parents)[:-1]:
        (folder / parent / "__init__.py").touch()
    command = [sys.executable, "-m", "sluice.commands.publish"]
    done = subprocess.run(command, env=lab.env, cwd=folder, capture_output=True, text=True, check=False)
    match = re.search(r"release (r\d+-[0-9a-f]+) is new", done.stdout)
    assert match is not None, done.stdout + done.stderr
    return match[1]
