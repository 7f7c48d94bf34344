"""A mistake is one line that names argument, position and value; without validation it is NaN in that row alone."""

import inspect
import re

import numpy as np
import pytest
import torch
from distribution_cases import CYCLE

from phvae.distributions import PhaseType, SeriesPhaseType, mixture
from phvae.distributions.base import AbsorptionTime

GOOD = {
    SeriesPhaseType: ([0.3, 0.2, 0.5], [0.5, 2.0, 2.0]),
    PhaseType: CYCLE,
}
KINDS = pytest.mark.parametrize("kind", GOOD, ids=lambda kind: kind.__name__)

BAD_INITIAL = {
    "negative": ([0.6, -0.1, 0.5], r"initial\[1, 1\] = -0.1 is not a probability"),
    "missing": ([0.5, 0.5, np.nan], r"initial\[1, 2\] = nan is not a probability"),
    "too much": ([0.6, 0.1, 0.5], r"sum of initial\[1\] = 1.2\d* is not one"),
    "too little": ([0.1, 0.1, 0.1], r"sum of initial\[1\] = 0.3\d* is not one"),
    "infinite": ([np.inf, 0.5, 0.5], r"sum of initial\[1\] = inf is not one"),
}
BAD_RATES = {
    "zero": ([0.0, 1.0, 2.0], r"rates\[1, 0\] = 0.0 is not a positive finite rate"),
    "negative": ([1.0, -1.0, 2.0], r"rates\[1, 1\] = -1.0 is not a positive finite rate"),
    "missing": ([1.0, 2.0, np.nan], r"rates\[1, 2\] = nan is not a positive finite rate"),
    "infinite": ([1.0, 2.0, np.inf], r"rates\[1, 2\] = inf is not a positive finite rate"),
    "decreasing": ([1.0, 3.0, 2.0], r"rates\[1, 2\] = 2.0 is smaller than the rate before it"),
}
BAD_GENERATOR = {
    "negative jump": ([[-5, 3, -1], [1, -3, 1], [4, 2, -7]], r"generator\[1, 0, 2\] = -1.0 is a negative jump rate"),
    "positive row": ([[-5, 3, 1], [1, -2, 2], [4, 2, -7]], r"row sum of generator\[1, 1\] = 1.0 is positive"),
    "positive diagonal": ([[-5, 3, 1], [1, 3, 1], [4, 2, -7]], r"generator\[1, 1, 1\] = 3.0 is a phase that is never"),
    "never left": ([[-5, 3, 1], [0, 0, 0], [4, 2, -7]], r"generator\[1, 1, 1\] = 0.0 is a phase that is never left"),
    "missing": ([[-5, np.nan, 1], [1, -3, 1], [4, 2, -7]], r"generator\[1, 0, 1\] = nan is not finite"),
    "infinite": ([[-np.inf, 3, 1], [1, -3, 1], [4, 2, -7]], r"generator\[1, 0, 0\] = -inf is not finite"),
    "trapped": (
        [[-5, 3, 1], [0, -1, 1], [0, 1, -1]],
        r"generator\[1, 1, 1\] = -1.0 belongs to a phase that is never absorbed",
    ),
}

