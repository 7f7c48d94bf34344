"""The models of a comparison: one face, one budget, and what defines each family."""

import functools
from importlib.util import find_spec
from typing import ClassVar

import numpy as np
import pytest
import torch
from scipy import stats
from torch.distributions import AffineTransform, ExpTransform, SigmoidTransform, TransformedDistribution, Uniform

from phvae.baselines.baseline import Baseline
from phvae.baselines.decoder_families import (
    DecoderVAE,
    GammaVAE,
    GaussianVAE,
    LogNormalVAE,
    MeanDecodedGaussianVAE,
    StudentTVAE,
)
from phvae.baselines.phase_type import IndependentPhaseTypeVAEs, PaperPhaseTypeVAE, PhaseTypeVAE
from phvae.baselines.search import search
from phvae.baselines.t3vae import T3VAE
from phvae.baselines.tail_flow import LogTailTransformFlow, TailTransformFlow
from phvae.baselines.xvae import XVAE, XVAEWithParetoMargins
from phvae.decoders import Decoder
from phvae.distributions.located import Located
from phvae.estimator import PHVAE
from phvae.settings import resolve
from phvae.training import TrainingError

SMALL = {"latent_dim": 2, "hidden": (16,), "epochs": 4}


class LogLogisticDecoder(Decoder):
    """A family as users write it: a law of torch, with neither mean nor tails in logs."""

    def __init__(self, latent_dim, *, origin, scale, **settings):
        super().__init__(latent_dim, origin=origin, scale=scale, n_outputs=2, **settings)

    def start_outputs(self, u):
        logs = np.log(u)
        return logs.mean(), np.log(logs.std() * 3**0.5 / np.pi)

    def _columns(self, outputs, origin, scale):
        place, log_spread = outputs.double().unbind(-1)
        logit, stretch = SigmoidTransform().inv, AffineTransform(place + scale.log(), log_spread.exp())
        law = TransformedDistribution(
            Uniform(torch.zeros_like(place), 1.0, validate_args=False), [logit, stretch, ExpTransform()], False
        )
        return Located(law, origin, validate_args=False)


class BareDecoder(LogLogisticDecoder):
    """The least that a class has to take."""

    def __init__(self, latent_dim, *, origin, scale, generator=None):
        super().__init__(latent_dim, origin=origin, scale=scale, generator=generator)


def log_logistic(**settings):
    return DecoderVAE(LogLogisticDecoder, **settings)


FAMILIES = {
    "Gaussian": functools.partial(GaussianVAE, **SMALL),
    "Student": functools.partial(StudentTVAE, **SMALL),
    "lognormal": functools.partial(LogNormalVAE, **SMALL),
    "gamma": functools.partial(GammaVAE, **SMALL),
    "log-logistic of torch": functools.partial(log_logistic, **SMALL),
}
NEURAL = FAMILIES | {
    "t3": functools.partial(T3VAE, degrees=9, spread=1.0, **SMALL),
    "xVAE": functools.partial(XVAE, **SMALL),
    "xVAE, margins": functools.partial(XVAEWithParetoMargins, **SMALL),
}
if find_spec("zuko"):
    NEURAL |= {
        "flow": functools.partial(TailTransformFlow, **SMALL),
        "flow of logarithms": functools.partial(LogTailTransformFlow, **SMALL),
    }
ALL = NEURAL | {
    "PH-VAE": functools.partial(PhaseTypeVAE, n_phases=3, start="geometric", **SMALL),
    "paper": functools.partial(PaperPhaseTypeVAE, n_phases=3, batch_size=32, **SMALL | {"epochs": 13}),
    "independent": functools.partial(IndependentPhaseTypeVAEs, n_phases=3, start="geometric", **SMALL),
}


def rows(n=400, seed=0):
    rng = np.random.default_rng(seed)
    shared = rng.standard_exponential(n)
    return np.stack([shared * rng.lognormal(size=n), 5 * shared + rng.pareto(2.4, n), rng.weibull(0.7, n)], 1)


@functools.cache
def fitted(name, seed=0):
    return ALL[name]().fit(rows(), seed=seed)


@pytest.fixture(params=ALL)
def name(request):
    return request.param


def test_every_model_learns_and_draws_rows_of_its_columns(name):
    model = fitted(name)
    drawn = model.sample(1000, seed=1)
    assert drawn.shape == (1000, 3)
    assert drawn.dtype == np.float64
    assert model.n_parameters > 0


