"""Stabilities: how far the result of a computation can move when one unit of the data changes."""
