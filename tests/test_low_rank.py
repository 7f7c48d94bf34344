"""The low-rank head: what it can say, what it costs, where it starts, and that every face of the model knows it."""

import json

import numpy as np
import pytest
import torch

from phvae import PHVAE, defaults
from phvae.cli import run
from phvae.decoders import GaussianDecoder, PhaseTypeDecoder
from phvae.distributions import MatrixPareto
from phvae.networks import MLP, LowRankHead
from phvae.preprocessing import PositiveScaler
from phvae.priors import StandardNormal
from phvae.signed_decoders import SignedDecoder
from phvae.transformed_decoders import TransformedDecoder
from phvae.vae import VAE, GaussianEncoder

FAMILIES = {
    "phase-type": (PhaseTypeDecoder, {"n_phases": 3}),
    "with zeros": (PhaseTypeDecoder, {"n_phases": 3, "zero_share": [0.2, 0.0, 0.5]}),
    "signed": (SignedDecoder, {"n_phases": 2, "loss_share": [0.5, 0.0, 0.3]}),
    "power tail": (TransformedDecoder, {"n_phases": 2, "family": MatrixPareto}),
    "gaussian": (GaussianDecoder, {}),
}
UNITS = {"origin": [0.0, 1.0, 0.0], "scale": [1.0, 20.0, 0.5]}


def seeded(seed=0):
    return torch.Generator().manual_seed(seed)


def built(name="phase-type", rank=0, latent_dim=2, **options):
    family, own = FAMILIES[name]
    return family(latent_dim, **UNITS, **own, hidden=(8,), head_rank=rank, generator=seeded(), **options)


def points(n=5, latent_dim=2):
    return torch.randn((n, latent_dim), generator=seeded(1))


def test_with_as_many_directions_as_outputs_it_is_any_affine_map():
    full = torch.nn.Linear(6, 3 * 4)
    low = LowRankHead(6, 3, 4, rank=4, generator=seeded())
    with torch.no_grad():
        low.directions.copy_(torch.eye(4))
        low.scores.weight.copy_(full.weight)
        low.bias.copy_(full.bias)
    x = torch.randn((5, 2, 6), generator=seeded(1))
    torch.testing.assert_close(low(x), full(x))


def test_it_is_the_affine_map_of_the_product_of_scores_and_directions():
    low = LowRankHead(6, 3, 4, rank=2, generator=seeded())
    with torch.no_grad():
        low.bias.normal_(generator=seeded(2))
    weight = (low.directions.T @ low.scores.weight.view(3, 2, 6)).view(12, 6)
    x = torch.randn((5, 6), generator=seeded(1))
    torch.testing.assert_close(low(x), x @ weight.T + low.bias)
    torch.testing.assert_close(low.part(x, slice(4, 12)), low(x)[:, 4:])


def test_its_gradients_are_those_of_differences():
    low = LowRankHead(3, 2, 4, rank=2, generator=seeded()).double()
    x = torch.randn((4, 3), dtype=torch.float64, generator=seeded(1)).requires_grad_()
    names, values = zip(*low.named_parameters(), strict=True)

    def outputs(x, *given):
        return torch.func.functional_call(low, dict(zip(names, given, strict=True)), (x,))

    assert torch.autograd.gradcheck(outputs, (x, *values))


@pytest.mark.parametrize("hidden", [(), (8,)])
@pytest.mark.parametrize("held", [1, 3])
def test_inputs_that_are_held_leave_the_network_of_the_rest(hidden, held):
    network = MLP(3, 12, hidden=hidden, head_rank=2, groups=4, generator=seeded())
    x = torch.randn((5, 3), generator=seeded(1))
    x[:, 3 - held :] = x[0, 3 - held :]
    torch.testing.assert_close(network.given(x[0, 3 - held :])(x[:, : 3 - held]), network(x))


