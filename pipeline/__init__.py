"""The data plane: tiers, as long-running PySpark Structured Streaming applications."""
