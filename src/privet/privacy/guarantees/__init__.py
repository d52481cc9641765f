"""What is promised: guarantees, how they compose, and the ledger of what was spent."""
