"""What happens to a record around a transform: lineage, routing, inputs of state, joins. Start with `lineage`."""
