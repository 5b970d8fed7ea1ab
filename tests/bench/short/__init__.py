"""`make bench-short`: Sluice beside Flink on the same work, in a quarter of an hour."""
