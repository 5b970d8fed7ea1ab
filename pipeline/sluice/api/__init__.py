"""Declarations of pipelines: tiers, streams, groupings, hooks, and the protocol of a sink. Start with `declarations`."""
