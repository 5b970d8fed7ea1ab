"""How far the output of a running query is complete, and how far the tier lags. Pure."""