@pytest.mark.parametrize("name", FAMILIES)
def test_a_column_on_its_own_is_the_column_of_the_whole(name):
    decoder, z = built(name, rank=2), points()
    whole = decoder(z).base_dist
    x = torch.tensor([0.7, 30.0, 1.0], dtype=torch.float64)
    for j in range(3):
        column = decoder.column(z, j)
        assert column.batch_shape == (5, 1)
        torch.testing.assert_close(column.log_prob(x[j])[:, 0], whole.log_prob(x)[:, j], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", FAMILIES)
def test_without_weights_every_latent_point_decodes_to_the_start(name):
    low, constant = built(name, rank=2), built(name, latent_dim=0)
    with torch.no_grad():
        low.network.head.scores.weight.zero_()
        # the start of a family is its bias; the full head has a random part that the start replaces
        low.network.head.bias.copy_(constant.network.head.bias)
    x = torch.tensor([0.7, 30.0, 1.0], dtype=torch.float64)
    start = constant(torch.zeros(1, 0)).log_prob(x)
    assert torch.equal(low(points()).log_prob(x), start.expand(5))


def test_start_laws_are_exact():
    initial = torch.tensor([[0.2, 0.3, 0.5], [0.1, 0.1, 0.8], [0.6, 0.3, 0.1]], dtype=torch.float64)
    rates = torch.tensor([[0.5, 1.0, 4.0], [0.1, 2.0, 2.5], [1.0, 3.0, 9.0]], dtype=torch.float64)
    decoder = built("with zeros", rank=2)
    with torch.no_grad():
        decoder.network.head.scores.weight.zero_()
    decoder.set_start(initial, rates)
    law = decoder(points()).base_dist
    # to the rounding of the bias in single precision
    torch.testing.assert_close(law.law.base.initial[0], initial, rtol=1e-6, atol=0)
    wanted = rates / torch.tensor(UNITS["scale"], dtype=torch.float64)[:, None]
    torch.testing.assert_close(law.law.base.rates[0], wanted, rtol=1e-6, atol=0)
    torch.testing.assert_close(law.zero_logit[0, [0, 2]].sigmoid(), torch.tensor([0.2, 0.5], dtype=torch.float64))


def test_at_first_outputs_vary_as_much_as_those_of_a_full_head():
    x = torch.randn((200, 64), generator=seeded(1))
    full = LowRankHead(64, 300, 20, rank=20, generator=seeded(2))(x).detach().std()
    for rank in (1, 4, 8):
        # uniform weights of variance 1/(3·64) on inputs of variance 1; a direction of 20 entries varies by a quarter
        spread = float(LowRankHead(64, 300, 20, rank=rank, generator=seeded(3))(x).detach().std())
        assert abs(spread - 3**-0.5) < 0.2
    assert abs(float(full) - 3**-0.5) < 0.1


def heads(n_columns, rank):
    units = {"origin": np.zeros(n_columns), "scale": np.ones(n_columns)}
    decoder = PhaseTypeDecoder(16, n_phases=20, hidden=(64, 64), head_rank=rank, generator=seeded(), **units)
    return sum(value.numel() for value in decoder.network.head.parameters())


def test_its_weights_are_linear_in_columns_with_a_small_slope():
    sizes = [heads(n, 4) for n in (100, 200, 784)]
    # per column: 4 scores of 64 inputs and 40 biases; and 4 directions of 40 entries for all
    assert sizes == [n * (4 * 64 + 40) + 4 * 40 for n in (100, 200, 784)]
    assert heads(784, 0) == 784 * 40 * (64 + 1)
    assert heads(784, 4) < heads(784, 0) / 8


def test_more_directions_than_outputs_are_as_many_as_outputs():
    assert built(rank=50).network.head.rank == 6
    assert built("gaussian", rank=50).network.head.rank == 2


def test_without_a_latent_vector_there_is_nothing_to_move():
    assert isinstance(built(rank=3, latent_dim=0).network.head, torch.nn.Linear)


def test_tables_of_up_to_a_hundred_columns_have_a_full_head_and_wider_ones_have_not():
    assert [defaults.for_size(5000, n)["head_rank"] for n in (1, 100, 101, 784)] == [
        0,
        0,
        defaults.MANY_COLUMNS_RANK,
        defaults.MANY_COLUMNS_RANK,
    ]
    assert defaults.for_size(10**7, 100)["batch_size"] == 4096
    assert defaults.for_size(10**7, 784)["batch_size"] == 512


@pytest.fixture(scope="module")
def table():
    rng = np.random.default_rng(0)
    factor = rng.lognormal(0.0, 1.5, (300, 1))
    x = factor * rng.gamma(2.0, 1.0, (300, 4))
    x[rng.random(x.shape) < 0.2] = 0
    return x


QUICK = {"n_phases": 3, "latent_dim": 2, "hidden": (8,), "epochs": 30, "random_state": 0, "learning_rate": 0.01}


def test_a_fit_learns_through_it_and_comes_back_from_its_file(table, tmp_path):
    start = PHVAE(**{**QUICK, "epochs": 0}, head_rank=2).fit(table)
    model = PHVAE(**QUICK, head_rank=2).fit(table)
    assert model.settings_["head_rank"] == 2
    assert isinstance(model.vae_.decoder.network.head, LowRankHead)
    # the common factor is worth more than half a nat per row; the start knows the columns alone
    assert model.score(table) > start.score(table) + 0.5
    model.save(tmp_path / "model.phvae")
    loaded = PHVAE.load(tmp_path / "model.phvae")
    assert PHVAE.verify(tmp_path / "model.phvae").largest_difference <= 1e-9
    assert np.array_equal(loaded.score_samples(table), model.score_samples(table))
    assert np.array_equal(loaded.sample(5, random_state=1), model.sample(5, random_state=1))
    assert np.array_equal(loaded.sf("x1", [1.0]), model.sf("x1", [1.0]))


@pytest.mark.parametrize("rank", [-1, 1.5, "two", None])
def test_a_rank_that_is_none_is_refused(rank, table):
    with pytest.raises(ValueError, match=r"^head_rank = .*; give a whole number of at least 0 or 'auto'"):
        PHVAE(**QUICK, head_rank=rank).fit(table)
    if rank == -1:
        with pytest.raises(ValueError, match=r"^head_rank = -1; give a positive number of directions, or 0"):
            built(rank=rank)


def test_the_command_line_takes_it(table, tmp_path, capsys):
    place = tmp_path / "table.csv"
    np.savetxt(place, table, delimiter=",", header="a,b,c,d", comments="")
    words = ["fit", str(place), "-o", str(tmp_path / "m.phvae"), "--epochs", "1", "--hidden", "4", "--n-phases", "2"]
    assert run([*words, "--head-rank", "3", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["settings"]["head_rank"] == 3
    assert run([*words, "--head-rank", "-2"]) == 2


def wide(n_columns=784, latent_dim=2):
    units = {"origin": np.zeros(n_columns), "scale": np.ones(n_columns)}
    common = {**units, "hidden": (8,), "generator": seeded()}
    decoder = PhaseTypeDecoder(latent_dim, n_phases=3, head_rank=4, **common)
    return VAE(GaussianEncoder(n_columns, latent_dim, **common), decoder, StandardNormal(latent_dim))


def test_many_columns_are_drawn_in_parts_and_are_the_same_law(monkeypatch):
    model = wide()
    rows = model.generate(600, generator=seeded(5))
    assert rows.shape == (600, 784)
    assert torch.equal(rows, model.generate(600, generator=seeded(5)))
    # 784 times 600 draws: a mean of log(1 + x) within six of its standard errors of that of another draw at once
    monkeypatch.setattr("phvae.vae.ROWS", 10**6)
    others = model.generate(600, generator=seeded(6))
    first, second = (part.log1p().mean(1) for part in (rows, others))
    error = float((first.var() / 600 + second.var() / 600).sqrt())
    assert abs(float(first.mean() - second.mean())) < 6 * error


def test_scaler_of_784_columns_and_a_fit_of_more_than_a_hundred():
    x = np.random.default_rng(0).gamma(1.0, 1.0, (60, 110))
    model = PHVAE(n_phases=2, epochs=1, hidden=(4,), start="geometric", random_state=0).fit(x)
    assert model.settings_["head_rank"] == defaults.MANY_COLUMNS_RANK
    assert model.vae_.decoder.network.head.rank == 4
    assert np.isfinite(model.score_samples(x[:3])).all()
    assert model.transform(x).shape == (60, 16)
    assert model.inverse_transform(model.transform(x[:3])).shape == (3, 110)
    assert len(PositiveScaler().fit(x).scale_) == 110
