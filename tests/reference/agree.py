"""Compares odec's tableaus and proved orders with those of scipy and of nodepy's catalogue.

    agree.py ODEC

Coefficients of methods that both sides have are compared to 1e-14, those that are computed here by an inverse to 1e-10. Then nodepy's
whole catalogue is written as a file of odec's language and analysed, so that odec's proof is held against nodepy's residuals of the
order conditions, method by method. The residuals are floating point: up to the order that is proved they must be below a stated
tolerance, and at the next order above a larger one. nodepy's `order()` is not asked: its tolerance of 1e-14 is that of the last bits, and they
differ between processors. Prints one line per method; ends with 1 if something differs that is not listed as a known slip with its verdict.
"""

import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("MPLBACKEND", "Agg")

import numpy as np
import sympy
from nodepy import runge_kutta_method
from numpy.polynomial import Polynomial
from scipy.integrate._ivp import dop853_coefficients, radau, rk

SCHEMES = Path(__file__).resolve().parents[2] / "schemes"
CLOSE = 1e-14
# How close a matrix is that is found by inverting another one in double precision.
INVERTED = 1e-10
# What order conditions of coefficients in double precision may be off by.
ROUNDING = "1e-12"
# What a condition that does not hold is off by, at least. The smallest of the catalogue's is 2.5e-7 (order 9 of PD8).
VIOLATED = 1e-8

# nodepy's name, and the scheme of the library that it should be.
BOTH = {
    "FE": "euler",
    "BE": "backward_euler",
    "SSP22": "ssp22",
    "Heun22": "heun",
    "MTE22": "ralston",
    "Mid22": "midpoint",
    "SSP33": "ssp33",
    "Heun33": "heun3",
    "SSP43": "ssp43",
    "SSP104": "ssp104",
    "RK44": "rk4",
    "Merson43": "merson4",
    "Zonneveld43": "zonneveld4",
    "Fehlberg43": "fehlberg4",
    "Fehlberg45": "fehlberg5",
    "CK5": "cash_karp",
    "DP5": "dormand_prince",
    "Tsit5": "tsitouras5",
    "BS3": "bogacki_shampine",
    "BS5": "bogacki_shampine5",
    "PD8": "dormand_prince8",
    "GL2": "gauss4",
    "GL3": "gauss6",
    "LobattoIIIA2": "trapezoidal",
    "LobattoIIIA3": "lobatto_iiia4",
    "LobattoIIIC2": "lobatto_iiic2",
    "LobattoIIIC3": "lobatto_iiic4",
    "LobattoIIIC4": "lobatto_iiic6",
    "RadauIIA2": "radau_iia3",
    "RadauIIA3": "radau_iia5",
    "SDIRK34": "crouzeix4",
    "SDIRK54": "sdirk4",
}

# Known slips of the catalogue: what our verdict is, with the residual up to which orders are sought where it is not `ROUNDING`,
# and the order that is proved then.
SLIPS = {
    "Lambert65": ("a name of order 5, but row 3 is 1/8 1/8 and would do with 3/16 1/16", ROUNDING, 2),
    "SSP53": ("the weights sum to 1 + 3.2e-10; b[1] would do as 0.19707596352108", "1e-9", 3),
}

failures = 0


def report(name: str, verdict: str, good: bool = True) -> None:
    global failures
    failures += not good
    print(f"{'  ' if good else '! '}{name:<22} {verdict}")


def analyze(odec: str, *arguments: str) -> list[dict]:
    run = [odec, "analyze", *arguments, "--json"]
    done = subprocess.run(run, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"{' '.join(run)}: {done.stderr}")
    return json.loads(done.stdout)


def root(of: float | Polynomial, n: float) -> float:
    """The n-th root of a number; of a polynomial its real root near n."""
    if not isinstance(of, Polynomial):
        return of ** (1 / n)
    real = [r.real for r in of.roots() if abs(r.imag) < 1e-9]
    return min(real, key=lambda r: abs(r - n))


NUMBERS = {"sqrt": math.sqrt, "root": root, "x": Polynomial([0, 1]), "__builtins__": {}}


