"""Decisions where hosts have too little room: lending, fewer workers, minimums. Start with `fitting`."""
