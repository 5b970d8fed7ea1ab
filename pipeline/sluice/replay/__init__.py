"""A replay: an incarnation of a tier that takes records of long ago through it again, beside the live ones (decision record 0028)."""