def test_training_improves_the_held_out_objective(name):
    # the same seed has the same first weights: what changes the objective is the training
    new = rows(400, seed=9)
    untrained = functools.partial(ALL[name], learning_rate=1e-9)().fit(rows())
    assert fitted(name).objective(new) > untrained.objective(new) + 0.01


def test_the_seed_decides_everything(name):
    first, again = fitted(name), ALL[name]().fit(rows(), seed=0)
    drawn = first.sample(50, seed=1)
    assert np.array_equal(drawn, again.sample(50, seed=1))
    assert np.array_equal(drawn, first.sample(80, seed=1)[:50])
    assert not np.array_equal(drawn, first.sample(50, seed=2))
    assert not np.array_equal(drawn, ALL[name]().fit(rows(), seed=1).sample(50, seed=1))


def test_no_global_generator_is_touched(name):
    torch.manual_seed(0)
    np.random.seed(0)  # noqa: NPY002
    before = torch.get_rng_state(), np.random.get_state()[1].copy()  # noqa: NPY002
    ALL[name]().fit(rows(), seed=3).sample(10, seed=0)
    assert torch.equal(before[0], torch.get_rng_state())
    assert np.array_equal(before[1], np.random.get_state()[1])  # noqa: NPY002


@pytest.mark.parametrize("size", [(500, 3), (10_000, 5), (80_000, 5), (3000, 12)])
def test_every_neural_model_has_the_budget_of_phvae(size):
    own = resolve(PHVAE().get_params(), *size)
    for model in NEURAL.values():
        given = model.func().resolved(*size)
        assert given == {key: own[key] for key in given}


def test_names_differ():
    labels = [make().name for make in (*ALL.values(), functools.partial(MeanDecodedGaussianVAE, **SMALL))]
    assert len(set(labels)) == len(labels)
    assert LogNormalVAE(origin="auto").name == "LogNormal-VAE, own origin"


@pytest.mark.parametrize("make", FAMILIES.values(), ids=FAMILIES.keys())
def test_a_fit_does_not_depend_on_the_unit(make):
    # powers of two change no digit; the bounds differ by the logarithms of the units
    one, other = make().fit(rows()), make().fit(rows() * 1024.0)
    assert other.sample(100, seed=0) == pytest.approx(1024 * one.sample(100, seed=0), rel=1e-3)
    assert other.objective(1024 * rows()) == pytest.approx(one.objective(rows()) - 3 * np.log(1024), rel=1e-4)


def test_zeros_are_atoms():
    x = rows()
    x[::4, 1] = 0
    for make in FAMILIES.values():
        drawn = make().fit(x).sample(20_000, seed=0)
        share = float((drawn[:, 1] == 0).mean())
        # four epochs move the share a little
        assert 0.15 < share < 0.35
        assert not (drawn[:, 0] == 0).any()


def test_a_decoder_of_the_least_arguments_is_a_baseline():
    x = rows()
    bare = DecoderVAE(BareDecoder, latent_dim=2, epochs=2)
    assert bare.name == "Bare-VAE"
    assert DecoderVAE(BareDecoder, name="mine").name == "mine"
    # what it does not take has the values it has elsewhere
    full = DecoderVAE(LogLogisticDecoder, latent_dim=2, epochs=2)
    assert np.array_equal(bare.fit(x).sample(20, seed=0), full.fit(x).sample(20, seed=0))
    with pytest.raises(ValueError, match=r"hidden = \(16,\): BareDecoder does not take it; give the class an argument"):
        DecoderVAE(BareDecoder, **SMALL)
    x[::4, 1] = 0
    with pytest.raises(
        ValueError, match=r"x\[:, 1\] has 2[0-9.]+% zeros, and BareDecoder takes no zero_share; give the"
    ):
        bare.fit(x)


def test_positive_families_give_positive_rows_and_the_others_do_not():
    assert (fitted("gamma").sample(20_000, seed=0) > 0).all()
    assert (fitted("lognormal").sample(20_000, seed=0) > 0).all()
    assert (fitted("Gaussian").sample(20_000, seed=0) < 0).any()
    assert (fitted("Student").sample(20_000, seed=0) < 0).any()


def test_an_origin_of_its_own_bounds_the_rows_from_below():
    x = rows() + 10
    assert LogNormalVAE(origin="auto", **SMALL).fit(x).sample(5000, seed=0).min() > 9.9
    assert LogNormalVAE(**SMALL).fit(x).sample(5000, seed=0).min() < 9.9


