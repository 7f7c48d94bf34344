"""Cells that are not known, drawn: their law against brute force, and what stays as it is."""

import math

import numpy as np
import pandas as pd
import pytest
import torch

from phvae import PHVAE
from phvae.distributions import SeriesPhaseType
from phvae.distributions.zero_atom import ZeroAtom
from phvae.fitted import unconditional
from phvae.imputation import draw_within

NAN = math.nan
SIGMAS = 4.9


@pytest.fixture(scope="module")
def model():
    """A model whose columns depend strongly on the latent variable."""
    rng = np.random.default_rng(0)
    x = rng.exponential(1.0, (200, 2)) + 0.01
    fitted = PHVAE(n_phases=3, latent_dim=1, epochs=1, hidden=(8,), random_state=0, origin=0).fit(x)
    with torch.no_grad():
        fitted.vae_.decoder.network.head.weight.mul_(30)
    return fitted


def brute_force(model, first, points, *, beyond=None):
    """Distribution function of the second column given the first (a value, or its exceedance), from prior draws."""
    vae = unconditional(model)
    with torch.no_grad():
        z = vae.prior.sample(200_000, torch.Generator().manual_seed(5))
        own, other = vae.decoder.column(z, 0), vae.decoder.column(z, 1)
        weight = own.log_prob(first) if beyond is None else own.log_sf(first)
        weight = weight[:, 0].softmax(0)
        below = torch.stack([weight @ other.cdf(point)[:, 0] for point in points]).numpy()
        if beyond is None:
            return below, math.sqrt(float(weight.square().sum()))
        return below, math.sqrt(float(weight.square().sum()))


@pytest.mark.parametrize("censored", [False, True])
def test_a_missing_cell_has_the_law_given_the_rest_of_its_row(model, censored):
    n, points = 4000, [0.2, 0.7, 2.0, 5.0]
    for first in (0.05, 3.0):
        frame = pd.DataFrame({0: np.full(n, first), 1: np.full(n, NAN)}).to_numpy()
        given = {"censored": [[True, False]] * n} if censored else {}
        filled = model.impute(frame, random_state=1, **given)
        exact, error = brute_force(model, first, points, beyond=True if censored else None)
        found = np.array([(filled[:, 1] <= point).mean() for point in points])
        deviation = np.sqrt(exact * (1 - exact) * (1 / n) + error**2)
        # choosing among 512 weighted points has a bias of order one over their effective number
        assert np.abs(found - exact).max() < (SIGMAS * deviation + 2 / 512).max()
        if censored:
            assert (filled[:, 0] > first).all()
        else:
            assert (filled[:, 0] == first).all()


def test_cells_that_are_known_stay_to_the_last_bit_and_draws_differ(model):
    rng = np.random.default_rng(2)
    x = rng.exponential(1.0, (50, 2)) + 0.02
    x[::3, 1] = NAN
    draws = model.impute(x, 3, random_state=4)
    assert len(draws) == 3
    known = ~np.isnan(x)
    for table in draws:
        assert np.array_equal(table[known], x[known])
        assert np.isfinite(table).all()
    assert (draws[0][~known] != draws[1][~known]).all()
    assert np.array_equal(model.impute(x, random_state=4), model.impute(x, random_state=4))
    whole = x[1:3]
    assert np.array_equal(model.impute(whole), whole)


def test_intervals_hold_their_draws(model):
    x = np.full((200, 2), 1.0)
    filled = model.impute(x, random_state=0, lower={"x1": 2.0}, upper={"x1": 2.5})
    assert ((filled[:, 1] > 2.0) & (filled[:, 1] <= 2.5)).all()
    assert (filled[:, 0] == 1.0).all()


def test_frames_keep_their_names_and_counts_are_whole():
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"claims": rng.poisson(2.0, 100).astype(float), "loss": rng.exponential(1.0, 100)})
    model = PHVAE(n_phases=2, latent_dim=1, epochs=1, random_state=0).fit(frame)
    assert model.settings_["counts"] == [0]
    gone = frame.copy()
    gone.loc[::2, "claims"] = NAN
    filled = model.impute(gone, random_state=0)
    assert list(filled.columns) == ["claims", "loss"]
    assert (filled["claims"] % 1 == 0).all()
    assert (filled["claims"] >= 0).all()
    more = model.impute(frame, random_state=0, censored={"claims": True})
    assert (more["claims"] >= frame["claims"]).all()


def test_draws_within_an_interval_have_the_law_given_it():
    law = ZeroAtom(0.0, SeriesPhaseType([0.5, 0.5], [1.0, 4.0]).expand((1,)))
    uniform = (torch.arange(1000, dtype=torch.float64)[:, None] + 0.5) / 1000
    for lower, upper in ((-math.inf, 0.8), (0.3, 0.9), (2.0, math.inf), (30.0, 31.0)):
        ends = [torch.tensor([end], dtype=torch.float64) for end in (lower, upper)]
        draws = draw_within(law, *ends, uniform)
        assert ((draws > lower) & (draws <= upper)).all()
        middle = float(draws.median())
        share = float((law.log_interval(ends[0], middle) - law.log_interval(*ends)).exp())
        # levels are evenly spaced: the median is one of the two in the middle, unless it is the atom
        assert abs(share - 0.5) < 2e-3 or middle == 0.0
