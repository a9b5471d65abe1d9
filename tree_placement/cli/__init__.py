"""The command line of the package: one module a command, and `main`."""
