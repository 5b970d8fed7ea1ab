"""The embedded platform: all services on one Linux machine, in one folder, under supervisord.

`commands` has `sluice up`, `down`, `clean`, `doctor`, `endpoints` and `logs`; start there.
`lifecycle` starts and stops the platform. In production, the site's own services take the
platform's place: Sluice then reads `endpoints.json` and starts none of these services.
"""
