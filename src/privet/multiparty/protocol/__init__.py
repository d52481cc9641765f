"""What parties compute together: joint sums inside MPyC, the training methods, and the signed result."""
