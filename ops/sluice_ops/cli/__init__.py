"""`sluice`: what people and scripts type. Commands import what they need when they run, so that `--help` answers at once."""
