"""The start of the embedded platform: steps that need each other, and supervisord.

`steps` runs steps in parallel, `service` describes a service, `starting` makes a step of each
service, `supervisord` runs the programs. Start with `steps`.
"""
