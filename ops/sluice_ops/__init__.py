"""The operations side of Sluice: who may hold what, where it runs, how it gets there, and how it survives."""
