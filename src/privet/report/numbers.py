"""Numbers in words for readers: percentages, epsilons and deltas, rounded to the side that promises less."""

import math
from decimal import ROUND_CEILING, ROUND_FLOOR, Context


def up(value: float, digits: int = 3) -> str:
    """Return a number with this many significant digits, rounded up after an allowance for its own rounding errors."""
    return _rounded(value, digits, ROUND_CEILING)


def down(value: float, digits: int = 3) -> str:
    """Return a number with this many significant digits, rounded down."""
    return _rounded(value, digits, ROUND_FLOOR)


def _rounded(value: float, digits: int, side: str) -> str:
    return "unlimited" if math.isinf(value) else plain(_nearby(value, digits, side))


def upper(value: float, digits: int) -> float:
    """Return the number that :func:`up` writes."""
    return _nearby(value, digits, ROUND_CEILING)


def _nearby(value: float, digits: int, side: str) -> float:
    near = Context(prec=12).create_decimal(repr(float(value)))  # 0.30000000000000004 is 0.3
    return float(Context(prec=digits, rounding=side).plus(near))


def plain(value: float, digits: int = 6, *, least: float = 1e-4) -> str:
    """Return a number as people write it: 0.00012, 12,345, and, below ``least``, 6.2 × 10⁻⁷."""
    if value == 0 or math.isinf(value):
        return "0" if value == 0 else "unlimited"
    if least <= abs(value) < 1e7:
        text = f"{value:,.{max(0, digits - 1 - math.floor(math.log10(abs(value))))}f}"
        return (text.rstrip("0").rstrip(".") if "." in text else text).replace("-", "−")
    mantissa, _, exponent = f"{value:.{digits - 1}e}".partition("e")
    mantissa = mantissa.rstrip("0").rstrip(".") if "." in mantissa else mantissa
    from privet.report.svg import superscript

    power = f"10{superscript(int(exponent))}"
    return power if mantissa == "1" else f"{mantissa.replace('-', '−')} × {power}"


def delta(value: float) -> str:
    """Return a delta with three digits, rounded up, as a multiple of a power of ten: 10⁻⁶ and 6.2 × 10⁻⁷."""
    return plain(upper(value, 3), 3, least=0.1)


def percent_up(share: float) -> str:
    """Return a share in percent with one decimal, rounded up and at most 100."""
    tenths = math.ceil(round(share * 1000, 6))
    return f"{min(tenths, 1000) / 10:g}\u00a0%"


def percent(share: float) -> str:
    """Return a share in percent with one decimal."""
    return f"{100 * share:.1f}\u00a0%"
