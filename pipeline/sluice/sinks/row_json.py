"""A row as JSON, as services and jsonb take it, which has no word for some of what columns hold, however deep in them. Pure."""

import json
import math
from base64 import b64encode
from typing import Any


def as_json(row: dict[str, Any], nul: str = "\0") -> str:
    """Return it: null for a number that is none, Base64 for bytes. jsonb takes no NUL in a text: what is kept there says `nul=""`."""
    return json.dumps(_sayable(row, nul), default=str, allow_nan=False)


def _sayable(value: Any, nul: str) -> Any:
    match value:
        case float() if not math.isfinite(value):
            return None
        case bytes():
            return b64encode(value).decode()
        case str():
            return value.replace("\0", nul)
        case dict():
            return {_sayable(name, nul): _sayable(each, nul) for name, each in value.items()}
        case list() | tuple():
            return [_sayable(each, nul) for each in value]
        case _:
            return value
