"""What a driver hears through the control channel and Kafka, and its right to write. Start with `control_channel`."""
