"""Decoders: the algorithm column by column, units, starts, atoms and gradients."""

import math

import numpy as np
import pytest
import torch
from scipy import stats
from torch.func import functional_call

from phvae.decoders import GammaDecoder, GaussianDecoder, LogNormalDecoder, PhaseTypeDecoder, StudentTDecoder
from phvae.distributions import SeriesPhaseType
from phvae.start import roughness

ORIGIN, SCALE = [0.0, 1.0, -3.0], [1.0, 0.25, 16.0]
FAMILIES = [PhaseTypeDecoder, GaussianDecoder, LogNormalDecoder, GammaDecoder, StudentTDecoder]
POSITIVE = [PhaseTypeDecoder, LogNormalDecoder, GammaDecoder]


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def lively(decoder, seed=1):
    """The decoder with a head that lets the latent point speak from the start."""
    with torch.no_grad():
        decoder.network.head.weight.normal_(0, 0.5, generator=seeded(seed))
    return decoder


def built(family, latent_dim=2, **options):
    options = {"origin": ORIGIN, "scale": SCALE, "hidden": (8,), "generator": seeded()} | options
    return lively(family(latent_dim, **options))


def rows(n, seed=0, width=1.0):
    """Rows beyond the origin in every column."""
    uniform = torch.rand((n, 3), dtype=torch.float64, generator=seeded(seed))
    return torch.tensor(ORIGIN) + torch.tensor(SCALE) * uniform**-width


def test_the_law_is_that_of_the_algorithm_column_by_column():
    decoder = built(PhaseTypeDecoder, n_phases=4)
    z = torch.randn((7, 2), generator=seeded(3))
    law = decoder(z).base_dist.base
    h = decoder.network.trunk(z)
    weights = decoder.network.head.weight.view(3, 8, -1)
    bias = decoder.network.head.bias.view(3, 8)
    for j in range(3):
        initial = torch.softmax((h @ weights[j, :4].T + bias[j, :4]).double(), -1)
        steps = torch.log1p(torch.exp((h @ weights[j, 4:].T + bias[j, 4:]).double()))
        rates = torch.stack([steps[:, : i + 1].sum(-1) for i in range(4)], -1) / SCALE[j]
        # the two products of float32 matrices may round differently
        assert torch.allclose(law.initial[:, j], initial, rtol=1e-5)
        assert torch.allclose(law.rates[:, j], rates, rtol=1e-5)
        column = SeriesPhaseType(law.initial[:, j], law.rates[:, j])
        x = rows(7)[:, j]
        assert torch.allclose(decoder(z).base_dist.log_prob(rows(7))[:, j], column.log_prob(x - ORIGIN[j]), rtol=1e-12)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_law_of_the_columns_with_batch_and_event_shape(family):
    decoder, x = built(family), rows(5)
    for shape in ((5,), (4, 5), ()):
        law = decoder(torch.zeros(*shape, 2))
        assert law.batch_shape == shape
        assert law.event_shape == (3,)
        log_prob = law.log_prob(x if shape else x[0])
        assert log_prob.shape == shape
        assert log_prob.dtype == torch.float64
        assert torch.allclose(log_prob, law.base_dist.log_prob(x if shape else x[0]).sum(-1))
        assert law.base_dist.sample((), generator=seeded()).shape == (*shape, 3)
        if law.has_rsample:
            draws = law.rsample((2,))
            assert draws.shape == (2, *shape, 3)
            assert draws.requires_grad
        else:
            with pytest.raises(NotImplementedError, match="carry no gradients; use sample"):
                law.base_dist.rsample()


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("power", [-20, 30])
def test_scaling_the_units_scales_the_law_exactly(family, power):
    factor = 2.0**power
    one = built(family)
    other = built(family, origin=[factor * o for o in ORIGIN], scale=[factor * s for s in SCALE])
    z, x = torch.randn((50, 2), generator=seeded(2)), rows(50)
    jacobian = 3 * power * math.log(2)
    # a power of two changes no mantissa; what is left is rounding of logarithms of size |log factor|
    tolerance = 1e-13 * (1 + abs(jacobian))
    assert torch.allclose(one(z).log_prob(x) - jacobian, other(z).log_prob(factor * x), rtol=1e-11, atol=tolerance)
    assert torch.allclose(one(z).base_dist.log_sf(x), other(z).base_dist.log_sf(factor * x), rtol=1e-11, atol=1e-12)
    assert torch.allclose(factor * one(z).mean, other(z).mean, rtol=1e-12, equal_nan=True)
    assert torch.allclose(factor * one(z).base_dist.isf(1e-4), other(z).base_dist.isf(1e-4), rtol=1e-9)


@pytest.mark.parametrize("family", POSITIVE)
def test_positive_families_end_at_the_origin(family):
    law = built(family)(torch.zeros(2))
    below = torch.tensor(ORIGIN, dtype=torch.float64) - 0.01
    assert law.base_dist.log_prob(below).eq(-math.inf).all()
    assert law.base_dist.sf(below).eq(1).all()
    assert bool((law.base_dist.sample((1000,), generator=seeded()) >= torch.tensor(ORIGIN)).all())


