"""The algorithms against formulas in float64 that share no code with them; no process, no loader.

Weights are trained on a quadratic whose gradient is `H (w - b)`; a worker's call of a host is one
of an object here.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from fourmin.recipe.configuration import Configuration
from fourmin.recipe.presets import load_preset
from fourmin.training.algorithms.downpour import Downpour
from fourmin.training.algorithms.easgd import ElasticAveraging
from fourmin.training.algorithms.hogwild import Hogwild, share
from fourmin.training.algorithms.method import Method, Surroundings, flat, spread
from fourmin.training.algorithms.servers import Server, parts
from fourmin.training.optim.build import build_optimizer, set_learning_rate

SIZE = 15
RATES = [0.1, 0.2, 0.05, 0.3, 0.1, 0.02, 0.1, 0.4, 0.1, 0.1, 0.05, 0.2]
RANDOM = np.random.default_rng(20121203)
HALF = RANDOM.normal(size=(SIZE, SIZE))
H = HALF @ HALF.T / SIZE + np.eye(SIZE)
B = RANDOM.normal(size=SIZE)
START = RANDOM.normal(size=SIZE)


def network() -> nn.Module:
    """Weights (3, 3) and (3, 1), and biases of 3 each, at START."""
    made = nn.Sequential(nn.Linear(3, 3), nn.Linear(1, 3, bias=False))
    spread(torch.tensor(START, dtype=torch.float32), list(made.parameters()))
    return made


def configured(**changes: Any) -> Configuration:
    plain = {"weight_decay": 0.0, "momentum": 0.0, "procs_per_node": 1, "optimizer": "sgd"}
    return replace(load_preset("digits"), division="open", **plain | changes)


def gradient(model: nn.Module) -> Tensor:
    weights = flat(list(model.parameters())).double().numpy()
    return torch.tensor(H @ (weights - B), dtype=torch.float32)


def step(method: Method, model: nn.Module, rate: float) -> None:
    """One step of a worker, as `worker.Worker` takes it."""
    method.before()
    finish(method, model, rate)


def finish(method: Method, model: nn.Module, rate: float) -> None:
    """All of it that comes after `before`."""
    parameters = list(model.parameters())
    sizes = [one.numel() for one in parameters]
    for parameter, part in zip(parameters, gradient(model).split(sizes), strict=True):
        parameter.grad = part.view(parameter.shape).clone()
    set_learning_rate(method.optimizer, rate)
    method.optimizer.step()
    method.after(rate)


class Hosts:
    """Servers of one set of weights, and what was asked of them, in order."""

    def __init__(self, config: Configuration) -> None:
        self.model = network()
        optimizer = build_optimizer(self.model, config)
        self.servers = [Server(own, optimizer) for own in parts(self.model, config.servers)]
        self.asked: list[tuple[int, str, tuple[Any, ...]]] = []

    def call(self, host: int, name: str, method: str, *arguments: Any) -> Any:
        assert name == "weights"
        self.asked.append((host, method, arguments))
        return getattr(self.servers[host], method)(*arguments)

    @property
    def weights(self) -> np.ndarray:
        return flat(list(self.model.parameters())).double().numpy()


def worker(
    kind: Callable[[Surroundings], Method], config: Configuration, call: Any, scratch: Path = Path()
) -> tuple[Method, nn.Module]:
    model = network()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.zero_()  # what it begins with is the hosts' to say
    return kind(Surroundings(config, model, call, scratch)), model


def adagrad(rates: list[float], decay: float = 0.0) -> np.ndarray:
    """SGD with Adagrad's rates in float64 (Duchi et al. 2011, figure 1)."""
    weights, squares = START.copy(), np.zeros(SIZE)
    for rate in rates:
        slope = H @ (weights - B) + decay * weights
        squares += slope**2
        weights -= rate * slope / (np.sqrt(squares) + 1e-10)
    return weights


