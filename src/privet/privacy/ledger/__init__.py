"""The ledger of a data set: what was spent on it, across runs and processes, and the limit that it must not exceed."""