@pytest.mark.parametrize("family", FAMILIES)
def test_gradients_of_every_parameter_are_right(family):
    options = {"n_phases": 3} if family is PhaseTypeDecoder else {}
    decoder = built(family, hidden=(3,), zero_share=[0.0, 0.3, 0.0], **options).double()
    z = torch.randn((4, 2), dtype=torch.float64, generator=seeded(2))
    x = rows(4)
    x[1, 1] = 0.0
    names = [name for name, _ in decoder.named_parameters()]

    def log_prob(*values):
        return functional_call(decoder, dict(zip(names, values, strict=True)), (z,)).log_prob(x)

    values = tuple(value.detach().clone().requires_grad_() for value in decoder.parameters())
    assert torch.autograd.gradcheck(log_prob, values, eps=1e-6, atol=1e-5)


def test_the_start_is_the_law_at_zero_head_weights():
    decoder = PhaseTypeDecoder(2, origin=ORIGIN, scale=SCALE, n_phases=4, hidden=(8,))
    initial = torch.tensor([[0.1, 0.2, 0.3, 0.4], [1e-9, 0.3, 0.3, 0.4 - 1e-9], [0.25, 0.25, 0.25, 0.25]]).double()
    rates = torch.tensor([[0.1, 0.2, 3.0, 50.0], [1e-6, 1.0, 1.0 + 1e-5, 900.0], [1.0, 2.0, 3.0, 4.0]]).double()
    decoder.set_start(initial / initial.sum(-1, keepdim=True), rates)
    with torch.no_grad():
        decoder.network.head.weight.zero_()
    law = decoder(torch.randn((6, 2), generator=seeded())).base_dist.base
    # float32 biases: a logit of size 21 is good to 2e-6, and so is the parameter it stands for
    assert torch.allclose(law.initial, initial / initial.sum(-1, keepdim=True), rtol=4e-6, atol=0)
    assert torch.allclose(law.rates * torch.tensor(SCALE)[:, None], rates, rtol=4e-6, atol=0)


def test_the_first_weights_of_the_head_hardly_move_the_start():
    decoder = PhaseTypeDecoder(4, origin=ORIGIN, scale=SCALE, n_phases=10, generator=seeded())
    z = torch.randn((500, 4), generator=seeded(1))
    log_rates = decoder(z).base_dist.base.rates.detach().log()
    assert float(log_rates.std(0).max()) < 0.1


@pytest.mark.parametrize(
    ("family", "parameters", "names"),
    [
        (GaussianDecoder, (2.0, 3.0), ("loc", "scale")),
        (LogNormalDecoder, (-0.5, 1.25), ("loc", "scale")),
        (GammaDecoder, (0.7, 2.5), ("concentration", "rate")),
        (StudentTDecoder, (0.5, 2.0, 4.0), ("loc", "scale", "degrees")),
    ],
)
def test_the_start_of_the_classical_families(family, parameters, names):
    decoder = family(2, origin=[0.0], scale=[1.0])
    decoder.set_start(*parameters)
    with torch.no_grad():
        decoder.network.head.weight.zero_()
    law = decoder(torch.zeros(1, 2)).base_dist
    law = getattr(law, "base", law)
    assert [float(getattr(law, name).detach()) for name in names] == pytest.approx(list(parameters), rel=1e-6)


@pytest.mark.parametrize(
    ("family", "parameters"),
    [
        (GaussianDecoder, lambda u: stats.norm.fit(u)),
        (LogNormalDecoder, lambda u: stats.norm.fit(np.log(u))),
        (GammaDecoder, lambda u: (stats.gamma.fit(u, floc=0)[0], 1 / stats.gamma.fit(u, floc=0)[2])),
        # median and quartile range of the law are those of the rows
        (
            StudentTDecoder,
            lambda u: (np.median(u), stats.iqr(u) / (2 * stats.t.ppf(0.75, 3)), 3),
        ),
    ],
)
def test_a_start_from_rows_is_a_fit_to_each_column(family, parameters):
    columns = [np.random.default_rng(j).gamma(0.7 + j, size=2000) for j in range(2)]
    units = {"origin": [0.0, 0.0], "scale": [1.0, 1.0], "zero_share": [0.0, 0.5]}
    found, expected = family(2, **units), family(2, **units)
    found.start_from(columns)
    expected.set_start(*np.transpose([parameters(u) for u in columns]))
    assert torch.allclose(found.network.head.bias, expected.network.head.bias, rtol=1e-4, atol=1e-5)


def test_a_family_that_says_no_start_keeps_that_of_its_constructor():
    decoder = built(PhaseTypeDecoder)
    before = decoder.network.head.bias.clone()
    decoder.start_from([np.ones(3)] * 3)
    assert torch.equal(decoder.network.head.bias, before)


