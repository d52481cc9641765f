"""Tables 3, 5, 6 and H.11 of the DP-Fed-LS paper as printed: the test accuracy of its CNN on SVHN, in per cent."""

MULTIPLIERS = (2.4, 2.2, 2.0, 1.8)
TABLE3 = {  # test accuracy, %: by sigma, for each noise multiplier
    "uniform": {
        0.0: (76.14, 78.56, 80.28, 82.05),
        0.5: (80.67, 82.18, 82.94, 84.17),
        1.0: (80.82, 82.17, 83.19, 84.40),
        1.5: (81.02, 81.38, 82.93, 83.51),
    },
    "poisson": {
        0.0: (75.93, 78.23, 79.94, 82.01),
        0.5: (80.68, 81.86, 82.87, 83.94),
        1.0: (80.82, 82.10, 82.89, 83.85),
        1.5: (80.79, 81.80, 82.83, 83.74),
    },
}
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
