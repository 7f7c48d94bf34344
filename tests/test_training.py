"""Training: the objective as documented, the same weights from the same seed, and errors that name the rows."""

import io
import json
import math
import sys
from itertools import pairwise

import pytest
import torch
from torch import nn
from training_run import UNITS, model, rows, same, weights_of

import phvae.training
from phvae.adam import FusedAdam
from phvae.batches import stream
from phvae.decoders import GaussianDecoder, PhaseTypeDecoder
from phvae.history import EpochRecord, History
from phvae.launched import hold_back
from phvae.priors import StandardNormal
from phvae.progress import TrainingBar
from phvae.training import TrainingError, cosine_schedule, step_schedule, train
from phvae.vae import VAE, GaussianEncoder

X, HELD_OUT = rows(300, 1), rows(100, 2)


def law(n_phases=2, latent_dim=0):
    encoder = GaussianEncoder(2, latent_dim, **UNITS)
    decoder = PhaseTypeDecoder(latent_dim, n_phases=n_phases, **UNITS)
    return VAE(encoder, decoder, StandardNormal(latent_dim))


@pytest.fixture
def steps(monkeypatch):
    """What every optimiser step of the test leaves behind: its step size and the weights of the model given."""
    taken = []

    class Watched(FusedAdam):
        def advance(self):
            result = super().advance()
            parameters = [value.detach().clone() for group in self.param_groups for value in group["params"]]
            taken.append((self.param_groups[0]["lr"], parameters))
            return result

    monkeypatch.setattr("phvae.training.FusedAdam", Watched)
    return taken


# The objective.


def test_training_without_a_latent_variable_reaches_the_maximum_likelihood():
    # one phase and no latent variable: the exponential law, whose best rate is one over the mean excess
    trained = law(n_phases=1)
    train(trained, X, epochs=60, batch_size=100, learning_rate=0.05, weight_decay=0.0)
    rates = trained.decoder(torch.empty(1, 0)).base_dist.base.rates.detach()[0, :, 0]
    expected = 1 / (X - torch.tensor(UNITS["origin"])).mean(0)
    # the cosine ends at step size zero; what is left is the noise of batches of a hundred rows
    assert torch.allclose(rates, expected, rtol=0.01)


def test_a_step_follows_the_gradient_of_the_loss_as_documented():
    trained, reference = model(), model()
    weights = torch.rand(300, dtype=torch.float64, generator=torch.Generator().manual_seed(0))
    smoothness = torch.tensor([0.01, 0.02], dtype=torch.float64)
    options = {"learning_rate": 0.01, "weight_decay": 0.1, "clip_norm": 0.5}
    train(
        trained, X, epochs=1, batch_size=300, beta=0.7, smoothness=smoothness, weights=weights,
        schedule=lambda epoch, epochs: 1.0, seed=3, **options,
    )  # fmt: skip
    order = torch.randperm(300, generator=stream("cpu", 3, "order", 0))
    noise = stream("cpu", 3, "noise", 0)
    terms = reference.terms(X[order], generator=noise, penalty=True)
    share = weights[order] / weights.mean()
    loss = -(share * (terms.log_likelihood - 0.7 * terms.kl)).mean() + (smoothness * terms.roughness).sum()
    loss.backward()
    nn.utils.clip_grad_norm_(reference.parameters(), options["clip_norm"])
    for name, parameter in reference.named_parameters():
        decay = options["weight_decay"] if name.endswith("weight") else 0.0
        # the first step of AdamW: moments over their own bias corrections are the gradient and its size
        step = parameter.grad / (parameter.grad.abs() + 1e-8)
        expected = parameter.detach() * (1 - options["learning_rate"] * decay) - options["learning_rate"] * step
        assert torch.allclose(trained.state_dict()[name], expected, rtol=1e-4, atol=1e-6), name


@pytest.mark.parametrize("kinds", [(torch.float64,), (torch.float32, torch.float64)], ids=["double", "both"])
def test_gradients_are_held_back_whatever_the_precision_of_the_weights(kinds):
    weights = [nn.Parameter(torch.zeros(2, dtype=kind)) for kind in kinds]
    optimiser = torch.optim.AdamW(weights, lr=0.1, betas=(0.0, 0.0), eps=1.0, weight_decay=0.0, fused=True)
    for weight in weights:
        weight.grad = torch.full_like(weight, 3.0)
    norm = 3 * math.sqrt(2 * len(kinds))
    assert float(hold_back(optimiser, clip_norm=0.5)) == pytest.approx(norm, rel=1e-6)
    optimiser.step()
    # without moments a step is g / (|g| + eps), g what is left of the gradient
    left = 3 * 0.5 / norm
    for weight in weights:
        assert torch.allclose(weight, torch.full_like(weight, -0.1 * left / (left + 1)), rtol=1e-5)