def numbers(entries: list[str] | list[list[str]]) -> np.ndarray:
    """odec's exact numbers as doubles; whole numbers are divided exactly."""
    if entries and isinstance(entries[0], list):
        return np.array([numbers(row) for row in entries])
    return np.array([eval(entry.replace("^", "**"), NUMBERS) for entry in entries], dtype=float)


class Method:
    """A scheme of the library as odec analyses it: of an implicit one the tableau as it is written."""

    def __init__(self, odec: str, scheme: str) -> None:
        (file,) = SCHEMES.rglob(f"{scheme}.ode")
        (found,) = analyze(odec, str(file))
        tableau = found["tableau"]
        self.a, self.b = numbers(tableau["A"]), numbers(tableau["b"])
        partner = tableau["b_hat"]
        self.partner = None if partner is None else numbers(partner)
        self.order = (found["stages_found_exactly"] or found["proof"])["order"]


def compared(pairs: list[tuple[str, np.ndarray, np.ndarray]], close: float = CLOSE) -> str:
    """Which coefficients differ, or ``."""
    wrong = []
    for name, ours, theirs in pairs:
        ours, theirs = np.asarray(ours, dtype=float), np.asarray(theirs, dtype=float)
        if ours.shape != theirs.shape:
            return f"{name} has the shape {ours.shape}, not {theirs.shape}"
        for at in np.argwhere(~(np.abs(ours - theirs) <= close)):
            place = ",".join(str(i + 1) for i in at)
            wrong.append(f"{name}[{place}] is {ours[tuple(at)]:.17g} here, {theirs[tuple(at)]:.17g} there")
    more = f" and {len(wrong) - 3} more" if len(wrong) > 3 else ""
    return "; ".join(wrong[:3]) + more


def scipy_methods(odec: str, file: list[str]) -> None:
    for name, scheme in [("RK23", "bogacki_shampine"), ("RK45", "dormand_prince")]:
        theirs, ours = getattr(rk, name), Method(odec, scheme)
        n = len(theirs.B)
        # The last stage is the result, and `E` is what the partner's weights are off.
        wrong = compared(
            [
                ("A", ours.a[:n, : theirs.A.shape[1]], theirs.A),
                ("last row", ours.a[n, :n], theirs.B),
                ("b", ours.b, np.append(theirs.B, 0)),
                ("c", ours.a[:n].sum(axis=1), theirs.C),
                ("E", ours.partner - ours.b, theirs.E if (ours.partner - ours.b) @ theirs.E > 0 else -theirs.E),
            ]
        )
        if ours.order != theirs.order:
            wrong += f" order {ours.order} here, {theirs.order} there"
        report(f"scipy {name}", wrong or f"= {scheme}, order {ours.order}", not wrong)
    ours = Method(odec, "radau_iia5")
    # scipy keeps A⁻¹ = T Λ T⁻¹ with one real and one complex pair of eigenvalues.
    real, pair = radau.MU_REAL, radau.MU_COMPLEX
    eigen = np.array([[real, 0, 0], [0, pair.real, -pair.imag], [0, pair.imag, pair.real]])
    a = np.linalg.inv(radau.T @ eigen.T @ radau.TI)
    other = np.linalg.inv(radau.T @ eigen @ radau.TI)
    a = min(a, other, key=lambda a: np.abs(a.sum(axis=1) - radau.C).max())
    wrong = compared([("A", ours.a, a), ("b", ours.b, a[-1])], INVERTED) or compared([("c", ours.a.sum(axis=1), radau.C)])
    report("scipy Radau", wrong or f"= radau_iia5, order {ours.order}", not wrong)
    n = rk.DOP853.n_stages
    file.append(scheme_text("scipy_dop853", rk.DOP853.A[:n, :n], rk.DOP853.B))
    assert dop853_coefficients.N_STAGES == n


