"""The work of the commands, one file per command; :mod:`privet.cli` reads their options."""