@pytest.mark.parametrize("servers", [1, 2, 3])
@pytest.mark.parametrize("decay", [0.0, 0.1])
def test_downpour_with_one_worker_is_sgd_with_adagrad(servers: int, decay: float) -> None:
    config = configured(
        algorithm="downpour", optimizer="adagrad", servers=servers, weight_decay=decay,
        exclude_bias_and_bn=False,
    )  # fmt: skip
    hosts = Hosts(config)
    method, model = worker(Downpour, config, hosts.call)
    for rate in RATES:
        step(method, model, rate)
        assert (method.staleness, method.holds) == (0, False)
    np.testing.assert_allclose(hosts.weights, adagrad(RATES, decay), atol=1e-6)
    assert np.abs(hosts.weights - START).max() > 0.1


def test_downpour_between_fetches_and_pushes() -> None:
    """Algorithm 7.1 of Dean et al. with n_fetch 3 and n_push 2, in float64; plain SGD servers."""
    config = configured(algorithm="downpour", n_fetch=3, n_push=2)
    hosts = Hosts(config)
    method, model = worker(Downpour, config, hosts.call)
    server, local, accrued = START.copy(), START.copy(), np.zeros(SIZE)
    for number, rate in enumerate(RATES[:11]):
        if number % 3 == 0:
            local = server.copy()
        slope = H @ (local - B)
        accrued += slope
        local = local - rate * slope
        if (number + 1) % 2 == 0:
            server, accrued = server - rate * accrued, np.zeros(SIZE)
        step(method, model, rate)
        assert method.holds == (number % 2 == 0)
        np.testing.assert_allclose(hosts.weights, server, atol=1e-5)
    method.flush(0.1)
    np.testing.assert_allclose(hosts.weights, server - 0.1 * accrued, atol=1e-5)
    assert not method.holds


def test_a_recorded_order_of_pushes_is_replayed_exactly() -> None:
    """Three workers at once, whoever comes first; then one thread in the order that was told."""
    config = configured(algorithm="downpour", optimizer="adagrad", n_fetch=2)
    hosts = Hosts(config)
    one_by_one, order = threading.Lock(), []

    def work(number: int) -> None:
        def call(*asked: Any) -> Any:
            with one_by_one:
                order.append(number)
                return hosts.call(*asked)

        method, model = worker(Downpour, config, call)
        for rate in RATES:
            step(method, model, rate / (number + 1))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    # The oracle: Adagrad's formula alone, at the fetches and pushes as they came.
    weights, squares = START.copy(), np.zeros(SIZE)
    copies, steps = [START.copy() for _ in range(3)], [0] * 3
    for number, (_, kind, asked) in zip(order, hosts.asked, strict=True):
        if kind == "fetch":
            copies[number] = weights.copy()
            continue
        rate = RATES[steps[number]] / (number + 1)
        slope = H @ (copies[number] - B)
        copies[number] -= rate * slope
        squares += slope**2
        weights -= rate * slope / (np.sqrt(squares) + 1e-10)
        steps[number] += 1
        assert asked[1] == rate
    np.testing.assert_allclose(hosts.weights, weights, atol=1e-5)

    assert steps == [len(RATES)] * 3

    # And the workers themselves, one call after the other: the same bits.
    again = Hosts(config)
    workers, steps = [worker(Downpour, config, again.call) for _ in range(3)], [0] * 3
    for number, (_, kind, _) in zip(order, hosts.asked, strict=True):
        method, model = workers[number]
        if kind == "fetch" or steps[number] % 2:
            method.before()
        if kind == "push":
            finish(method, model, RATES[steps[number]] / (number + 1))
            steps[number] += 1
    assert [kind for _, kind, _ in again.asked] == [kind for _, kind, _ in hosts.asked]
    assert torch.equal(flat(list(again.model.parameters())), flat(list(hosts.model.parameters())))


def test_staleness_counts_what_others_pushed_since_the_fetch() -> None:
    config = configured(algorithm="downpour", n_fetch=2)
    hosts = Hosts(config)
    (one, mine), (other, its) = (worker(Downpour, config, hosts.call) for _ in range(2))
    told = []
    for method, model in [(one, mine), (other, its), (other, its), (one, mine), (one, mine)]:
        step(method, model, 0.01)
        told.append(method.staleness)
    # The last one fetched anew.
    assert told == [0, 0, 0, 2, 0]