def entry(x: object) -> str:
    """A coefficient in odec's language: exact where nodepy has it so, else the decimal that a double prints as."""
    x = sympy.nsimplify(x) if isinstance(x, int) else x
    if isinstance(x, sympy.Expr) and not x.has(sympy.Float):
        text = str(x)
        roots = all(p.exp == sympy.Rational(1, 2) for p in x.atoms(sympy.Pow))
        plain = roots and not x.atoms(sympy.Function)
        # What is no square root, such as cosines, to forty digits.
        return f"({text})" if plain else f"({sympy.N(x, 40)})"
    return f"({float(x)!r})"


def scheme_text(name: str, a: np.ndarray, b: np.ndarray, within: str = ROUNDING) -> str:
    # Explicit: the lower half alone.
    explicit = not any(a[i, j] != 0 for i in range(len(b)) for j in range(i, len(b)))
    rows = []
    for i in range(len(b)):
        row = [entry(x) for x in a[i, : i if explicit else len(b)]]
        rows.append(f"({' + '.join(row) or 0}) | {' '.join(row)}")
    rows.append(f"| {' '.join(entry(x) for x in b)}")
    solve = "" if explicit else "  solve by fixed_point(iterations: 1)\n"
    body = "\n    ".join(rows)
    return f"scheme {name}(F) {{\n  order 1 within {within}\n  tableau {{\n    {body}\n  }}\n{solve}}}\n"


def nodepy_methods(odec: str, file: list[str]) -> dict[str, tuple[str, object]]:
    names = {}
    for key, theirs in runge_kutta_method.loadRKM().items():
        name = "nodepy_" + "".join(c if c.isascii() and c.isalnum() else "_" for c in key).lower()
        if name not in [n for n, _ in names.values()]:
            names[key] = (name, theirs)
            file.append(scheme_text(name, theirs.A, theirs.b, SLIPS.get(key, ("", ROUNDING, 0))[1]))
        if key not in BOTH:
            continue
        ours = Method(odec, BOTH[key])
        a, b, partner = theirs.A, theirs.b, getattr(theirs, "bhat", None)
        if len(b) == len(ours.b) + 1 and b[-1] == 0 and not (a[-1] != b).any():
            # A last stage that is the result, for the partner alone.
            a, b, partner = a[:-1, :-1], b[:-1], None
        pairs = [("A", ours.a, a), ("b", ours.b, b)]
        if ours.partner is not None and partner is not None:
            pairs.append(("b_hat", ours.partner, partner))
        wrong = compared(pairs)
        report(f"nodepy {key}", wrong or f"= {BOTH[key]}, order {ours.order}", not wrong)
    return names


def residuals(method: object, order: int) -> list[float]:
    """The largest residual of nodepy's conditions of each order up to the given one, in double precision."""
    doubles = method.__num__()
    return [float(np.abs(np.array(doubles.order_condition_residuals(p), dtype=float)).max()) for p in range(1, order + 1)]


def of_order(order: int, within: float, found: list[float]) -> bool:
    """Whether residuals of the orders 1 to `order + 1` are those of a method of this order."""
    return all(r <= within for r in found[:order]) and found[order] >= VIOLATED


def main() -> None:
    (odec,) = sys.argv[1:]
    file: list[str] = []
    scipy_methods(odec, file)
    names = nodepy_methods(odec, file)
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "catalogue.ode"
        path.write_text("\n".join(file), encoding="utf-8")
        found = {report["name"]: report for report in analyze(odec, str(path))}
    proved = {n: (r["stages_found_exactly"] or r["proof"])["order"] for n, r in found.items()}
    order = proved["scipy_dop853"]
    report("scipy DOP853", f"order {order}, as scipy has it in decimals", order == rk.DOP853.order)
    for key, (name, theirs) in names.items():
        ours = proved[name]
        slip, within, known = SLIPS.get(key, ("", ROUNDING, ours))
        found = residuals(theirs, ours + 1)
        verdict = f"order {ours} proved; nodepy's residuals: {max(found[:-1]):.1e} up to it, {found[-1]:.1e} at the next"
        verdict += f"; known slip: {slip}" if slip else ""
        report(f"nodepy {key}", verdict, ours == known and of_order(ours, float(within), found))
    if failures:
        sys.exit(f"{failures} disagreements")


main()
