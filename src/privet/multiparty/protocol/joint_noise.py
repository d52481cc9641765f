"""Noise that parties draw together inside a multi-party computation, so that no minority of them knows it.

A fair bit is the sign of a jointly random number. A bit that is 1 with probability 0.b1 b2 ... bk (in binary) takes k
fair bits: from the last place on, a fair bit is combined with what was found so far, by "or" if the place holds a 1 and
by "and" if it holds a 0. Each combination is one multiplication. The leading zeros of a rare bit form a product, which
takes only logarithmically many rounds.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np

from privet.privacy.noise.laplace import LARGEST_MODULUS
from privet.privacy.noise.law import Recipe


def joint_draw(runtime: Any, secret: Any, recipe: Recipe, dimension: int) -> Any:
    """Return shares of ``dimension`` independent draws, in a prime field of at most 2^64 elements.

    Parameters
    ----------
    runtime, secret
        MPyC's runtime, and its type of secret field elements.
    recipe : Recipe
        Which bits to draw, and with which weights to add them.
    dimension : int
        Number of draws.
    """
    if recipe.reset is not None and secret.field.order > LARGEST_MODULUS:
        raise ValueError(
            f"The guarantee of this noise holds in fields of up to 2^64 elements, but sums need {secret.field.order}. "
            "Use fewer steps, or a larger epsilon."
        )
    fair = runtime.np_random_bits(secret, dimension * recipe.bits_drawn).reshape(dimension, recipe.bits_drawn)
    start, parts = 0, []
    for group in recipe.bits:
        width = len(group.weights)
        places = [fair[:, start + place * width : start + (place + 1) * width] for place in range(group.digits)]
        start += width * group.digits
        weights = np.array([weight % secret.field.order for weight in group.weights], dtype=object)
        parts.append(biased(places, group.ones) @ secret.field.array(weights))
    if recipe.reset is not None:
        hit = product([fair[:, start + place] for place in range(recipe.reset)])
        parts.append(hit * runtime._np_randoms(secret, dimension))
    return sum(parts[1:], start=parts[0])


def biased(places: Sequence[Any], ones: int) -> Any:
    """Return shares of bits that are 1 with probability ones / 2^k, given k arrays of shares of fair bits."""
    digits = len(places)
    first = digits - ones.bit_length()  # number of leading zeros
    found = places[-1]
    for place in reversed(range(first, digits - 1)):
        both = places[place] * found
        found = places[place] + found - both if ones >> (digits - 1 - place) & 1 else both
    return product([found, *places[:first]])


def product(factors: Sequence[Any]) -> Any:
    """Return the product of arrays of shares, in few rounds."""
    left = list(factors)
    while len(left) > 1:
        pairs = [one * other for one, other in zip(left[::2], left[1::2], strict=False)]
        left = pairs + left[2 * len(pairs) :]
    return left[0]
