"""Replays: an incarnation of a tier that processes old records again, beside the live ones
(decision 28). Start with `__main__`; `player` is the life of one replay.
"""
