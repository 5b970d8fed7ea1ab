"""What all tests share: in continuous integration the property tests take the same examples each time; elsewhere they explore."""

import os

from hypothesis import settings

settings.register_profile("ci", derandomize=True, deadline=None)
if os.environ.get("CI"):
    settings.load_profile("ci")
