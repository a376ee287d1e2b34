"""Functions of arrays that `autograd.numpy` lacks. None overflows; sums are over the last axis. autograd differentiates them, and all but `erf` by their parts."""

from math import erf as erf_of_one
from statistics import NormalDist

import autograd.numpy as np
import numpy
from autograd.extend import defvjp, primitive
from autograd.tracer import getval

Array = numpy.ndarray


def stop_gradient(x: Array) -> Array:
    """The value as a constant."""
    return getval(x)


def softmax(x: Array) -> Array:
    """exp(x) over its sum."""
    e = np.exp(x - stop_gradient(np.max(x, axis=-1, keepdims=True)))
    return e / np.sum(e, axis=-1, keepdims=True)


def logsumexp(x: Array) -> Array:
    """The logarithm of the sum of exp(x); the axis stays, with one entry."""
    largest = stop_gradient(np.max(x, axis=-1, keepdims=True))
    return largest + np.log(np.sum(np.exp(x - largest), axis=-1, keepdims=True))


def log_softmax(x: Array) -> Array:
    """The logarithm of `softmax`."""
    return x - logsumexp(x)


def log_likelihood(logits: Array, targets: Array) -> Array:
    """log softmax(logits) at the targets: [.., kinds] and [..] to [..]."""
    return log_softmax(logits)[(*numpy.indices(targets.shape, sparse=True), targets)]


def log_sigmoid(x: Array) -> Array:
    """−log(1 + exp(−x))."""
    return -np.logaddexp(0.0, -x)


def sigmoid(x: Array) -> Array:
    """1/(1 + exp(−x))."""
    return np.exp(log_sigmoid(x))


def silu(x: Array) -> Array:
    """x/(1 + exp(−x))."""
    return x * sigmoid(x)


def softplus(x: Array) -> Array:
    """log(1 + exp(x))."""
    return np.logaddexp(x, 0.0)


# The error function, 2/√π ∫₀ˣ exp(−t²) dt.
erf = primitive(numpy.vectorize(erf_of_one, otypes=[float]))
defvjp(erf, lambda ans, x: lambda g: g * 2 / np.sqrt(np.pi) * np.exp(-(x**2)))

# Quantiles of the normal distribution, of probabilities that are constants.
normal_quantile = numpy.vectorize(NormalDist().inv_cdf, otypes=[float])


def exact_gelu(x: Array) -> Array:
    """x Φ(x), not its approximation by tanh."""
    return x * (1 + erf(x / np.sqrt(2.0))) / 2