def test_mean_decoding_leaves_out_the_variance_of_the_decoder():
    model = fitted("Gaussian")
    means = model.mean_decoded()
    n = 40_000
    # the same seed gives the same latent points, so the difference is the noise of the decoder
    mean, noise = means.sample(n, seed=0), model.sample(n, seed=0) - means.sample(n, seed=0)
    with torch.no_grad():
        variances = model.model_.decoder(
            model.model_.prior.sample(n, torch.Generator().manual_seed(0))
        ).variance.numpy()
    for j in range(3):
        # five deviations of each estimate are exceeded less than once in a million
        squares = noise[:, j] ** 2
        error = np.hypot(squares.std(), variances[:, j].std()) / np.sqrt(n)
        assert abs(squares.mean() - variances[:, j].mean()) < 5 * error
        product = (mean[:, j] - mean[:, j].mean()) * noise[:, j]
        assert abs(product.mean()) < 5 * product.std() / np.sqrt(n)
    assert (means.sample(n, seed=0).var(0) < model.sample(n, seed=0).var(0)).all()
    assert means.n_parameters == model.n_parameters
    assert means.name != model.name


def test_independent_models_give_independent_columns():
    n = 5000
    drawn = fitted("independent").sample(n, seed=0)
    # the variance of Kendall's tau without dependence; five deviations
    bound = 5 * np.sqrt(2 * (2 * n + 5) / (9 * n * (n - 1)))
    for i, j in ((0, 1), (0, 2), (1, 2)):
        assert abs(stats.kendalltau(drawn[:, i], drawn[:, j]).statistic) < bound
    assert stats.kendalltau(rows()[:, 0], rows()[:, 1]).statistic > 0.2


def test_independent_models_have_the_sizes_of_the_joint_one():
    joint, single = PhaseTypeVAE().resolved(10_000, 5), IndependentPhaseTypeVAEs().resolved(10_000, 5)
    assert single["latent_dim"] == joint["latent_dim"] == 10
    assert single["n_phases"] == joint["n_phases"] == 20
    assert single["epochs"] == joint["epochs"]
    columns = fitted("independent").columns_
    assert [column.model_.settings_["latent_dim"] for column in columns] == [2, 2, 2]


# Failures and the search.


class Exploded(Baseline):
    name = "exploded"

    def _fit(self, x, seed):
        pass

    def _draw(self, n, seed):
        return np.where(np.arange(n) % 2, np.inf, 1.0)[:, None]


def test_values_that_are_no_numbers_are_a_failed_run():
    with pytest.raises(TrainingError, match="exploded: 5 of 10 generated rows are not finite"):
        Exploded().fit(rows()).sample(10, seed=0)


class Remembering:
    """Best at a step size of 2e-3 and the longer run; a large step diverges."""

    seen: ClassVar[list[np.ndarray]] = []

    def __init__(self, learning_rate=0.1, epochs=30):
        self.learning_rate, self.epochs = learning_rate, epochs

    def resolved(self, n_rows, n_columns):
        return {"epochs": self.epochs}

    def fit(self, x, seed=0):
        if self.learning_rate == 8e-3:
            raise TrainingError("diverged")
        self.seen.append(x)
        return self

    def objective(self, x, seed=0):
        self.seen.append(x)
        return self.epochs / 30 - abs(np.log(self.learning_rate / 2e-3))


def test_the_search_takes_the_best_on_rows_held_out():
    x = rows()
    Remembering.seen.clear()
    choice = search(Remembering, x)
    assert choice.settings == {"learning_rate": 2e-3, "epochs": 30}
    assert len(choice.trials) == 6
    assert choice.n_diverged == 2
    assert [trial.objective is None for trial in choice.trials] == [False] * 4 + [True] * 2
    kept, out = Remembering.seen[:2]
    assert len(out) == 80
    assert np.array_equal(np.sort(np.concatenate([kept, out]), 0), np.sort(x, 0))
    assert (kept.min(0) == x.min(0)).all()
    assert all(np.array_equal(a, b) for a, b in zip(Remembering.seen[:2], Remembering.seen[2:4], strict=True))


def test_the_search_fails_where_every_run_diverges():
    with pytest.raises(TrainingError, match="all 2 runs of the search diverged"):
        search(Remembering, rows(), learning_rates=[8e-3])


def test_the_search_works_on_real_models_and_leaves_nothing_to_choose_without_epochs():
    choice = search(FAMILIES["lognormal"], rows(), learning_rates=[1e-6, 1e-2], budgets=[1.0])
    assert choice.settings == {"learning_rate": 1e-2, "epochs": 4}
    # one column of PH-VAE is its maximum likelihood: no step is taken, so there is no step size
    choice = search(PhaseTypeVAE, rows()[:, :1])
    assert choice.settings == {}
    assert np.isfinite(choice.trials[0].objective)
