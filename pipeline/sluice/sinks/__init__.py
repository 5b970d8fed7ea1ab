"""Where records end up: tables that are written in one transaction with their ledger, and the archive."""
