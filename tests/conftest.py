"""What all tests share: in continuous integration the property tests take the same examples each time; elsewhere they explore.

None has a deadline: how long an example takes is up to what else the machine does.
"""

import os

from hypothesis import settings

settings.register_profile("elsewhere", deadline=None)
settings.register_profile("ci", derandomize=True, deadline=None)
settings.load_profile("ci" if os.environ.get("CI") else "elsewhere")