# Every public method or property that answers for each row, with sound arguments.
ANSWERS = {
    "log_prob": lambda law: law.log_prob(1.5),
    "log_sf": lambda law: law.log_sf(1.5),
    "log_cdf": lambda law: law.log_cdf(1.5),
    "sf": lambda law: law.sf(1.5),
    "cdf": lambda law: law.cdf(1.5),
    "hazard": lambda law: law.hazard(1.5),
    "icdf": lambda law: law.icdf(0.3),
    "isf": lambda law: law.isf(1e-9),
    "mean": lambda law: law.mean,
    "variance": lambda law: law.variance,
    "stddev": lambda law: law.stddev,
    "moment": lambda law: law.moment(2),
    "laplace": lambda law: law.laplace(0.5),
    "mean_excess": lambda law: law.mean_excess(1.5),
    "log_excess": lambda law: law.log_excess(1.5),
    "log_interval": lambda law: law.log_interval(1.0, 2.5) + law.log_interval(1.0, 1.01),
    "cvar": lambda law: law.cvar(0.9),
    "entropy": lambda law: law.entropy(),
    "perplexity": lambda law: law.perplexity(),
    "tail_rate": lambda law: law.tail_rate,
    "scaled": lambda law: law.scaled(2.0).log_prob(1.5),
    "phase_posterior": lambda law: (
        law.phase_posterior(1.5).time.sum(-1) + law.phase_posterior(1.5, "exceeds").entry[..., 0]
    ),
    "expand": lambda law: law.expand((2, 3)).log_prob(1.5)[1],
    "to_phase_type": lambda law: law.to_phase_type().log_prob(1.5),
    "to_arrays": lambda law: torch.as_tensor(law.to_arrays()[0].sum(-1) + law.to_arrays()[1].sum((-1, -2))),
    "minimum": lambda law: law.minimum(SeriesPhaseType([1.0], [1.0])).log_prob(1.5),
    "maximum": lambda law: law.maximum(SeriesPhaseType([1.0], [1.0])).log_prob(1.5),
    "mixture": lambda law: mixture([0.5, 0.5], [SeriesPhaseType([1.0], [1.0]), law]).mean,
    "sum": lambda law: (law + SeriesPhaseType([1.0], [1.0])).log_prob(1.5),
    "limits at zero": lambda law: law.log_prob(0.0) + law.log_sf(0.0) + law.mean_excess(0.0) + law.hazard(0.0),
    "limits at infinity": lambda law: law.sf(torch.inf) + law.hazard(torch.inf) + law.laplace(torch.inf),
}
DRAWS = {
    "sample": lambda law, seed: law.sample((40,), seed),
    "rsample": lambda law, seed: law.rsample((40,), seed),
    "sample of a mixture": lambda law, seed: mixture([0.5, 0.5], [SeriesPhaseType([1.0], [1.0]), law]).sample(
        (40,), seed
    ),
    "sample of a sum": lambda law, seed: (SeriesPhaseType([1.0], [1.0]) + law).sample((40,), seed),
}
OTHER = {"sample_n", "has_enumerate_support", "enumerate_support", "has_rsample", "support", "arg_constraints"} | {
    # shapes, switches and constructors
    *("batch_shape", "event_shape", "set_default_validate_args", "from_arrays", "fit", "mixture", "to_scipy", "mode"),
    *("to_series", "initial", "rates", "generator", "exit_rates"),
}


def three(kind, name, bad):
    """A batch of three laws whose middle row has the fault."""
    parameters = dict(zip(kind.arg_constraints, GOOD[kind], strict=True))
    rows = {key: [value, bad if key == name else value, value] for key, value in parameters.items()}
    return {key: torch.tensor(value, dtype=torch.float64) for key, value in rows.items()}


def faults(kind):
    second = ("rates", BAD_RATES) if kind is SeriesPhaseType else ("generator", BAD_GENERATOR)
    for name, table in (("initial", BAD_INITIAL), second):
        for label, (bad, message) in table.items():
            yield pytest.param(kind, name, bad, message, id=f"{kind.__name__} {name} {label}")


FAULTS = pytest.mark.parametrize(("kind", "name", "bad", "message"), [p for kind in GOOD for p in faults(kind)])


def single_line(caught):
    text = str(caught.value)
    assert "\n" not in text
    assert re.search("; ", text), "what is wrong; what to do"


def test_every_public_method_is_tried():
    public = {name for name in dir(AbsorptionTime) if not name.startswith("_")}
    for kind in GOOD:
        public |= {name for name in dir(kind) if not name.startswith("_")}
    assert public - set(ANSWERS) - set(DRAWS) - OTHER == set()


@FAULTS
def test_a_bad_parameter_is_named_with_place_and_value(kind, name, bad, message):
    with pytest.raises(ValueError, match=message) as caught:
        kind(**three(kind, name, bad))
    single_line(caught)


