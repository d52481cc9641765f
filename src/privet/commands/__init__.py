"""What the command line does, one command a file; :mod:`privet.cli` only reads the options."""
