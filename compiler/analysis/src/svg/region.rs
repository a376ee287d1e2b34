//! Regions of absolute stability: the complex plane for one field, the planes of two numbers for several.
//!
//! Shaded is where |R| ≤ 1, or where all roots of a multistep method's characteristic polynomial lie in the unit disc; dashed the region of the
//! embedded partner; dots mark the limits on the axes. The window shows the region, or what lies outside of it where that is the
//! smaller part.

use super::function::{Complex, Level, Rational};
use super::plot::{Axis, Plot};
use super::sheet::{Anchor, Sheet, width};
use crate::report::{Additive, Report};
use odec_exact::Exact;
use odec_numerics::joint::{Function, Many};
use odec_numerics::multistep::Multistep;
use odec_numerics::poly::Extent;
use odec_text::number::about;

/// Half the side of the first window that is tried, and how often it is doubled.
const WINDOW: f64 = 3.0;
const DOUBLINGS: usize = 8;
/// Points along the side of a window in which the region is sought.
const COARSE: usize = 96;
/// Room for the larger side of a plot, least height, and the places of the plot.
const WIDE: f64 = 560.0;
const HIGH: f64 = 480.0;
const LOW: f64 = 150.0;
const LEFT: f64 = 64.0;
const TOP: f64 = 84.0;
const BELOW: f64 = 56.0;

/// The largest root of `ρ − zσ`, all found at once (Durand 1960; Kerner 1966) from those of the point before.
struct Largest {
    alpha: Vec<f64>,
    beta: Vec<f64>,
    roots: Vec<Complex>,
}

impl Largest {
    fn new(m: &Multistep) -> Largest {
        let floats = |row: &[Exact]| row.iter().map(Exact::to_f64).collect();
        let mut largest = Largest {
            alpha: floats(&m.alpha),
            beta: floats(&m.beta),
            roots: Vec::new(),
        };
        largest.start();
        largest
    }

    fn start(&mut self) {
        let mut power = Complex(1.0, 0.0);
        self.roots = (1..self.alpha.len())
            .map(|_| {
                power = power.times(Complex(0.4, 0.9));
                power
            })
            .collect();
    }
}

impl Level for Largest {
    fn at(&mut self, z: Complex) -> f64 {
        let terms = self.alpha.iter().zip(&self.beta);
        let c = terms.map(|(a, b)| Complex(a - z.0 * b, -z.1 * b));
        let c: Vec<Complex> = c.collect();
        if c[0].modulus() < 1e-9 {
            return f64::INFINITY;
        }
        for round in 0..200 {
            let mut moved: f64 = 0.0;
            for i in 0..self.roots.len() {
                let x = self.roots[i];
                let value = c
                    .iter()
                    .fold(Complex(0.0, 0.0), |sum, c| sum.times(x).plus(*c));
                let others = self.roots.iter().enumerate().filter(|(j, _)| *j != i);
                let product = others.fold(c[0], |p, (_, y)| p.times(x.minus(*y)));
                let step = value.over(product);
                if !(step.0 + step.1).is_finite() {
                    self.start();
                    break;
                }
                self.roots[i] = x.minus(step);
                moved = moved.max(step.modulus() / (1.0 + x.modulus()));
            }
            if moved < 1e-11 && round > 0 {
                break;
            }
        }
        let largest = self.roots.iter().map(|r| r.modulus()).fold(0.0, f64::max);
        // Rounding on the circle itself is no instability.
        largest - 1e-6
    }
}