@pytest.mark.parametrize("family", FAMILIES)
def test_a_column_with_zeros_starts_with_their_share(family):
    decoder = family(2, origin=ORIGIN, scale=SCALE, zero_share=[0.0, 0.3, 0.9])
    with torch.no_grad():
        decoder.network.head.weight.zero_()
    columns = decoder(torch.zeros(4, 2)).base_dist
    assert columns.log_zero.exp()[0].tolist() == pytest.approx([0.0, 0.3, 0.9], rel=1e-6)
    assert all(value.isfinite().all() for value in decoder.state_dict().values())
    without = family(2, origin=ORIGIN, scale=SCALE, zero_share=[0.0, 0.0, 0.0])
    assert not hasattr(without(torch.zeros(4, 2)).base_dist, "log_zero")


def test_training_on_zeros_leaves_the_column_without_atom_alone():
    decoder = built(PhaseTypeDecoder, zero_share=[0.0, 0.3, 0.0])
    x = rows(4)
    x[:2, 1] = 0.0
    (-decoder(torch.zeros(4, 2)).log_prob(x).mean()).backward()
    gradient = decoder.network.head.bias.grad.view(3, -1)
    assert gradient.isfinite().all()
    assert gradient[[0, 2], -1].eq(0).all()
    assert float(gradient[1, -1]) != 0


def test_roughness_is_that_of_the_start_laws_in_the_mean():
    decoder = built(PhaseTypeDecoder, n_phases=6, zero_share=[0.2, 0.0, 0.0])
    outputs = decoder.outputs(torch.randn((9, 2), generator=seeded()))
    start, steps = outputs.double()[..., :6], torch.log1p(torch.exp(outputs.double()[..., 6:12]))
    assert torch.allclose(decoder.roughness(outputs), roughness(start, steps.log()).mean(0), rtol=1e-10)
    assert built(PhaseTypeDecoder, n_phases=2).roughness(torch.zeros(5, 3, 4)).tolist() == [0.0] * 3
    assert built(GaussianDecoder).roughness(torch.zeros(5, 3, 2)).tolist() == [0.0] * 3


@pytest.mark.parametrize("family", FAMILIES)
def test_without_a_latent_variable_there_is_one_law(family):
    decoder = family(0, origin=ORIGIN, scale=SCALE)
    assert [name for name, value in decoder.named_parameters() if value.numel()] == ["network.head.bias"]
    law = decoder(torch.empty(6, 0))
    assert law.batch_shape == (6,)
    assert torch.equal(law.log_prob(rows(1)), law.log_prob(rows(1))[:1].expand(6))


@pytest.mark.parametrize("family", FAMILIES)
def test_the_generator_alone_decides_the_first_weights(family):
    before = torch.get_rng_state()
    one, same, other = (
        family(2, origin=ORIGIN, scale=SCALE, generator=seeded(seed)).state_dict() for seed in (0, 0, 1)
    )
    assert torch.equal(torch.get_rng_state(), before)
    assert all(torch.equal(one[name], same[name]) for name in one)
    assert not torch.equal(one["network.head.weight"], other["network.head.weight"])


def test_one_phase_is_an_exponential_law():
    law = PhaseTypeDecoder(0, origin=[0.0], scale=[2.0], n_phases=1)(torch.empty(1, 0))
    assert float(law.mean.detach()) == pytest.approx(2.0, rel=1e-6)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"origin": [0.0], "scale": [1.0, 2.0]}, "give one number per column to each"),
        ({"origin": [], "scale": []}, "differ or are empty"),
        ({"origin": [0.0, math.nan], "scale": [1.0, 2.0]}, "is not finite; give the lower end"),
        ({"origin": [0.0, 0.0], "scale": [1.0, 0.0]}, r"scale\[1\] = 0.0; give a positive typical size"),
        ({"origin": [0.0], "scale": [1.0], "zero_share": [1.0]}, r"zero_share\[0\] = 1.0; give a share in \[0, 1\)"),
        ({"origin": [0.0], "scale": [1.0], "n_phases": 0}, "n_phases = 0; a phase-type law has at least one phase"),
        ({"origin": [0.0], "scale": [1.0], "hidden": (8, 0)}, r"hidden\[1\] = 0 is no width"),
    ],
)
def test_mistakes_of_the_constructor_are_named(arguments, message):
    with pytest.raises(ValueError, match=message):
        PhaseTypeDecoder(2, **arguments)


@pytest.mark.parametrize(
    ("initial", "rates", "message"),
    [
        ([[0.5, 0.5, 0.0]], [[1.0, 2.0, 3.0]], r"initial\[0, 2\] = 0.0; a softmax reaches no zero"),
        ([[0.5, 0.25, 0.25]], [[1.0, 1.0, 3.0]], r"step of rates\[0, 1\] = 0.0; give positive, strictly"),
        ([[0.5, 0.5]], [[1.0, 2.0, 3.0]], r"initial has shape \(1, 2\); give one row per column, shape \(1, 3\)"),
    ],
)
def test_mistakes_of_the_start_are_named(initial, rates, message):
    with pytest.raises(ValueError, match=message):
        PhaseTypeDecoder(2, origin=[0.0], scale=[1.0], n_phases=3).set_start(initial, rates)
