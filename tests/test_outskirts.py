"""The prior after training: rows on the outskirts of latent space have components and a share of their own."""

import copy

import numpy as np
import pytest
import torch
from torch.distributions import Normal

from phvae import PHVAE, outskirts
from phvae.batches import RowsInMemory
from phvae.layout import Layout
from phvae.outskirts import DRAWS, FEWEST, OUTSKIRTS, ROWS_PER_COMPONENT, settle_prior
from phvae.priors import ConditionalPrior, MixturePrior, StandardNormal
from phvae.risk.latent import NormalMixture

FEWEST_ROWS = round(FEWEST * ROWS_PER_COMPONENT / OUTSKIRTS)


class Told(torch.nn.Module):
    """A model whose posteriors are the rows: ``z`` normal around them with a deviation of a tenth."""

    DEVIATION = 0.1

    def __init__(self, prior, n_covariates=0):
        super().__init__()
        self.prior, self.layout = prior, Layout(prior.latent_dim, n_covariates=n_covariates)

    def posterior(self, x):
        mean = x[:, : self.prior.latent_dim].float()
        return Normal(mean, torch.full_like(mean, self.DEVIATION))


def heavy(n, seed=0):
    """A Student law in the plane: what is far is far in both coordinates together."""
    generator = np.random.default_rng(seed)
    normal = generator.standard_normal((n, 2))
    return torch.from_numpy(normal / np.sqrt(generator.chisquare(4.0, (n, 1)) / 4))


def trained(n_components=16):
    """A prior of which nothing is right but its middle."""
    return MixturePrior(2, n_components, generator=torch.Generator().manual_seed(3))


def both_far(z, bound=3.0):
    return float((z.abs() > bound).all(-1).double().mean())


def test_what_is_far_together_has_its_probability():
    """From posteriors of 20,000 rows, 180 of them far in both.

    Over seeds of the noise the ratio to what is wanted is 1.10 with a deviation of 0.04: the bound is six of these.
    """
    x = heavy(20_000)
    model = Told(trained())
    before = both_far(model.prior.sample(400_000, torch.Generator().manual_seed(1)))
    assert settle_prior(model, RowsInMemory(x), seed=0) == 32
    generator = torch.Generator().manual_seed(2)
    after = both_far(model.prior.sample(400_000, generator))
    wanted = both_far(x + Told.DEVIATION * torch.randn(20, *x.shape, generator=generator, dtype=torch.float64))
    assert abs(after - wanted) < 0.35 * wanted < abs(before - wanted)


def test_one_normal_law_of_its_own_has_the_moments_of_its_rows():
    """One component is fitted in closed form: mean and variance of the draws and of what all components count."""
    rows = outskirts._Posteriors(torch.zeros(900, 1), torch.ones(900, 1), torch.ones(900))
    found = outskirts._fitted(rows, 1, 1, torch.Generator().manual_seed(0))
    z = torch.randn(DRAWS, 900, 1, generator=torch.Generator().manual_seed(0)).flatten().double()
    total = len(z) + outskirts.SHARED_DRAWS
    mean = z.sum() / total
    variance = (z.square().sum() + outskirts.SHARED_DRAWS) / total - mean.square()
    assert found.weights.tolist() == [1.0]
    # sums of 2700 numbers in single precision
    assert float(found.means) == pytest.approx(float(mean), abs=1e-5)
    assert float(found.deviations) == pytest.approx(float(variance.sqrt()), rel=1e-5)


def test_every_step_of_the_fit_raises_the_likelihood():
    """Expectation and maximisation never go down; what all components count is a part of what they climb."""
    x = heavy(3000, 1).float()
    rows = outskirts._Posteriors(x, torch.full_like(x, 0.1), torch.ones(len(x)))
    values = []
    for steps in (1, 3, 10, 40):
        generator = torch.Generator().manual_seed(4)
        found = outskirts._fitted(rows, 6, steps, generator)
        values.append(found.prior().log_prob(x).double().mean().item())
    assert values == sorted(values)


def test_a_weight_counts_rows():
    """Twice the rows at half the weight are the same law but for the noise of the draws: six of its deviations."""
    x = heavy(10_000, 2)
    once, twice = Told(trained()), Told(trained())
    settle_prior(once, RowsInMemory(x), seed=1)
    weights = torch.ones(20_000).double() / 2
    settle_prior(twice, RowsInMemory(torch.cat((x, x)), weights), seed=1)
    shares = [both_far(model.prior.sample(400_000, torch.Generator().manual_seed(1))) for model in (once, twice)]
    assert shares[0] == pytest.approx(shares[1], rel=0.4)


def test_covariates_move_the_prior_as_before():
    """Rows that are moved by covariates give the prior of rows that are not."""
    x = heavy(10_000, 3)
    prior = ConditionalPrior(trained(), 1)
    with torch.no_grad():
        prior.shift.weight.copy_(torch.tensor([[1.0], [-2.0], [0.5], [0.0]]))
    c = torch.linspace(-1, 1, len(x)).double()[:, None]
    moved = c * torch.tensor([1.0, -2.0]) + (c * torch.tensor([0.5, 0.0])).exp() * x
    model, plain = Told(prior, 1), Told(trained())
    assert settle_prior(model, RowsInMemory(torch.cat((moved, c), 1)), seed=0) == settle_prior(
        plain, RowsInMemory(x), seed=0
    )
    shares = [
        both_far(law.sample(400_000, torch.Generator().manual_seed(1))) for law in (model.prior.base, plain.prior)
    ]
    assert shares[0] == pytest.approx(shares[1], rel=0.4)


@pytest.mark.parametrize(
    ("prior", "n_rows"), [(StandardNormal(2), FEWEST_ROWS), (trained(), FEWEST_ROWS - 10), (MixturePrior(2, 1), 10**4)]
)
def test_a_prior_without_components_or_rows_for_them_stays(prior, n_rows):
    model = Told(prior)
    before = copy.deepcopy(prior.state_dict())
    assert settle_prior(model, RowsInMemory(heavy(n_rows)), seed=0) is None
    assert model.prior is prior
    assert all(torch.equal(value, before[name]) for name, value in prior.state_dict().items())


def test_of_many_rows_a_part_is_asked(monkeypatch):
    monkeypatch.setattr(outskirts, "MOST_ROWS", 10_000)
    found = outskirts._posteriors(Told(trained()), RowsInMemory(heavy(40_000)), 0)
    # six deviations of a binomial count
    assert abs(len(found.means) - 10_000) < 6 * (40_000 * 0.25 * 0.75) ** 0.5


def test_a_fit_has_the_components_and_keeps_them_in_its_file(tmp_path):
    n = round(FEWEST_ROWS / 0.9) + 1
    x = (0.3 * heavy(n)).exp().numpy()
    few = {"n_phases": 2, "hidden": (4,), "latent_dim": 2, "epochs": 1, "start": "geometric", "device": "cpu"}
    model = PHVAE(random_state=0, **few).fit(x)
    assert model.settings_["n_components"] == len(model.vae_.prior.logits) == 32 + FEWEST
    again = PHVAE(random_state=0, **few).fit(x)
    assert all(torch.equal(a, b) for a, b in zip(model.vae_.parameters(), again.vae_.parameters(), strict=True))
    model.save(tmp_path / "model.phvae")
    loaded = PHVAE.load(tmp_path / "model.phvae")
    assert torch.equal(loaded.vae_.prior.means, model.vae_.prior.means)
    assert len(NormalMixture.of_prior(loaded.vae_.prior).weights) == 32 + FEWEST
