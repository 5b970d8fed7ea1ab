"""Edits of the shipped pipeline that make a bad release."""

from pathlib import Path


def fails_on_buys(armed: Path) -> dict[str, str]:
    """Return edits of `outbound` that fail on each purchase, from when the file `armed` exists."""
    careful = (
        "def careful(kind):\n    if kind == 'buy' and ARMED.exists():\n        raise "
        "ValueError(kind)\n    return kind\n\n\n"
    )
    return {
        "def deliverable(": f"from pathlib import Path\n\nARMED = Path({str(armed)!r})\n\n\n{careful}"
        "def deliverable(",
        '"kind", F.time': 'F.udf(careful, "string")("kind").alias("kind"), F.time',
    }
