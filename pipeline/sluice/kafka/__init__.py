"""Kafka for tiers: topics, access, producer, reader, positions. Start with `topics`."""
