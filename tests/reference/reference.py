"""Decoders in float64, written from their equations and differentiated by autograd, which runs NumPy.

Takes a system of `systems.py`, sizes, parameters and tokens; gives the mean cross-entropy and its gradient. Nothing here
comes from odec: only the names and shapes of the parameters are agreed (`expected`), and they are checked too. The logits
use the embedding's matrix. Leaves running odec and comparing to `check.py`.
"""

from threading import Lock

import autograd.numpy as np
import stages
from autograd import value_and_grad
from functions import Array, exact_gelu, log_likelihood, log_sigmoid, log_softmax, logsumexp
from parts import Parameters, Shape, Table, bias_table, linear, norm, norm_table, sinusoids
from systems import Step, System
from translators import logits as translated
from translators import table as translator_table

# autograd counts the derivatives that are being taken, one inside another, for all threads together.
DIFFERENTIATING = Lock()


def expected(system: System, shape: Shape) -> Table:
    """Path and shape of every parameter."""
    if system.translator:
        return translator_table(system.translator, shape)
    if system.staged:
        return stages.table(system.staged, shape)
    bias = bias_table(shape, "norm") if system.norm == "layernorm" else {}
    ends = norm_table(shape) | bias if system.norm else {}
    numbers = system.image[1] ** 2 if system.image else system.vectors[0] if system.vectors else 0
    if numbers:
        table = {"embed.linear.weight": (shape.width, numbers), "embed.linear.bias": (shape.width,)}
        table |= {"embed.class_token": (shape.width,)} if system.class_token else {}
        table |= {f"embed.registers.{i}": (shape.width,) for i in range(system.registers)}
        table |= {"embed.time_token.weight": (shape.width, shape.width), "embed.label_token.weight": (shape.width, 10)} if system.velocity else {}
        said = "classes" if system.image and not system.velocity else "linear"
        ends |= {f"{said}.weight": (shape.vocab, shape.width), f"{said}.bias": (shape.vocab,)}
    else:
        table = {"embed.token.weight": (shape.vocab, system.factorised or shape.width)}
        table |= {"embed.linear.weight": (shape.width, system.factorised)} if system.factorised else {}
    if system.classes:
        ends |= {"classes.weight": (system.classes, shape.width), "classes.bias": (system.classes,)}
    if system.several:
        place = norm_table(shape) | bias | {"linear.weight": (2, shape.width)}
        kind = norm_table(shape) | bias | {"classes.weight": (5, shape.width), "classes.bias": (5,)}
        table |= {f"{at}.output.{part}": dims for at, own in (("place", place), ("kind", kind)) for part, dims in own.items()}
    if system.positions == "learned" or system.image or system.vectors:
        table["embed.position.weight"] = (shape.context, shape.width)
    if system.segments:
        table["embed.segment.weight"] = (system.segments[0], shape.width)
    return table | {f"output.{part}": dims for part, dims in ends.items()} | system.table(shape)


