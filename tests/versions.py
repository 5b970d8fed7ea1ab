"""The next version of the code, for tests that run two versions side by side.

It is this version with one more field in every record, and one more operation.
"""

import shutil
from pathlib import Path

from tests.lab import ROOT

ADDED = '"of_next":1'
"""A field that only records of the next version have."""
EDITS = {
    "ops/sluice_ops/model/resources.py": [
        (
            "allow_inf_nan=False)\n\n    @model_serializer",
            "allow_inf_nan=False)\n    of_next: int = 1\n\n    @model_serializer",
        ),
        ("written: dict[str, Any] = write(self)", 'written: dict[str, Any] = {**write(self), "of_next": 1}'),
    ],
    "ops/sluice_ops/model/change.py": [
        ('    WRITE_OFF = "write-off"\n', '    SURVEY = "survey"\n    WRITE_OFF = "write-off"\n'),
    ],
    "ops/sluice_ops/controller/operations.py": [
        (
            "    Step.ABORT: abort,\n",
            '    Step.ABORT: abort,\n    Step.SURVEY: lambda draft, operation: Done("surveyed"),\n',
        ),
        (
            "None if operation.step is Step.ABORT else",
            "None if operation.step in {Step.ABORT, Step.SURVEY} else",
        ),
        ("import Failed, Outcome, Waiting", "import Done, Failed, Outcome, Waiting"),
    ],
}
"""The next version's changes of files."""
ADDED_FILES = {
    "ops/sluice_ops/planning/changes/kinds/survey.py": (
        "from sluice_ops.model.change import Step\n"
        "from sluice_ops.planning.changes.kind import Kind\n"
        "class Survey(Kind):\n"
        "    name, summary, example, steps = 'survey', 'Look.', 'sluice survey', (Step.SURVEY,)\n"
        "KIND = Survey()\n"
    )
}
"""A file of the next version alone: one more kind of change."""


def make_next(code: Path) -> Path:
    """Copy the code into a folder and apply the next version's changes."""
    for package in ("ops", "pipeline"):
        shutil.copytree(ROOT / package, code / package, ignore=shutil.ignore_patterns("__pycache__"))
    for name in EDITS:
        (code / name).write_text(edited(name))
    for name, text in ADDED_FILES.items():
        (code / name).write_text(text)
    return code


def edited(name: str) -> str:
    text = (ROOT / name).read_text()
    for before, after in EDITS[name]:
        assert before in text, f"{name} no longer contains {before!r}: correct EDITS in tests/versions.py"
        text = text.replace(before, after)
    return text
