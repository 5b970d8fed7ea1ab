"""Commands that run beside the pipeline: `publish` (with `tables` and `validation`), `skip` and
`class_data`. Start with `publish`.
"""
