"""After a requested reboot, the agent checks the host until nothing is bad."""

import json
import sys
import threading
from pathlib import Path

import pytest

from sluice_ops.agent.host import checkup
from sluice_ops.agent.host.checkup import Checkup, bad_findings


def doctor(file: Path, *findings: tuple[str, str, str]) -> tuple[str, ...]:
    """Return a command that prints the file with these findings, and ends as the doctor does."""
    named = [{"thing": thing, "verdict": verdict, "sentence": text} for thing, verdict, text in findings]
    file.write_text(json.dumps({"findings": named}))
    return (sys.executable, "-c", f"print(open({str(file)!r}).read()); raise SystemExit(1)")


def test_only_what_is_bad_on_the_host_counts(tmp_path: Path) -> None:
    command = doctor(
        tmp_path / "answer",
        ("disk", "bad", "10 MiB free"),
        ("cores", "note", "shared"),
        ("java", "ok", "25"),
        ("alerts", "bad", "unsent alerts: 2"),
    )
    assert bad_findings(command) == ("disk: 10 MiB free",)


@pytest.mark.parametrize(
    "command",
    [("/no/doctor",), (sys.executable, "-c", "print('no JSON')"), (sys.executable, "-c", "print(1)")],
)
def test_a_doctor_without_an_answer_is_a_finding(command: tuple[str, ...]) -> None:
    (finding,) = bad_findings(command)
    assert "gave no answer" in finding


def test_the_check_repeats_until_the_host_is_sound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkup, "AGAIN_SECONDS", 0.01)
    command = doctor(tmp_path / "answer", ("java", "bad", "Java 17"))
    checked, sound = threading.Event(), threading.Event()
    check = Checkup(command)
    assert check.findings is None

    def wake() -> None:
        (sound if check.findings == () else checked).set()

    check.start(wake)
    assert checked.wait(10)
    assert check.findings == ("java: Java 17",)
    doctor(tmp_path / "answer", ("java", "ok", "Java 25"))
    assert sound.wait(10)


def test_a_host_without_a_requested_reboot_needs_no_check() -> None:
    check = Checkup(None)
    check.start(lambda: None)
    assert check.findings == ()


def test_what_the_machine_lost_is_a_finding_like_those_of_the_doctor(tmp_path: Path) -> None:
    command = doctor(tmp_path / "answer", ("java", "ok", "Java 25"))
    checked = threading.Event()
    check = Checkup(command, lambda: ("capacity: half the memory",))
    check.start(checked.set)
    assert checked.wait(10)
    check.stop()
    assert check.findings == ("capacity: half the memory",)
