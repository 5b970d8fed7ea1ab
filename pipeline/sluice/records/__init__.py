"""The Spark columns that Sluice adds around a transform: lineage, routing, inputs of tiers with
state, joins. Start with `lineage`.
"""