def loss(system: System, shape: Shape, p: Parameters, tokens: Array, targets: Array, key: Array | int = 0) -> Array:
    """Mean over all targets, or over those of hidden tokens, of −log softmax(logits); `tokens` are the numbers of patches where it reads images, and vectors where it reads those.

    The last row of these is left out where a learned one stands before them. Between noise and images, `tokens` are patches, times and classes, and `targets` velocities. Numbers are compared by their mean square, or as chances."""
    if system.translator:
        # A source, and the targets so far; what fills up rows is no target.
        chosen = log_likelihood(translated(system.translator, shape, p, *tokens), targets)
        counts = targets != shape.vocab - 1
        return -np.sum(np.where(counts, chosen, 0.0)) / np.sum(counts)
    if system.velocity:
        tokens, time, label = (np.asarray(x, np.float64) for x in tokens)
    if system.staged:
        return -np.mean(log_likelihood(stages.logits(system.staged, p, np.asarray(tokens, np.float64)), targets))
    # A row for each kind of tokens.
    rows = p["embed.token.weight"] if system.reads == "tokens" else None
    rows = linear(p, "embed.linear", rows) if system.factorised else rows
    x = linear(p, "embed.linear", tokens) if rows is None else rows[tokens]
    if system.class_token:
        first = ["embed.class_token", *(f"embed.registers.{i}" for i in range(system.registers))]
        first = np.ones((x.shape[0], 1, 1)) * np.stack([p[row] for row in first])
        x = np.concatenate([first, x[:, : -first.shape[1]]], axis=1)
    if system.velocity:
        waves = waves_of(system.velocity * time[:, :, 0], shape.width)
        first = [waves @ p["embed.time_token.weight"].T, label[:, 0] @ p["embed.label_token.weight"].T]
        if not system.conditioned:
            x = np.concatenate([np.stack(first, axis=1), x[:, :-2]], axis=1)
    if system.positions == "learned" or system.image or system.vectors:
        x = x + p["embed.position.weight"][: x.shape[1]]
    if system.segments:
        number, separator = system.segments
        before = np.cumsum(tokens == separator, axis=1) - (tokens == separator)
        x = x + p["embed.segment.weight"][np.minimum(before, number - 1)]
    if system.positions == "sinusoidal":
        x = x + sinusoids(x.shape[1], shape.width)
    past: dict[str, list[Array]] = {"condition": [sum(first)[:, None]]} if system.conditioned else {}
    if system.classes:
        past["held"] = [tokens != shape.vocab - 1]
    states = [x]
    for k in range(shape.steps):
        x = system.step(Step(system, shape, p, k, past, key), x)
        states.append(x)
    other = 0.0
    if system.follows:
        targets, classes = targets
        said = np.mean(np.tanh(linear(p, "follows.output.linear", x)), axis=1)
        other = -np.mean(log_likelihood(linear(p, "follows.output.classes", said), classes))
    if "output.linear.weight" in p and system.masked:
        x = exact_gelu(linear(p, "output.linear", x))
    if system.norm:
        last, x = x, norm(p, "output", x, system.eps)
    if system.several:
        # Numbers for each vector, numbers and a class for all of them.
        numbers, places, kinds = targets
        kind = linear(p, "kind.output.classes", np.mean(norm(p, "kind.output", last), axis=1))
        return (
            np.mean((linear(p, "output.linear", x) - numbers) ** 2)
            + np.mean((linear(p, "place.output.linear", np.mean(norm(p, "place.output", last), axis=1)) - places[:, 0]) ** 2) / 2
            - np.mean(log_likelihood(kind, kinds)) / 4
        )
    if system.vectors:
        said = linear(p, "output.linear", x[:, :1] if system.class_token else x)
        targets = np.asarray(targets, np.float64)
        if "bce" in system.loss:
            return np.mean(-targets * log_sigmoid(said) - (1 - targets) * log_sigmoid(-said))
        return np.mean((said - targets) ** 2)
    if system.velocity:
        # Each patch has its velocity; where rows stand before them, as many rows of what is compared are empty.
        rows = 0 if system.conditioned else 2
        return np.mean((linear(p, "output.linear", x[:, rows:]) - targets[:, : x.shape[1] - rows]) ** 2)
    if system.image:
        read = x[:, 0] if system.class_token else np.mean(x, axis=1)
        return -np.mean(log_likelihood(linear(p, "output.classes", read), targets))
    if system.classes:
        held = past["held"][0][:, :, None]
        read = np.sum(x * held, axis=1) / np.sum(held, axis=1)
        return -np.mean(log_likelihood(linear(p, "output.classes", read), targets))
    logits = x @ rows.T
    if system.loss:
        terms = {
            # An eighth of the target is spread over all kinds of tokens.
            "smooth(1/8)": lambda: -np.sum(
                (0.875 * np.eye(shape.vocab)[targets] + 0.125 / shape.vocab) * log_softmax(logits),
                axis=-1,
            ),
            "cross_entropy": lambda: -log_likelihood(logits, targets),
            "ponder": lambda: past["pondered"][0],
            "choice": lambda: past["compared"][0],
            "z_loss": lambda: logsumexp(logits) ** 2,
            # Steps of 1/2.
            "kinetic": lambda: sum(np.mean((b - a) ** 2, axis=-1) for a, b in zip(states, states[1:], strict=False)),
            # Weights per step.
            "drift": lambda: sum(
                np.sum((w - p[path.replace(f"step.{k + 1}.", f"step.{k}.")]) ** 2)
                for k in range(shape.steps - 1)
                for path, w in p.items()
                if path.startswith(f"step.{k + 1}.")
            ),
        }
        return sum(c * np.mean(terms[name]()) for name, c in system.loss.items())
    hidden = tokens == shape.vocab - 1 if system.masked else np.ones(tokens.shape, bool)
    return other - np.sum(np.where(hidden, log_likelihood(logits, targets), 0.0)) / np.sum(hidden)


def waves_of(times: Array, width: int) -> Array:
    """Sines and cosines of times in turn: `[batch, 1]` to `[batch, width]`."""
    column = np.arange(width)
    angles = times * 10000.0 ** (-2.0 * (column // 2) / width)
    return np.where(column % 2 == 0, np.sin(angles), np.cos(angles))


def loss_and_gradient(
    system: System, shape: Shape, parameters: Parameters, tokens: Array, targets: Array, key: int = 0
) -> tuple[float, Parameters]:
    """The loss and its derivative by every parameter, in float64 whatever the type of the parameters given."""
    p = {path: np.asarray(value, np.float64) for path, value in parameters.items()}
    with DIFFERENTIATING:
        value, gradient = value_and_grad(lambda q: loss(system, shape, {path: q[path] for path in p}, tokens, targets, key))(p)
    assert value.dtype == np.float64 and all(g.dtype == np.float64 for g in gradient.values())
    return float(value), gradient
