"""Temporary files of a run: no test leaves them in the system's temporary folder."""

from pathlib import Path

from sluice.driver.engine.batch_engine import ScratchCheckpoint


def test_a_run_that_dies_leaves_its_files_in_the_folder_of_the_tests(temporary_folder: Path) -> None:
    assert Path(ScratchCheckpoint("counts").location).parent == temporary_folder