@pytest.mark.parametrize("servers", [1, 3])
@pytest.mark.parametrize("workers", [1, 3])
def test_elastic_averaging_on_a_quadratic_has_its_closed_form(servers: int, workers: int) -> None:
    """Workers in turn, an exchange before each step: a linear map of all weights and the center,
    whose power says where they are after any number of rounds.
    """
    rate, beta, rounds = 0.05, 0.6, 20
    config = configured(
        algorithm="easgd", procs_per_node=workers, elastic_period=1, elastic_rate=beta,
        servers=servers,
    )  # fmt: skip
    hosts = Hosts(config)
    made = [worker(ElasticAveraging, config, hosts.call) for _ in range(workers)]
    for method, model in made:
        step(method, model, rate)  # the first step has no exchange
    for _ in range(rounds):
        for method, model in made:
            step(method, model, rate)

    share, one = beta / workers, np.eye(SIZE)
    places = [slice(number * SIZE, (number + 1) * SIZE) for number in range(workers + 1)]
    center = places[-1]
    whole = np.eye((workers + 1) * SIZE)
    for own in places[:-1]:
        turn = np.eye((workers + 1) * SIZE)
        turn[own, own] = (1 - share) * one - rate * H
        turn[own, center] = share * one
        turn[center, own] = share * one
        turn[center, center] = (1 - share) * one
        whole = turn @ whole
    first = START - B - rate * H @ (START - B)
    state = np.concatenate([*[first] * workers, START - B])
    state = np.linalg.matrix_power(whole, rounds) @ state
    np.testing.assert_allclose(hosts.weights - B, state[center], atol=1e-5)
    for (_, model), own in zip(made, places, strict=False):
        weights = flat(list(model.parameters())).double().numpy()
        np.testing.assert_allclose(weights - B, state[own], atol=1e-5)
    assert made[0][0].staleness == workers - 1


def test_elastic_averaging_exchanges_once_in_a_period() -> None:
    config = configured(algorithm="easgd", elastic_period=3)
    hosts = Hosts(config)
    method, model = worker(ElasticAveraging, config, hosts.call)
    for _ in range(8):
        step(method, model, 0.1)
    assert [kind for _, kind, _ in hosts.asked] == ["fetch", "exchange", "exchange"]


def test_hogwild_with_one_worker_is_sgd_and_others_see_it(tmp_path: Path) -> None:
    config = configured(algorithm="hogwild")
    hosts = network()
    share(hosts, tmp_path / "weights", keep=True)
    method, model = worker(Hogwild, config, None, tmp_path)
    expected = START.copy()
    for rate in RATES:
        expected -= rate * (H @ (expected - B))
        step(method, model, rate)
        assert method.staleness == 0
    for one in (model, hosts):
        weights = flat(list(one.parameters())).double().numpy()
        np.testing.assert_allclose(weights, expected, atol=1e-6)


def test_hogwild_counts_what_others_changed_while_it_computed(tmp_path: Path) -> None:
    config = configured(algorithm="hogwild")
    share(network(), tmp_path / "weights", keep=True)
    (one, _), (other, its) = (worker(Hogwild, config, None, tmp_path) for _ in range(2))
    one.before()
    for _ in range(3):
        step(other, its, 0.1)
    one.after(0.1)
    assert one.staleness == 3


@pytest.mark.parametrize("servers", [1, 2, 4])
def test_parts_hold_every_parameter_once_and_are_about_equal(servers: int) -> None:
    model = nn.Sequential(*[nn.Linear(size, size) for size in (30, 10, 25, 20, 5)])
    found = parts(model, servers)
    names = sorted(id(one) for part in found for one in part)
    assert names == sorted(id(one) for one in model.parameters())
    sizes = [sum(one.numel() for one in part) for part in found]
    assert max(sizes) <= max(sum(sizes) / servers * 1.2, 900)
