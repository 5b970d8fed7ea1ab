"""The controller: one leader that turns what is wanted and what is observed into guarded writes, and never touches data.

`decide` is pure: one snapshot in (`view`), one atomic set of writes and a sentence out. `leader` reads, writes and is elected.
"""