@FAULTS
def test_a_bad_parameter_that_is_being_trained_gets_the_same_message(kind, name, bad, message):
    parameters = {key: value.requires_grad_() for key, value in three(kind, name, bad).items()}
    with pytest.raises(ValueError, match=message):
        kind(**parameters)


@FAULTS
def test_without_validation_a_bad_row_is_nan_everywhere_and_alone(kind, name, bad, message):
    law = kind(**three(kind, name, bad), validate_args=False)
    sound = kind(*GOOD[kind])
    for label, answer in ANSWERS.items():
        found = answer(law)
        assert found.isnan().tolist() == [False, True, False], label
        if label == "to_arrays":
            continue
        expected = answer(sound.expand((3,)))
        torch.testing.assert_close(found[[0, 2]], expected[[0, 2]], rtol=1e-9, atol=1e-12, msg=label)


@FAULTS
def test_without_validation_draws_of_a_bad_row_are_nan_alone(kind, name, bad, message):
    law = kind(**three(kind, name, bad), validate_args=False)
    for label, draw in DRAWS.items():
        found = draw(law, torch.Generator().manual_seed(0))
        assert bool(found[:, 1].isnan().all()), label
        assert bool((found[:, [0, 2]] > 0).all()), label


@KINDS
def test_gradients_of_the_neighbours_are_untouched(kind):
    name, bad = ("rates", [3.0, 2.0, 1.0]) if kind is SeriesPhaseType else ("generator", BAD_GENERATOR["trapped"][0])
    parameters = {key: value.requires_grad_() for key, value in three(kind, name, bad).items()}
    law = kind(**parameters, validate_args=False)
    clean = {key: value.detach()[0].clone().requires_grad_() for key, value in parameters.items()}
    alone = kind(**clean)
    for answer in (
        lambda law: law.log_prob(1.5),
        lambda law: law.log_sf(1.5),
        lambda law: law.isf(0.01),
        lambda law: law.mean_excess(2.0),
        lambda law: law.variance,
        lambda law: law.laplace(0.5),
        lambda law: law.entropy(),
    ):
        # the good rows alone enter the loss, as a training step that drops the bad ones would have it
        slopes = torch.autograd.grad(answer(law)[[0, 2]].sum(), list(parameters.values()), retain_graph=True)
        expected = torch.autograd.grad(answer(alone), list(clean.values()), retain_graph=True)
        for slope, truth in zip(slopes, expected, strict=True):
            torch.testing.assert_close(slope[0], truth, rtol=1e-9, atol=1e-12)
            torch.testing.assert_close(slope[2], truth, rtol=1e-9, atol=1e-12)


POINTS = {
    "log_prob": ("value", lambda law, v: law.log_prob(v)),
    "log_sf": ("value", lambda law, v: law.log_sf(v)),
    "log_cdf": ("value", lambda law, v: law.log_cdf(v)),
    "sf": ("value", lambda law, v: law.sf(v)),
    "cdf": ("value", lambda law, v: law.cdf(v)),
    "hazard": ("value", lambda law, v: law.hazard(v)),
    "mean_excess": ("threshold", lambda law, v: law.mean_excess(v)),
    "phase_posterior": ("value", lambda law, v: law.phase_posterior(v).entry.sum(-1)),
    "phase_posterior exceeds": ("value", lambda law, v: law.phase_posterior(v, "exceeds").time.sum(-1)),
    "laplace": ("s", lambda law, v: law.laplace(v)),
    "scaled": ("factor", lambda law, v: law.scaled(v).log_prob(1.5)),
}
LEVELS = {
    "icdf": ("value", lambda law, v: law.icdf(v)),
    "isf": ("value", lambda law, v: law.isf(v)),
    "cvar": ("level", lambda law, v: law.cvar(v)),
}


