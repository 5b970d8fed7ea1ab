"""The end of a batch is read from the offset log of its checkpoint."""

from pathlib import Path

from sluice.driver.state.offset_log import ends


def test_the_end_of_a_batch_has_each_partition_of_each_source(tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    (tmp_path / "offsets" / "3").write_text(
        'v1\n{"batchWatermarkMs":0}\n{"raw":{"0":7,"1":9}}\n{"late":{"0":1}}'
    )
    assert ends(tmp_path, 3) == {"raw/0": 7, "raw/1": 9, "late/0": 1}
