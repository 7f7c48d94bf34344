"""Origin, scale and share of zeros per column: the promises that the fit stands on."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from phvae.preprocessing import PositiveScaler, geometric_start, rounded

POSITIVE = st.floats(1e-3, 1e6)


def varied(x):
    return x[(x > 0).any(1)] if x.size else x


def pareto(n=1000, columns=2, seed=0):
    return 1 + np.random.default_rng(seed).pareto(2.4, (n, columns))


def test_automatic_origin_is_the_smallest_value_less_its_expected_gap():
    x = pareto()
    scaler = PositiveScaler().fit(x)
    expected = x.min(0) - (x.mean(0) - x.min(0)) / len(x)
    np.testing.assert_allclose(scaler.origin_, expected, rtol=1e-14)
    np.testing.assert_allclose(scaler.scale_, np.median(x - scaler.origin_, axis=0), rtol=1e-14)
    assert scaler.zero_share_.tolist() == [0, 0]


def test_automatic_origin_is_never_negative():
    x = np.array([[0.1], [100.0]])
    assert PositiveScaler().fit(x).origin_.tolist() == [0.0]


def test_origin_lies_strictly_below_every_value_even_where_the_gap_is_lost_in_rounding():
    x = np.array([[1e16], [1e16 + 2], [1e16 + 2]])
    scaler = PositiveScaler().fit(x)
    assert scaler.origin_[0] < x.min()
    assert (scaler.transform(x) > 0).all()


def test_exact_zeros_are_an_atom_and_count_for_nothing_else():
    x = pareto()
    with_zeros = np.concatenate([x, np.zeros_like(x)])
    scaler, plain = PositiveScaler().fit(with_zeros), PositiveScaler().fit(x)
    assert scaler.zero_share_.tolist() == [0.5, 0.5]
    np.testing.assert_array_equal(scaler.origin_, plain.origin_)
    np.testing.assert_array_equal(scaler.scale_, plain.scale_)
    np.testing.assert_array_equal(scaler.transform(with_zeros)[1000:], 0)


def test_a_zero_where_the_column_has_no_atom_lies_below_the_origin():
    scaler = PositiveScaler().fit(pareto())
    assert (scaler.transform(np.zeros((1, 2))) < 0).all()


@pytest.mark.parametrize("origin", [0.5, [0.5, 0.5], {"a": 0.5, "b": 0.5}, np.array([0.5, 0.5]), np.float64(0.5)])
def test_origin_is_given_as_a_number_per_column_or_by_name(origin):
    assert PositiveScaler(origin).fit(pareto(), ["a", "b"]).origin_.tolist() == [0.5, 0.5]


def test_columns_without_a_given_origin_are_estimated():
    x = pareto()
    expected = PositiveScaler().fit(x).origin_[1]
    assert PositiveScaler({"a": 0.5}).fit(x, ["a", "b"]).origin_.tolist() == [0.5, expected]
    assert PositiveScaler([0.5, "auto"]).fit(x).origin_.tolist() == [0.5, expected]


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, (20, 3), elements=POSITIVE, unique=True), st.floats(1e-9, 1e9))
def test_unit_free_values_do_not_depend_on_the_unit(x, factor):
    u, v = PositiveScaler(0.0).fit(x).transform(x), PositiveScaler(0.0).fit(factor * x).transform(factor * x)
    np.testing.assert_allclose(v, u, rtol=1e-15 * 8)  # a product, a subtraction of zero and a quotient of each


@settings(max_examples=50, deadline=None)
@given(arrays(np.float64, (20, 2), elements=st.one_of(st.just(0.0), POSITIVE)))
def test_scaling_and_back_returns_the_values(x):
    x = np.concatenate([x, [[1.0, 2.0], [3.0, 5.0]]])
    scaler = PositiveScaler().fit(x)
    # the difference x - origin and the sum back are each off by one rounding of the larger term
    np.testing.assert_allclose(scaler.inverse_transform(scaler.transform(x)), x, rtol=1e-14, atol=0)


def test_log_volume_counts_densities_and_not_probabilities():
    x = np.array([[0.0, 2.0], [3.0, 4.0], [5.0, 9.0]])
    scaler = PositiveScaler(0.0).fit(x)
    first, second = np.log(scaler.scale_)
    np.testing.assert_allclose(scaler.log_volume(x), [second, first + second, first + second], rtol=1e-15)


def test_rounded_keeps_the_digits_of_single_precision_over_the_range_of_double():
    u = np.exp(np.linspace(-80, 80, 1001))
    np.testing.assert_array_equal(rounded(u), u.astype(np.float32).astype(np.float64))
    tiny = np.array([1e-300 / 3, 0.0, 1e300 / 3])
    np.testing.assert_allclose(rounded(tiny), tiny, rtol=2**-24)


def test_rounded_data_of_another_unit_are_the_same_bits():
    x = pareto(10_000, 1)
    reference = rounded(PositiveScaler().fit(x).transform(x))
    for factor in (1e-6, 1e9, 1 / 3):
        np.testing.assert_array_equal(rounded(PositiveScaler().fit(factor * x).transform(factor * x)), reference)


def test_geometric_start_reaches_from_the_largest_value_to_inside_the_median():
    u = PositiveScaler().fit(pareto()).transform(pareto())
    initial, rates = geometric_start(u, 10)
    assert initial.shape == rates.shape == (2, 10)
    np.testing.assert_allclose(initial.sum(1), 1, rtol=1e-15)
    np.testing.assert_allclose(rates[:, 0], 3 / u.max(0), rtol=1e-14)
    np.testing.assert_allclose(rates[:, -1], 20 / np.median(u, 0), rtol=1e-14)
    np.testing.assert_allclose(np.diff(np.log(rates), 2), 0, atol=1e-13)


@pytest.mark.parametrize(
    ("column", "origin", "message"),
    [
        ([1, -2, 3, -4], "auto", r"^Negative values in data: column 'loss', row 1 is -2 and 1 more; .*remove"),
        ([0, 0, 0, 0], "auto", r"^column 'loss' is 0 in every row; .* drop it$"),
        ([7, 7, 7, 7], "auto", r"^column 'loss' is 7 in every row; .* drop it$"),
        ([7, 0, 7, 7], "auto", r"^column 'loss' is 7 in every row that is not 0; .* drop it$"),
        ([3, 2, 5, 0], 2.5, r"^column 'loss', row 1 is 2, below its origin 2.5; .*'auto'$"),
        ([3, 2, 5, 4], 2, r"^column 'loss', row 1 is 2, exactly at its origin, .*lower the origin to 1.625 or"),
        ([1e-20, 1e-20, 2e-20, 1e20], 0, r"^column 'loss', row 3 is 1e\+20, beyond 1e\+30 times"),
        ([1, 2, 3, 4], -1, r"^origin of column 'loss' is -1; give"),
        ([1, 2, 3, 4], "min", r"^origin of column 'loss' is 'min'; give"),
        ([1, 2, 3, 4], float("nan"), r"^origin of column 'loss' is nan; give"),
        ([1, 2, 3, 4], [1, 2], r"^origin has 2 entries and the data 1 columns"),
        ([1, 2, 3, 4], {"lost": 1}, r"^origin names column 'lost', which the data do not have; they have \['loss'\]"),
    ],
)
def test_what_cannot_be_fitted_is_said_with_column_row_and_remedy(column, origin, message):
    with pytest.raises(ValueError, match=message):
        PositiveScaler(origin).fit(np.array(column, dtype=float)[:, None], ["loss"])
