"""Planning of changes: what a change moves, refuses and leaves in the layers. Start with `plan`."""
