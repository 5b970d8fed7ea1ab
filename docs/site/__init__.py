"""The docs site: `python -m docs.site` builds it from docs/ and from the code."""
