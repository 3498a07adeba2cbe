"""Paired cluster bootstrap: one set of resamples, every statistic of a comparison on it.

Two statistics computed under the same weights are paired: their difference or quotient is formed
resample by resample, so what all policies share (hard prompts, long answers) cancels.
"""

# Shapes: n = rows (prompts), r = resamples.

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

CONFIDENCE = 0.95
NORMAL_QUANTILE = 1.959963984540054  # two-sided, 95 %


@dataclass(frozen=True, slots=True)
class Estimate:
    """A value with its 95 % percentile interval; NaN where it does not exist."""

    value: float
    low: float
    high: float

    def excludes(self, number: float) -> bool:
        """Return whether the interval exists and does not contain `number`."""
        return self.low > number or self.high < number


@dataclass(frozen=True, slots=True, eq=False)
class Resampled:
    """A statistic on the data and on every resample; combine only under the same weights."""

    value: float
    samples: np.ndarray  # [r]

    def __sub__(self, other: Resampled) -> Resampled:
        return Resampled(self.value - other.value, self.samples - other.samples)

    def __truediv__(self, other: Resampled) -> Resampled:
        value = float(_divide(self.value, other.value))
        return Resampled(value, _divide(self.samples, other.samples))

    def estimate(self) -> Estimate:
        """Return the value with the percentile interval of its samples."""
        # A resample may miss every timed row; it says nothing about the ratio and is left out.
        samples = self.samples[np.isfinite(self.samples)]
        if not samples.size:
            return Estimate(self.value, np.nan, np.nan)
        tail = (1 - CONFIDENCE) / 2
        low, high = np.quantile(samples, [tail, 1 - tail])
        return Estimate(self.value, float(low), float(high))


def bootstrap_weights(
    clusters: Sequence | np.ndarray,  # [n] label of each row's cluster (its conversation)
    resamples: int = 10_000,
    seed: int = 0,
) -> np.ndarray:
    """Return how often each row counts in each resample, [r, n].

    Whole clusters are drawn with replacement, as many as there are, because the turns of one
    conversation are not independent. A single cluster cannot be resampled: its weights are NaN,
    so that every interval comes out empty instead of falsely certain.
    """
    labels, index = np.unique(np.asarray(clusters), return_inverse=True)
    if len(labels) < 2:
        return np.full((resamples, len(index)), np.nan)
    generator = np.random.default_rng(seed)
    chances = np.full(len(labels), 1 / len(labels))
    counts = generator.multinomial(len(labels), chances, size=resamples)
    return counts.astype(float)[:, index]


def ratio(
    numerators: np.ndarray,  # [n]
    denominators: np.ndarray,  # [n]
    weights: np.ndarray,  # [r, n]
) -> Resampled:
    """Return sum(numerators) / sum(denominators); NaN where the denominators sum to 0."""
    numerators = np.asarray(numerators, dtype=float)
    denominators = np.asarray(denominators, dtype=float)
    value = float(_divide(numerators.sum(), denominators.sum()))
    if np.count_nonzero(denominators) < 2:
        # One row gives the same ratio in every resample that has it: no interval, not a narrow one.
        return Resampled(value, np.full(len(weights), np.nan))
    samples = _divide(_product(weights, numerators), _product(weights, denominators))
    return Resampled(value, samples)


def mean(values: np.ndarray, weights: np.ndarray) -> Resampled:
    """Return the mean of `values` [n] under `weights` [r, n]."""
    return ratio(values, np.ones(len(values)), weights)


def ratio_interval(
    numerators: np.ndarray, denominators: np.ndarray, weights: np.ndarray
) -> Estimate:
    """Return sum(numerators) / sum(denominators) with its interval."""
    return ratio(numerators, denominators, weights).estimate()


def mean_interval(values: np.ndarray, weights: np.ndarray) -> Estimate:
    """Return the mean of `values` [n] with its interval."""
    return mean(values, weights).estimate()


def difference_interval(first: Resampled, second: Resampled) -> Estimate:
    """Return first - second, paired: both must come from the same weights."""
    return (first - second).estimate()


def wilson_interval(
    share: float | np.ndarray, count: int
) -> tuple[float | np.ndarray, float | np.ndarray]:
    """Return the ends of Wilson's 95 % score interval of shares of `count` independent cases."""
    spread = NORMAL_QUANTILE**2 / count
    middle, half = share + spread / 2, np.sqrt(spread * share * (1 - share) + spread**2 / 4)
    return (middle - half) / (1 + spread), (middle + half) / (1 + spread)


def _product(weights: np.ndarray, values: np.ndarray) -> np.ndarray:
    # einsum and not BLAS: a BLAS sum may change in its last digit with the number of threads,
    # and tables must not depend on how many cores a job was given.
    return np.einsum("rn,n->r", weights, values)


def _divide(numerator: np.ndarray | float, denominator: np.ndarray | float) -> np.ndarray:
    numerator, denominator = np.asarray(numerator, float), np.asarray(denominator, float)
    missing = np.full(np.broadcast_shapes(numerator.shape, denominator.shape), np.nan)
    return np.divide(numerator, denominator, out=missing, where=denominator != 0)
