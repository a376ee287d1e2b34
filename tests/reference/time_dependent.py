"""Parameters that are functions of time, in float64 (Tong et al. 2025, "Neural ODE Transformers", §4.2 and appendix A).

`e(t) = [t, sin ωt, cos ωt]`, `ωᵢ = scale · 10000^(−i/n)`. A matrix is `W + proj (down silu(up e))`, a vector `g + G e`, or like a matrix as
in the released code (qkvflow). Takes all parameters by their paths and a time; gives those that a step reads then.
"""

from math import prod

import autograd.numpy as np
from functions import Array, silu
from parts import Parameters, Table

# Of every system here: waves, numbers between the maps, scale.
WAVES, HIDDEN, SCALE = 4, 6, 5.0


def features(t: Array | float) -> Array:
    angle = t * SCALE * 10000.0 ** (-np.arange(WAVES) / WAVES)
    return np.concatenate([np.reshape(t, (1,)), np.sin(angle), np.cos(angle)])


def table(own: Table, vectors_by_mlp: bool = False) -> Table:
    """What stands beside these parameters."""
    beside, inputs = {}, 2 * WAVES + 1
    for path, dims in own.items():
        at = f"{path}.time"
        if len(dims) < 2 and not vectors_by_mlp:
            beside[f"{at}.weight"] = (*dims, inputs)
            continue
        beside |= {f"{at}.up.weight": (HIDDEN, inputs), f"{at}.up.bias": (HIDDEN,)}
        beside |= {f"{at}.down.weight": (HIDDEN, HIDDEN), f"{at}.down.bias": (HIDDEN,)}
        beside[f"{at}.proj.weight"] = (prod(dims), HIDDEN)
    return beside


def at_time(p: Parameters, t: Array | float) -> Parameters:
    e, found = features(t), dict(p)
    for path, own in p.items():
        at = f"{path}.time"
        if f"{at}.weight" in p:
            found[path] = own + p[f"{at}.weight"] @ e
        elif f"{at}.proj.weight" in p:
            u = p[f"{at}.up.weight"] @ e + p[f"{at}.up.bias"]
            u = p[f"{at}.down.weight"] @ silu(u) + p[f"{at}.down.bias"]
            found[path] = own + (p[f"{at}.proj.weight"] @ u).reshape(own.shape)
    return found
