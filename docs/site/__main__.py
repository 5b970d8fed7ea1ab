"""Build the docs site below `.sluice/docs`, and print its path. Any warning fails the build."""

import sys

from docs.site.build import OUTPUT, SiteBuildError, build

if __name__ == "__main__":
    try:
        home = build(OUTPUT)
    except SiteBuildError as error:
        sys.stderr.write(f"docs: {error}\n")
        sys.exit(1)
    sys.stdout.write(f"docs: {home}\n")