pub fn picture(r: &Report) -> Option<String> {
    if let Some((m, _)) = &r.multistep {
        return Some(plane(
            (&r.name, "all roots in the unit disc"),
            &mut Largest::new(m),
            None,
            &[],
        ));
    }
    if let Some(a) = &r.additive {
        return two(&r.name, a);
    }
    let one = r.one_field.as_ref()?;
    let s = one.stability.as_ref()?;
    let mut limits = Vec::new();
    if let Some(Extent::Until { hi, .. }) = &s.real {
        let x = -hi.to_f64();
        limits.push(((x, 0.0), about(x).replace('-', "−")));
    }
    if let Some(Extent::Until { hi, .. }) = &s.imaginary_squared {
        let y = hi.to_f64().sqrt();
        // Limits that rounded coefficients leave of 0 are no points to look at.
        if y > 1e-3 {
            limits.push(((0.0, y), format!("{}i", about(y))));
            limits.push(((0.0, -y), format!("−{}i", about(y))));
        }
    }
    let partner = one.partner.as_ref().map(Rational::new);
    Some(plane(
        (&r.name, "|R| ≤ 1"),
        &mut Rational::new(&s.function),
        partner,
        &limits,
    ))
}

/// Left, right and upper end of the part of the plane to be shown.
fn window(level: &mut dyn Level, limits: &[((f64, f64), String)]) -> (f64, f64, f64) {
    let far = limits.iter().map(|((x, y), _)| x.abs().max(y.abs()));
    let mut half = far.fold(WINDOW, |h, x| h.max(1.3 * x));
    for _ in 0..DOUBLINGS {
        let at = |n: usize| -half + 2.0 * half * n as f64 / COARSE as f64;
        let (mut inside, mut outside) = (Vec::new(), Vec::new());
        let (mut inside_ends, mut outside_ends) = (true, true);
        for i in 0..=COARSE {
            for j in COARSE / 2..=COARSE {
                let edge = i == 0 || i == COARSE || j == COARSE;
                let point = (at(i), at(j));
                if level.at(Complex(point.0, point.1)) <= 1.0 {
                    inside.push(point);
                    inside_ends &= !edge;
                } else {
                    outside.push(point);
                    outside_ends &= !edge;
                }
            }
        }
        let shown = match (inside_ends, outside_ends) {
            (true, _) => inside,
            (_, true) => outside,
            _ => {
                half *= 2.0;
                continue;
            }
        };
        let cell = 2.0 * half / COARSE as f64;
        let corner = shown.iter().chain([&(0.0, 0.0)]);
        let (l, r, t) = corner.fold((0.0f64, 0.0f64, cell), |(l, r, t), (x, y)| {
            (l.min(*x), r.max(*x), t.max(*y))
        });
        let room = 0.12 * (r - l).max(t) + cell;
        return (l - room, r + room, t + room);
    }
    (-WINDOW * 1.5, WINDOW * 1.5, WINDOW * 1.2)
}

fn plane(
    (name, shaded): (&str, &str),
    level: &mut dyn Level,
    mut partner: Option<Rational>,
    limits: &[((f64, f64), String)],
) -> String {
    let (mut left, mut right, mut top) = window(level, limits);
    if let Some(partner) = &mut partner {
        let (l, r, t) = window(partner, limits);
        (left, right, top) = (left.min(l), right.max(r), top.max(t));
    }
    let scale = (WIDE / (right - left)).min(HIGH / (2.0 * top));
    let height = (2.0 * top * scale).max(LOW);
    let high = height / scale / 2.0;
    let axis = |from, to, name: &str| Axis {
        from,
        to,
        name: name.into(),
    };
    let plot = Plot {
        x: axis(left, right, "Re hλ"),
        y: axis(-high, high, "Im hλ"),
        left: LEFT,
        top: TOP,
        width: (right - left) * scale,
        height,
    };
    let mut sheet = Sheet::default();
    let title = format!("Where {name} is stable");
    sheet.heading(LEFT, 28.0, &title);
    let (inside, edge) = plot.around(|x, y| level.at(Complex(x, y)));
    plot.axes(&mut sheet);
    sheet.filled("band", &inside);
    sheet.curve("line", false, &edge);
    let mut legend = vec![("line", false, shaded)];
    if let Some(partner) = &mut partner {
        let (_, edge) = plot.around(|x, y| partner.at(Complex(x, y)));
        sheet.curve("held", true, &edge);
        legend.push(("held", true, "embedded partner"));
    }
    for (at, name) in limits {
        plot.mark(&mut sheet, *at, name);
    }
    let mut x = LEFT;
    for (class, dashed, text) in legend {
        sheet.curve(class, dashed, &format!("M{x:.1} 46L{:.1} 46", x + 22.0));
        sheet.text((x + 28.0, 50.0), "soft", Anchor::Start, 12.0, text);
        x += 28.0 + width(text, 12.0) + 18.0;
    }
    let w = (LEFT + plot.width).max(x).max(LEFT + width(&title, 17.5)) + 24.0;
    sheet.finish(w, TOP + height + BELOW, &title)
}

