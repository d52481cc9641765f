"""privet: differentially private training, stated in full and calibrated tightly."""
