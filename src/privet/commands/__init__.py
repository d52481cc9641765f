"""The commands of the command line, one file per command; :mod:`privet.cli` only reads the options."""
