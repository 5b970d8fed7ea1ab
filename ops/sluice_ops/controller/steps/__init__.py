"""The steps of a change: each looks at the draft, does what can be done now, and says whether it waits, is done or has failed.

A step is called again in every pass until it has a result, so it never remembers anything: what it did is in the channel.
"""
