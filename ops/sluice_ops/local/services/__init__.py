"""The services of the embedded platform, one module each: settings, command, readiness."""