@KINDS
@pytest.mark.parametrize("method", POINTS)
@pytest.mark.parametrize("bad", [-1.0, -1e-300, np.nan, -np.inf])
def test_a_bad_observation_is_named_and_without_validation_nan_alone(kind, method, bad):
    argument, call = POINTS[method]
    values = [[1.5], [bad], [2.5]]
    with pytest.raises(ValueError, match=rf"{argument}\[1, 0\] = {re.escape(str(bad))} is") as caught:
        call(kind(*GOOD[kind]), values)
    single_line(caught)
    found = call(kind(*GOOD[kind], validate_args=False), values)
    assert found.isnan().flatten().tolist() == [False, True, False]
    clean = call(kind(*GOOD[kind]), [[1.5], [2.5]])
    torch.testing.assert_close(found[[0, 2]], clean, rtol=1e-12, atol=1e-13)


@KINDS
@pytest.mark.parametrize("method", LEVELS)
@pytest.mark.parametrize("bad", [-1e-300, 1.0000001, np.nan, np.inf])
def test_a_bad_level_is_named_and_without_validation_nan_alone(kind, method, bad):
    argument, call = LEVELS[method]
    values = [0.2, bad, 0.7]
    with pytest.raises(ValueError, match=rf"{argument}\[1\] = {re.escape(str(bad))} is not a probability") as caught:
        call(kind(*GOOD[kind]), values)
    single_line(caught)
    found = call(kind(*GOOD[kind], validate_args=False), values)
    assert found.isnan().tolist() == [False, True, False]
    torch.testing.assert_close(found[[0, 2]], call(kind(*GOOD[kind]), [0.2, 0.7]), rtol=1e-9, atol=0)


@KINDS
@pytest.mark.parametrize("bad", [0.0, np.inf])
def test_a_factor_is_positive_and_finite(kind, bad):
    with pytest.raises(ValueError, match=rf"factor = {bad} is not a positive finite number"):
        kind(*GOOD[kind]).scaled(bad)
    assert bool(kind(*GOOD[kind], validate_args=False).scaled(bad).mean.isnan())


@KINDS
@pytest.mark.parametrize("method", {**POINTS, **LEVELS})
def test_an_empty_batch_of_points_is_refused(kind, method):
    argument, call = {**POINTS, **LEVELS}[method]
    with pytest.raises(ValueError, match=rf"{argument} has shape \(0,\): an empty batch; give at least one"):
        call(kind(*GOOD[kind]), [])


@KINDS
@pytest.mark.parametrize("method", {**POINTS, **LEVELS})
def test_points_that_do_not_broadcast_are_refused(kind, method):
    argument, call = {**POINTS, **LEVELS}[method]
    law = kind(*GOOD[kind]).expand((3,))
    for validate in (True, False):
        law._validate_args = validate
        with pytest.raises(ValueError, match=rf"{argument} has shape \(2,\) and the batch of laws \(3,\); make"):
            call(law, [0.5, 0.5])


@KINDS
def test_shapes_that_do_not_fit_are_refused_with_both_shapes(kind):
    name = "rates" if kind is SeriesPhaseType else "generator"
    good = torch.tensor(GOOD[kind][1])
    for validate in (True, False):
        with pytest.raises(
            ValueError, match=rf"initial has shape \(2,\) and {name} has shape .*different numbers of ph"
        ):
            kind([0.5, 0.5], good, validate_args=validate)
        with pytest.raises(ValueError, match=r"initial has shape \(\); it must be \(..., m\)"):
            kind(1.0, good, validate_args=validate)
        with pytest.raises(ValueError, match=r"initial has shape \(0,\): no phases"):
            kind([], good[:0], validate_args=validate)
        with pytest.raises(ValueError, match=r"initial has shape \(0, 3\): an empty batch; give at least one law"):
            kind(torch.empty(0, 3), good, validate_args=validate)
        with pytest.raises(ValueError, match=rf"{name} has shape \(0, 3.*an empty batch; give at least one law"):
            kind(GOOD[kind][0], good[None][:0], validate_args=validate)
        with pytest.raises(ValueError, match="the batch axes do not broadcast"):
            kind(torch.full((2, 3), 1 / 3), good.expand(4, *good.shape), validate_args=validate)