def test_named_parameters_take_steps_of_their_own_size():
    before, trained = weights_of(model()), model()
    train(
        trained, X, epochs=1, batch_size=300, learning_rate=1e-3, weight_decay=0.0, schedule=lambda epoch, epochs: 1.0,
        rate_factors={"prior": 10.0, "prior.logits": 0.5},
    )  # fmt: skip
    for name, factor in (("prior.means", 10), ("prior.logits", 5), ("encoder.network.head.bias", 1)):
        # the first step of AdamW is the step size in every entry with a gradient
        moved = (trained.state_dict()[name] - before[name]).abs()
        assert float(moved.max()) == pytest.approx(1e-3 * factor, rel=1e-3), name
    with pytest.raises(ValueError, match="rate_factors names 'priors', with which no parameter"):
        train(trained, X, epochs=1, rate_factors={"priors": 2.0})


def test_the_warm_up_raises_the_weight_of_the_divergence(monkeypatch):
    betas = []

    class Terms(VAE):
        def terms(self, x, **options):
            terms = super().terms(x, **options)
            terms.kl.register_hook(lambda gradient: betas.append(float(gradient.sum())))
            return terms

    base = model()
    trained = Terms(base.encoder, base.decoder, base.prior)
    train(trained, X, epochs=4, batch_size=150, beta=0.5, kl_warmup=2.0)
    assert betas == pytest.approx([0.0, 0.125, 0.25, 0.375, 0.5, 0.5, 0.5, 0.5])


def test_the_step_schedule_divides_the_step_size_by_ten_every_ten_epochs(steps):
    train(law(), X, epochs=25, batch_size=150, learning_rate=0.01, schedule=step_schedule)
    assert [rate for rate, _ in steps] == pytest.approx([0.01] * 20 + [0.001] * 20 + [0.0001] * 10)


def test_the_cosine_schedule_rises_and_falls(steps):
    train(law(), X, epochs=20, batch_size=30, learning_rate=1.0, schedule=cosine_schedule)
    rates = [rate for rate, _ in steps]
    assert rates[:11] == pytest.approx([k / 10 for k in range(11)])
    assert all(before > after for before, after in pairwise(rates[10:]))
    assert rates[10 + 95] == pytest.approx(0.5)
    assert rates[-1] < 1e-3


def test_weights_count_like_repeated_rows():
    counts = torch.randint(1, 4, (300,), generator=torch.Generator().manual_seed(0))
    weighted, repeated = law(n_phases=3), law(n_phases=3)
    repeated.load_state_dict(weighted.state_dict())
    options = {"epochs": 40, "batch_size": 10_000, "learning_rate": 0.02, "weight_decay": 0.0}
    train(weighted, X, weights=counts.double(), **options)
    train(repeated, X.repeat_interleave(counts, 0), **options)
    # one batch and no noise: the two losses differ by rounding alone
    for name, value in weighted.state_dict().items():
        assert torch.allclose(value, repeated.state_dict()[name], rtol=1e-4, atol=1e-4), name


def test_epochs_are_recorded_with_their_means():
    trained = model()
    records = []
    history = train(
        trained, X, epochs=3, batch_size=64, learning_rate=0.01, validation=HELD_OUT, callback=records.append
    )
    assert list(history) == records
    assert [record.epoch for record in history] == [1, 2, 3]
    assert len(history) == 3
    for record in history:
        assert record.elbo == record.log_likelihood - record.kl
        assert record.seconds > 0
    noise = stream("cpu", 0, "held out", 2)
    with torch.no_grad():
        assert history[2].validation_elbo == float(trained.elbo(HELD_OUT, generator=noise).mean())
    assert history[0].learning_rate == pytest.approx(0.01 * cosine_schedule(4 / 5, 3))
    columns = history.to_dict()
    assert list(columns) == list(EpochRecord.__dataclass_fields__)
    assert columns["kl"] == [record.kl for record in history]


