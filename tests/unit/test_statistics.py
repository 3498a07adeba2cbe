import numpy as np
import pytest

from blockpilot.statistics import (
    Estimate,
    bootstrap_weights,
    difference_interval,
    mean,
    mean_interval,
    ratio,
    ratio_interval,
    wilson_interval,
)


def test_every_resample_draws_as_many_clusters_as_there_are():
    weights = bootstrap_weights(["a", "b", "c", "d"], resamples=200, seed=0)
    assert weights.shape == (200, 4)
    assert (weights.sum(axis=1) == 4).all()
    assert weights.mean() == pytest.approx(1)


def test_rows_of_a_cluster_count_together():
    weights = bootstrap_weights(["a", "b", "a", "c"], resamples=100, seed=0)
    np.testing.assert_array_equal(weights[:, 0], weights[:, 2])
    assert (weights[:, 0] != weights[:, 1]).any()


def test_the_seed_decides():
    first = bootstrap_weights(range(9), 50, seed=1)
    np.testing.assert_array_equal(first, bootstrap_weights(range(9), 50, seed=1))
    assert (first != bootstrap_weights(range(9), 50, seed=2)).any()


def test_statistics_by_hand():
    weights = np.array([[1.0, 1.0], [2.0, 0.0], [0.0, 2.0]])
    assert mean([1.0, 3.0], weights).samples.tolist() == [2.0, 1.0, 3.0]
    pooled = ratio([6.0, 8.0], [2.0, 4.0], weights)
    assert pooled.value == pytest.approx(14 / 6)
    np.testing.assert_allclose(pooled.samples, [14 / 6, 3.0, 2.0])
    interval = ratio_interval([6.0, 8.0], [2.0, 4.0], weights)
    # Linear interpolation between the sorted samples 2, 14/6, 3.
    assert interval.low == pytest.approx(2 + 0.05 * (14 / 6 - 2))
    assert interval.high == pytest.approx(3 - 0.05 * (3 - 14 / 6))


def test_a_paired_difference_drops_what_both_share():
    generator = np.random.default_rng(0)
    shared = generator.normal(5, 3, size=60)
    weights = bootstrap_weights(range(60), 500, seed=0)
    difference = difference_interval(mean(shared + 0.5, weights), mean(shared, weights))
    assert difference.value == pytest.approx(0.5)
    assert difference.low == pytest.approx(0.5)
    assert difference.high == pytest.approx(0.5)
    assert mean_interval(shared, weights).high - mean_interval(shared, weights).low > 1


def test_a_quotient_is_formed_resample_by_resample():
    weights = np.array([[1.0, 1.0], [2.0, 0.0]])
    quotient = mean([2.0, 4.0], weights) / mean([1.0, 3.0], weights)
    assert quotient.value == pytest.approx(1.5)
    np.testing.assert_allclose(quotient.samples, [1.5, 2.0])


@pytest.mark.parametrize("clusters", [["a"], ["a", "a", "a"]])
def test_one_cluster_has_a_value_and_no_interval(clusters):
    values = np.arange(len(clusters)) + 1.0
    estimate = mean_interval(values, bootstrap_weights(clusters, 20, seed=0))
    assert estimate.value == values.mean()
    assert np.isnan(estimate.low) and np.isnan(estimate.high)
    assert not estimate.excludes(0)


def test_denominators_without_rows_are_empty():
    weights = bootstrap_weights(range(3), 20, seed=0)
    nothing = ratio_interval([0.0, 0.0, 0.0], [0.0, 0.0, 0.0], weights)
    assert np.isnan([nothing.value, nothing.low, nothing.high]).all()
    one = ratio_interval([2.0, 0.0, 0.0], [1.0, 0.0, 0.0], weights)
    assert one.value == 2
    assert np.isnan(one.low)


def test_resamples_that_miss_every_timed_row_are_left_out():
    weights = np.array([[1.0, 1.0, 1.0], [0.0, 0.0, 3.0], [2.0, 1.0, 0.0]])
    estimate = ratio_interval([2.0, 4.0, 0.0], [1.0, 1.0, 0.0], weights)
    assert estimate.value == 3
    assert 8 / 3 <= estimate.low <= estimate.high <= 3


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [(0.1, 0.2, True), (-0.2, -0.1, True), (-0.1, 0.1, False), (0.0, 0.1, False)],
)
def test_excludes(low, high, expected):
    assert Estimate(0.0, low, high).excludes(0) is expected


def test_the_interval_covers_the_truth_about_as_often_as_it_says():
    generator = np.random.default_rng(7)
    covered = 0
    for repeat in range(300):
        sample = generator.exponential(2.0, size=80)
        estimate = mean_interval(sample, bootstrap_weights(range(80), 600, seed=repeat))
        covered += estimate.low <= 2.0 <= estimate.high
    assert 0.90 <= covered / 300 <= 0.98


def test_correlated_clusters_widen_the_interval():
    generator = np.random.default_rng(3)
    conversations = np.repeat(np.arange(30), 4)
    values = np.repeat(generator.normal(size=30), 4) + 0.1 * generator.normal(size=120)
    by_row = mean_interval(values, bootstrap_weights(range(120), 1000, seed=0))
    by_conversation = mean_interval(values, bootstrap_weights(conversations, 1000, seed=0))
    # Four copies of one draw carry the information of one: the interval doubles.
    widening = (by_conversation.high - by_conversation.low) / (by_row.high - by_row.low)
    assert 1.6 < widening < 2.4


def test_wilson_interval_of_a_textbook_case():
    # Newcombe (1998), table I: 81 of 263 and 15 of 148 with Wilson's score method.
    assert wilson_interval(81 / 263, 263) == pytest.approx((0.2553, 0.3662), abs=5e-5)
    low, high = wilson_interval(np.array([0, 15 / 148]), 148)
    assert low == pytest.approx([0, 0.0624], abs=5e-5)
    assert high == pytest.approx([0.0253, 0.1605], abs=5e-5)