/// A polynomial in several variables at complex numbers.
fn value(p: &[(Vec<u32>, f64)], z: &[Complex]) -> Complex {
    p.iter().fold(Complex(0.0, 0.0), |sum, (e, c)| {
        let powers = e.iter().zip(z);
        let term = powers.fold(Complex(*c, 0.0), |t, (n, z)| {
            (0..*n).fold(t, |t, _| t.times(*z))
        });
        sum.plus(term)
    })
}

struct Joint(Vec<(Vec<u32>, f64)>, Vec<(Vec<u32>, f64)>);

impl Joint {
    fn new(f: &Function) -> Joint {
        let floats = |p: &Many| p.0.iter().map(|(e, c)| (e.clone(), c.to_f64())).collect();
        Joint(floats(&f.numerator), floats(&f.denominator))
    }
    fn at(&self, z: &[Complex]) -> f64 {
        value(&self.0, z).modulus() / value(&self.1, z).modulus()
    }
}

/// Two fields: both decay, and one oscillates while the other one decays.
fn two(name: &str, a: &Additive) -> Option<String> {
    let [first, second] = &a.fields[..] else {
        return None;
    };
    let level = Joint::new(&a.joint.function);
    let real = |field: usize| {
        let end = match a.joint.alone[field].as_ref().and_then(|s| s.real.as_ref()) {
            Some(Extent::Until { hi, .. }) => 1.5 * hi.to_f64(),
            _ => 6.0,
        };
        (-end, 0.2 * end)
    };
    let imaginary = |field: usize| match a.joint.alone[field]
        .as_ref()
        .and_then(|s| s.imaginary_squared.as_ref())
    {
        Some(Extent::Until { hi, .. }) if hi.to_f64() > 0.1 => 1.6 * hi.to_f64().sqrt(),
        _ => 3.0,
    };
    let axis = |(from, to): (f64, f64), name: String| Axis { from, to, name };
    let side = 300.0;
    let mut sheet = Sheet::default();
    let title = format!("Where {name} is stable");
    sheet.heading(LEFT, 28.0, &title);
    sheet.text((LEFT, 50.0), "soft", Anchor::Start, 12.0, "shaded: |R| ≤ 1");
    let up = imaginary(0);
    let plots = [
        (
            Plot {
                x: axis(real(1), format!("hλ of {second}, real")),
                y: axis(real(0), format!("hλ of {first}, real")),
                left: LEFT,
                top: TOP,
                width: side,
                height: side,
            },
            false,
        ),
        (
            Plot {
                x: axis(real(1), format!("hλ of {second}, real")),
                y: axis((-up, up), format!("hλ of {first}, imaginary")),
                left: LEFT + side + 84.0,
                top: TOP,
                width: side,
                height: side,
            },
            true,
        ),
    ];
    for (plot, turned) in &plots {
        let (inside, edge) = plot.around(|x, y| {
            let own = if *turned {
                Complex(0.0, y)
            } else {
                Complex(y, 0.0)
            };
            level.at(&[own, Complex(x, 0.0)])
        });
        plot.axes(&mut sheet);
        sheet.filled("band", &inside);
        sheet.curve("line", false, &edge);
    }
    Some(sheet.finish(LEFT + 2.0 * side + 84.0 + 24.0, TOP + side + BELOW, &title))
}