def test_frozen_weights_have_the_mean_terms_of_the_epoch():
    trained = model()
    history = train(trained, X, epochs=1, batch_size=64, schedule=lambda epoch, epochs: 0.0)
    order = torch.randperm(300, generator=stream("cpu", 0, "order", 0))
    totals = torch.zeros(2, dtype=torch.float64)
    with torch.no_grad():
        for step, chosen in enumerate(order.split(64)):
            terms = trained.elbo_terms(X[chosen], generator=stream("cpu", 0, "noise", step))
            totals += torch.stack(terms).sum(-1)
    assert history[0].log_likelihood == pytest.approx(float(totals[0]) / 300, rel=1e-12)
    assert history[0].kl == pytest.approx(float(totals[1]) / 300, rel=1e-12)


@pytest.mark.gpu
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_a_gpu_trains_to_a_similar_bound():
    # other noise on the other device: one standard error of the mean bound of 300 rows is about 0.06
    options = {"epochs": 20, "batch_size": 64, "validation": HELD_OUT, "smoothness": 1e-3, "weights": torch.ones(300)}
    bounds = [train(model().to(device), X, **options)[-1].elbo for device in ("cpu", "cuda")]
    assert bounds[0] == pytest.approx(bounds[1], abs=0.3)


# Early stopping.


def test_early_stopping_brings_back_the_best_weights():
    trained, after = model(), {}

    def keep(record):
        after[record.epoch] = weights_of(trained)

    # thirty rows are learnt by heart: soon the held-out bound only falls
    history = train(
        trained, X[:30], epochs=400, batch_size=30, learning_rate=0.03, validation=HELD_OUT, patience=5, callback=keep,
        schedule=lambda epoch, epochs: 1.0,
    )  # fmt: skip
    bounds = history.to_dict()["validation_elbo"]
    assert history.stopped_early
    assert bounds[history.best_epoch - 1] == max(bounds)
    assert len(history) == history.best_epoch + 5 < 400
    assert same(weights_of(trained), after[history.best_epoch])
    assert not same(after[history.best_epoch], after[len(history)])


def test_without_patience_the_last_weights_stay():
    patient, plain = model(), model()
    history = train(patient, X, epochs=3, batch_size=64, validation=HELD_OUT)
    train(plain, X, epochs=3, batch_size=64)
    assert not history.stopped_early
    assert history.best_epoch == 1 + max(range(3), key=history.to_dict()["validation_elbo"].__getitem__)
    assert same(weights_of(patient), weights_of(plain))


# Determinism.


def test_the_seed_alone_decides_the_weights():
    results = []
    for global_seed, seed in ((1, 5), (2, 5), (2, 6)):
        torch.manual_seed(global_seed)
        before = torch.get_rng_state()
        trained = model()
        train(trained, X, epochs=2, batch_size=64, validation=HELD_OUT, seed=seed)
        assert torch.equal(torch.get_rng_state(), before)
        results.append(weights_of(trained))
    assert same(results[0], results[1])
    assert not same(results[1], results[2])


@pytest.fixture
def _two_threads():
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    yield
    torch.set_num_threads(before)


@pytest.mark.usefixtures("_two_threads")
def test_small_batches_train_on_one_thread_and_give_the_others_back():
    seen, before = [], 2
    train(model(), X, epochs=1, batch_size=64, callback=lambda record: seen.append(torch.get_num_threads()))
    train(model(), X, epochs=1, batch_size=100_000, callback=lambda record: seen.append(torch.get_num_threads()))
    assert seen == [1, before]
    with pytest.raises(ZeroDivisionError):
        train(model(), X, epochs=1, batch_size=64, callback=lambda record: 1 / 0)
    assert torch.get_num_threads() == before


def test_watching_a_run_does_not_change_it(tmp_path):
    watched, plain = model(), model()
    train(
        watched, X, epochs=2, batch_size=64, validation=HELD_OUT, callback=lambda record: None, progress=False,
        checkpoint=tmp_path / "run", checkpoint_seconds=0.0,
    )  # fmt: skip
    train(plain, X, epochs=2, batch_size=64)
    assert same(weights_of(watched), weights_of(plain))


# Losses that are no numbers.


