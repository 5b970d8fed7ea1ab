"""The doctors' check of streams: what the check's process says is what they report."""

from pathlib import Path

import pytest

from sluice_ops.doctor.durability import check
from sluice_ops.doctor.finding import Verdict
from sluice_ops.model.kafka_access import User


@pytest.mark.parametrize(
    ("script", "verdict", "sentence", "advised"),
    [
        ("echo every stream survives", Verdict.OK, "every stream survives", False),
        (
            "echo raw: one copy >&2; echo hits: one copy >&2; exit 1",
            Verdict.BAD,
            "raw: one copy; hits: one copy",
            True,
        ),
        ("exit 3", Verdict.BAD, "ended with exit code 3 and printed nothing", True),
    ],
)
def test_streams_that_a_disk_could_lose_are_reported(
    tmp_path: Path, script: str, verdict: Verdict, sentence: str, advised: bool
) -> None:
    python = tmp_path / "python"
    python.write_text(
        f'#!/bin/sh\n[ "$*" = "-m sluice.commands.durability --as {User.DRIVER}" ] || exit 9\n{script}\n'
    )
    python.chmod(0o755)
    (finding,) = check(python, {}, User.DRIVER)
    assert finding.verdict is verdict
    assert sentence in finding.sentence
    assert ("`sluice publish` refuses weak streams" in (finding.advice or "")) is advised
