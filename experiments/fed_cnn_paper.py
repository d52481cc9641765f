"""Tables 5, 6, H.8, H.9 and H.11 of the DP-Fed-LS paper as printed: test accuracies of its CNN on SVHN, in per cent."""

MULTIPLIERS = (2.4, 2.2, 2.0, 1.8)  # of Table 6
ORDERS = ("OIHW", "OIWH", "OHWI", "OWHI")
TABLE5 = {  # in the order of ORDERS, with the paper's names for height and width exchanged
    "uniform": {
        0.5: (82.94, 82.91, 83.25, 83.20),
        1.0: (83.19, 82.92, 83.66, 83.54),
        1.5: (82.93, 82.50, 83.34, 83.10),
    },
    "poisson": {
        0.5: (82.87, 82.82, 83.13, 82.87),
        1.0: (82.89, 83.19, 83.11, 83.31),
        1.5: (82.83, 82.45, 82.82, 83.20),
    },
}
TABLE6 = {
    "uniform": {"James-Stein": (34.85, 35.92, 37.55, 38.65), "soft threshold": (17.86, 18.22, 18.37, 18.96)},
    "poisson": {"James-Stein": (35.61, 36.25, 37.01, 38.81), "soft threshold": (17.05, 16.55, 17.84, 18.17)},
}
RATES = (0.025, 0.05, 0.1, 0.125)
FIGURE6 = {  # by noise multiplier and sigma, for each local learning rate; the paper misprints the last z as 3.0
    3.0: {0.0: (72.14, 70.11, 64.88, 59.99), 1.0: (75.77, 76.02, 74.33, 71.29)},
    3.5: {0.0: (66.46, 66.14, 56.48, 51.98), 1.0: (72.80, 73.08, 68.46, 64.16)},
    4.0: {0.0: (63.51, 58.06, 51.16, 41.12), 1.0: (68.01, 66.80, 61.31, 55.85)},
}
TABLE_H8 = {  # by clipping norm and sigma, at z = 1.5
    0.1: {0.0: 77.55, 1.0: 73.73},
    0.3: {0.0: 84.14, 1.0: 85.24},
    0.5: {0.0: 82.75, 1.0: 84.70},
    0.7: {0.0: 81.54, 1.0: 82.35},
}
TABLE_H9 = {  # by local epochs and batch size, and by sigma, at z = 1.5
    (5, 32): {0.0: 81.53, 1.0: 83.23},
    (5, 64): {0.0: 83.73, 1.0: 84.92},
    (10, 32): {0.0: 81.87, 1.0: 82.95},
    (10, 64): {0.0: 84.14, 1.0: 85.24},
}
