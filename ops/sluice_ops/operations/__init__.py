"""Operations: posting steps of changes to the controller, and joining hosts.

Start with `requests`.
"""
