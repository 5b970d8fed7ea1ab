"""Kafka for tiers: topics, access lists, producer, reader and positions.

Start with `topics` (the streams), then `positions` (where a tier starts to read).
"""
