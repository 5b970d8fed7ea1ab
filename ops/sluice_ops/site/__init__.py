"""The site: its file, endpoints, brokers, database, and files on disk. Start with `site_file`."""
