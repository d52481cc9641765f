"""From what was released to what it costs: accounting, calibration and the mathematics behind them."""
