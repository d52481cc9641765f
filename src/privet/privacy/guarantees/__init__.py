"""What is promised: guarantees, how they compose, and how they are put into words."""
