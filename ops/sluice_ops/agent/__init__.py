"""The agent: one per host. It makes `assignments/<host>` true in containers on its host and reports what it observes.

It knows nothing of what a tier means. `reconcile` is the pure core; everything else reads for it or carries out what it decided.
"""