def test_a_generator_is_square():
    with pytest.raises(ValueError, match=r"generator has shape \(2, 3\); it must be \(..., m, m\)"):
        PhaseType([0.5, 0.5], torch.zeros(2, 3))
    with pytest.raises(ValueError, match=r"generator has shape \(2,\); it must be \(..., m, m\)"):
        PhaseType([0.5, 0.5], torch.zeros(2))


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("1.5", "initial is not an array of numbers"),
        (["a", "b"], "initial is not an array of numbers"),
        ([[1.0], [0.5, 0.5]], "initial is not an array of numbers"),
        (object(), "initial is not an array of numbers"),
        ([0.5 + 0.0j, 0.5], "initial is not an array of numbers"),
        (torch.tensor([0.5 + 0.0j, 0.5]), r"initial has dtype torch.complex64; pass real numbers"),
        (torch.tensor([True, False]), r"initial has dtype torch.bool; pass real numbers"),
    ],
)
def test_what_is_no_array_of_numbers_is_refused(value, message):
    with pytest.raises(ValueError, match=message) as caught:
        SeriesPhaseType(value, [1.0, 2.0])
    assert "\n" not in str(caught.value)
    law = SeriesPhaseType([1.0], [1.0])
    with pytest.raises(ValueError, match=message.replace("initial", "value")):
        law.log_prob(value)


@pytest.mark.parametrize("order", [-1, 1.5, "2", True, None])
def test_a_moment_has_a_whole_order(order):
    with pytest.raises(ValueError, match=f"order = {re.escape(repr(order))} is not the order of a moment"):
        SeriesPhaseType([1.0], [1.0]).moment(order)
    assert float(SeriesPhaseType([1.0], [2.0]).moment(np.int64(2))) == 0.5


def test_equal_rates_and_integers_are_fine():
    assert float(SeriesPhaseType([1, 0], [2, 2]).mean) == 1.0
    assert float(PhaseType([1, 0], [[-2, 2], [0, -2]]).mean) == 1.0


def test_weights_of_a_mixture_follow_the_same_rule():
    laws = [SeriesPhaseType([1.0], [1.0]), SeriesPhaseType([1.0], [2.0])]
    weights = [[0.5, 0.5], [0.5, 0.6]]
    with pytest.raises(ValueError, match=r"sum of weights\[1\] = 1.1 is not one"):
        mixture(weights, laws)
    loose = mixture(weights, laws, validate_args=False)
    assert loose.log_prob(1.0).isnan().tolist() == [False, True]
    assert loose.sample((5,)).isnan().any(0).tolist() == [False, True]


def test_a_bad_row_does_not_keep_the_others_from_their_series_form():
    generator = torch.tensor([[[-4.0, 0.0], [0.0, -1.0]], [[-4.0, 5.0], [0.0, -1.0]]])
    law = PhaseType([0.5, 0.5], generator, validate_args=False).to_series()
    assert law.log_prob(1.0).isnan().tolist() == [False, True]
    assert law.initial[0].tolist() == [0.375, 0.625]


def test_the_switch_of_torch_is_followed():
    before = torch.distributions.Distribution._validate_args
    try:
        torch.distributions.Distribution.set_default_validate_args(False)
        assert bool(SeriesPhaseType([0.5, 0.6], [1.0, 2.0]).mean.isnan())
        torch.distributions.Distribution.set_default_validate_args(True)
        with pytest.raises(ValueError, match="sum of initial"):
            SeriesPhaseType([0.5, 0.6], [1.0, 2.0])
    finally:
        torch.distributions.Distribution.set_default_validate_args(before)


def test_messages_do_not_depend_on_the_constructor():
    """What the constructors declare is what they check."""
    for kind in GOOD:
        assert list(kind.arg_constraints) == list(inspect.signature(kind).parameters)[:2]
        for name, constraint in kind.arg_constraints.items():
            for _, given_name, bad, _ in (p.values for p in faults(kind)):
                if given_name == name:
                    assert constraint.check(three(kind, name, bad)[name]).tolist() == [True, False, True]
