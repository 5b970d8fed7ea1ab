"""Commands for pipelines: publish, skip, tables, class data, validation. Start with `publish`."""
