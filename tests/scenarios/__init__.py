"""What users do and what breaks, on the whole platform, read aloud."""
