"""A row as JSON for HTTP services and `jsonb`. Pure.

Columns may hold values that JSON lacks, also inside structs and lists.
"""

import json
import math
from base64 import b64encode
from typing import Any


def as_json(row: dict[str, Any], nul: str = "\0") -> str:
    """Return the row as JSON: null for NaN and infinity, Base64 for bytes.

    `nul` replaces NUL characters in texts. `jsonb` accepts none, so callers pass `nul=""` for it.
    """
    return json.dumps(_json_value(row, nul), default=str, allow_nan=False)


def _json_value(value: Any, nul: str) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case bytes():
            return b64encode(value).decode()
        case str():
            return value.replace("\0", nul)
        case dict():
            return {_json_value(key, nul): _json_value(element, nul) for key, element in value.items()}
        case list() | tuple():
            return [_json_value(element, nul) for element in value]
        case _:
            return value