def test_a_loss_that_is_not_finite_names_the_rows_and_keeps_the_weights(steps):
    x = X.clone()
    x[[17, 203], 1] = 0.5  # below the origin: probability zero
    trained = model()
    with pytest.raises(TrainingError) as caught:
        train(trained, x, epochs=2, batch_size=32, seed=4)
    order = torch.randperm(300, generator=stream("cpu", 4, "order", 0)).tolist()
    first = min((17, 203), key=order.index)
    batch = order.index(first) // 32
    message = str(caught.value)
    assert message.startswith(f"epoch 1, batch {batch + 1}: the loss is not finite for row")
    assert f" {first} of x, the first being {x[first].tolist()};" in message
    assert len(steps) == batch > 0
    sums = sorted(float(value.detach().sum()) for value in trained.parameters())
    assert sums == sorted(float(value.sum()) for value in steps[-1][1])


def test_a_gradient_that_is_not_finite_names_the_row():
    class Cliff(GaussianDecoder):
        """Finite laws, but the slope in row 42 of a batch is infinite."""

        def law(self, outputs):
            if outputs.requires_grad:
                row = torch.arange(len(outputs))[:, None, None] == 42
                outputs.register_hook(lambda slope: torch.where(row & (slope != 0), math.inf, slope))
            return super().law(outputs)

    trained = VAE(GaussianEncoder(2, 2, **UNITS), Cliff(2, **UNITS), StandardNormal(2))
    order = torch.randperm(300, generator=stream("cpu", 0, "order", 0)).tolist()
    with pytest.raises(TrainingError, match=f"the gradient of the loss is not finite for row {order[42]} of x"):
        train(trained, X, epochs=1, batch_size=300)


def test_held_out_rows_without_probability_are_named():
    validation = HELD_OUT.clone()
    validation[7, 1] = 0.25
    with pytest.raises(TrainingError, match=r"epoch 1: the ELBO of held-out row 7 is -inf; are their values below"):
        train(model(), X, epochs=2, validation=validation)


def test_twelve_faulty_rows_are_listed_in_part():
    assert phvae.training._listed(list(range(12))) == "rows 0, 1, 2, 3, 4, 5, 6, 7, 8, 9 and 2 more"
    assert phvae.training._listed([3]) == "row 3"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"epochs": 0}, "epochs = 0 and batch_size = 32 must both be at least 1"),
        ({"patience": 3}, "patience = 3 needs held-out rows"),
        ({"x": torch.zeros(5, 3)}, r"x has shape \(5, 3\); give at least one row of 2 columns"),
        ({"x": torch.zeros(0, 2)}, r"x has shape \(0, 2\)"),
        ({"x": torch.tensor([[1.0, math.nan]])}, r"x\[0, 1\] = nan is not finite; drop or impute"),
        ({"validation": torch.tensor([[1.0, math.inf]])}, r"validation\[0, 1\] = inf is not finite"),
        ({"weights": torch.ones(3)}, r"weights has shape \(3,\); give one weight per row, shape \(300,\)"),
        ({"weights": -torch.ones(300)}, "weights must be finite, non-negative and not all zero"),
    ],
)
def test_mistakes_are_named(change, message):
    options = {"x": X, "epochs": 1, "batch_size": 32} | change
    with pytest.raises(ValueError, match=message):
        train(model(), **options)


# What a person sees.


def test_a_run_is_silent_where_there_is_no_terminal(capfd):
    train(model(), X, epochs=1)
    assert capfd.readouterr() == ("", "")


def test_the_bar_shows_loss_divergence_validation_rate_and_time(monkeypatch):
    screen = io.StringIO()
    monkeypatch.setattr(sys, "stderr", screen)
    monkeypatch.setenv("COLUMNS", "160")
    with TrainingBar(10, batch_size=32, shown=True) as bar:
        assert bar.due
        bar.update(4, epoch=2, loss=1.25, kl=0.125)
        assert not bar.due
        bar.validated(-2.5)
    for part in ("epoch 2", "loss 1.2500", "KL 0.125 nats", "held-out ELBO -2.5000", "4/10", "rows/s"):
        assert part in screen.getvalue()


def test_a_history_is_a_table_that_json_takes():
    history = History((EpochRecord(1, -1.0, -0.5, 0.5, None, 0.1, 2.0),))
    assert json.loads(json.dumps(history.to_dict()))["validation_elbo"] == [None]
