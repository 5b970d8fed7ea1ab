"""The embedded platform: every service that Sluice needs, on one Linux machine, below one folder, under supervisord.

`sluice up`, `down`, `clean` and `doctor` come through here. In production the site's own services take its place: then only
`endpoints.json` is read, and nothing of this package.
"""
