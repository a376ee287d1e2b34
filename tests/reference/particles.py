"""Particles in float64: the equations of Tong et al. 2025, appendix C.8, stepped by Runge and Kutta's method.

Each of n particles in space moves by d/dt x = sum over j of softmax((A f x)·(A f x_j)/sqrt(3)) V f x_j, f a polynomial of t/T. Takes what `odec simulate`
wrote: where the particles began, and A and V; gives the largest distance of a coordinate from its, over the size of the swarm at that time.
"""

import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
from safetensors.numpy import load_file

T, STEPS = 20.0, 200
# The six magnitudes of the appendix: their coefficients of 1, t/T, its square, … , as `--set` gives them, and as the paper writes them.
PROFILES: dict[str, tuple[tuple[str, ...], Callable[[float], float]]] = {
    "f0": (("1/2", "0", "0", "0", "0"), lambda t: 1 / 2),
    "f1": (("0", "1/2", "0", "0", "0"), lambda t: t / T / 2),
    "f2": (("0", "0", "1/2", "0", "0"), lambda t: (t / T) ** 2 / 2),
    "f3": (("0", "0", "0", "1/2", "0"), lambda t: (t / T) ** 3 / 2),
    "f4": (("0", "0", "0", "0", "1/2"), lambda t: (t / T) ** 4 / 2),
    "f5": (("1/2", "-1", "1/2", "0", "0"), lambda t: (1 - t / T) ** 2 / 2),
}
LIMIT = 1e-9


def velocity(x: np.ndarray, a: np.ndarray, v: np.ndarray, f: float) -> np.ndarray:
    """Attention with one map for queries and keys: [points, 3]."""
    seen = f * x @ a.T
    scores = seen @ seen.T / np.sqrt(3.0)
    weights = np.exp(scores - scores.max(axis=1, keepdims=True))
    return weights / weights.sum(axis=1, keepdims=True) @ (f * x @ v.T)


def paths(x: np.ndarray, a: np.ndarray, v: np.ndarray, f: Callable[[float], float]) -> np.ndarray:
    """All states: [steps + 1, points, 3]."""
    h, states = T / STEPS, [x]
    for n in range(STEPS):
        t = n * h
        k1 = velocity(x, a, v, f(t))
        k2 = velocity(x + h / 2 * k1, a, v, f(t + h / 2))
        k3 = velocity(x + h / 2 * k2, a, v, f(t + h / 2))
        k4 = velocity(x + h * k3, a, v, f(t + h))
        x = x + h / 6 * (k1 + 2 * k2 + 2 * k3 + k4)
        states.append(x)
    return np.stack(states)


def distance(odec: Callable[..., str], binary: str, profile: str, folder: Path) -> tuple[float, int]:
    """The largest error of a profile, and how many clusters odec finds at its end."""
    coefficients, f = PROFILES[profile]
    sets = [part for n, c in enumerate(coefficients) for part in ("--set", f"layer.attraction.c{n}={c}")]
    written = folder / "paths.safetensors"
    said = odec(binary, "simulate", "schemes/models/particles.ode", *sets, "--seed", "1", "-o", str(written), "--json")
    found = load_file(written)
    theirs = paths(found["states"][0], found["att.q.weight"], found["att.v.weight"], f)
    size = np.abs(theirs).max(axis=(1, 2))
    error = np.abs(found["states"] - theirs).max(axis=(1, 2)) / size
    assert np.allclose(found["times"], np.arange(STEPS + 1) * T / STEPS)
    return float(error.max()), json.loads(said)["clusters"][-1]
