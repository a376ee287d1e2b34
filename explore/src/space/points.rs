//! The points of a space: what its names' values are expanded to, drawn, and what the conditions leave.

use super::{Drawn, Listed, MOST, Name, Point, Reader, Samples, Value, Values, one_line};
use odec_compiler::codes;
use odec_compiler::scheme::Coeff;
use odec_compiler::scheme::scalar::{Scope, exact};
use odec_exact::Exact;
use odec_grammar::Diagnostic;
use odec_grammar::ast::{Block, Condition, ExprKind, Range};
use odec_runtime::system::hash::sha256;

impl Reader<'_> {
    /// All points that the conditions leave.
    pub(super) fn points(
        &mut self,
        block: &Block,
        axes: &[(Name, Values)],
        samples: Option<Samples>,
    ) -> Option<Vec<Point>> {
        let drawn = axes.iter().find(|(_, v)| matches!(v, Values::Drawn(_)));
        match (drawn, samples) {
            (Some((name, _)), None) => {
                let message = format!("how many values of `{}` are drawn is not said", name.shown);
                let d = Diagnostic::error(codes::MISSING_ITEM, name.span, message);
                self.sink.push(
                    d.help("say how many, and by which seed: `search random(samples: 8, seed: 0)`"),
                );
                return None;
            }
            (None, Some(_)) => {
                let message = "nothing is drawn in this space";
                let d = Diagnostic::error(codes::NO_EFFECT, block.span, message);
                self.sink.push(d.help(
                    "draw a value: `lr in log_uniform(1e-4, 1e-2)`, or leave `random` out: all listed points are tried",
                ));
                return None;
            }
            _ => {}
        }
        let draws = samples.map_or(1, |s| s.number);
        let counted = axes.iter().map(|(_, v)| match v {
            Values::Listed(list) => list.iter().map(Listed::count).fold(0, u128::saturating_add),
            Values::Drawn(_) => 1,
        });
        let count = counted.fold(u128::from(draws), u128::saturating_mul);
        if count > MOST {
            let message = match count {
                u128::MAX => "this space has more points than can be counted".to_string(),
                n => format!("this space has {} points", grouped(n)),
            };
            let d = Diagnostic::error(codes::TOO_LARGE, block.span, message);
            self.sink.push(
                d.label(format!("at most {} are tried", grouped(MOST)))
                    .help("list fewer values, or draw some: `search random(samples: 50, seed: 0)`"),
            );
            return None;
        }
        let mut points = vec![(0, Point(Vec::new()))];
        if draws > 1 {
            points = (0..draws).map(|n| (n, Point(Vec::new()))).collect();
        }
        // The first name varies slowest, and what is drawn slower than all.
        for (name, values) in axes {
            let listed = match values {
                Values::Listed(list) => list.iter().flat_map(|l| self.filled(l)).collect(),
                Values::Drawn(_) => Vec::new(),
            };
            let mut next = Vec::new();
            for (draw, point) in points {
                let own = match (values, samples) {
                    (Values::Drawn(how), Some(s)) => vec![self.draw(name, how, s.seed, draw)],
                    _ => listed.clone(),
                };
                for value in own {
                    let mut longer = point.clone();
                    longer.0.push(value);
                    next.push((draw, longer));
                }
            }
            points = next;
        }
        let mut kept: Vec<Point> = Vec::new();
        for (_, point) in points {
            let mut keeps = true;
            for c in &block.conditions {
                keeps &= self.keeps(c, axes, &point)?;
            }
            let texts = |p: &Point| p.0.iter().map(|v| v.text.clone()).collect::<Vec<_>>();
            // Values may be given twice: `[2, 1..=3]`.
            if keeps && !kept.iter().any(|k| texts(k) == texts(&point)) {
                kept.push(point);
            }
        }
        if kept.is_empty() {
            let at = block.conditions.first().map_or(block.span, |c| c.span);
            let d = Diagnostic::error(codes::LIST_LENGTH, at, "no point of this space is left");
            let d = d.label("this holds for none");
            self.sink.push(
                block
                    .conditions
                    .iter()
                    .skip(1)
                    .fold(d, |d, c| d.also(c.span, "together with this")),
            );
            return None;
        }
        Some(kept)
    }

    /// Whether a condition holds at a point.
    fn keeps(&mut self, c: &Condition, axes: &[(Name, Values)], point: &Point) -> Option<bool> {
        let mut scope = Scope::new();
        for ((name, _), value) in axes.iter().zip(&point.0) {
            let last = name.path.rsplit('.').next().unwrap_or(&name.path);
            if let Ok(number) = Exact::decimal(&value.text) {
                scope.insert(last.to_string(), Coeff::constant(number));
            }
        }
        let found = exact(&c.of, &scope).and_then(|x| {
            let entries = match &c.values.kind {
                ExprKind::List(entries) => &entries[..],
                _ => std::slice::from_ref(&c.values),
            };
            let mut any = false;
            for e in entries {
                any |= match &e.kind {
                    ExprKind::Range(r) => between(&x, r, &scope)?,
                    _ => exact(e, &scope)? == x,
                };
            }
            Ok(any)
        });
        match found {
            Ok(holds) => Some(holds),
            Err(d) => {
                let d = match d.code == codes::UNKNOWN_NAME && d.help.is_none() {
                    true => {
                        d.help("a condition reads the names of this block whose values are numbers")
                    }
                    false => d,
                };
                self.sink.push(d);
                None
            }
        }
    }

    /// All values of an entry.
    fn filled(&self, l: &Listed) -> Vec<Value> {
        let mut texts = vec![(
            self.sources.text(l.span.source)[l.span.start as usize..l.span.end as usize]
                .to_string(),
            0i64,
        )];
        for hole in &l.holes {
            let (from, to) = (hole.span.start - l.span.start, hole.span.end - l.span.start);
            let mut next = Vec::new();
            for (text, shift) in texts {
                for n in 0..hole.count {
                    let number = (hole.first + n as i64).to_string();
                    let (from, to) = (i64::from(from) + shift, i64::from(to) + shift);
                    let whole =
                        format!("{}{number}{}", &text[..from as usize], &text[to as usize..]);
                    next.push((whole, shift + number.len() as i64 - (to - from)));
                }
            }
            texts = next;
        }
        let value = |(text, _): (String, i64)| Value {
            text: one_line(&text),
            span: l.span,
        };
        texts.into_iter().map(value).collect()
    }

    /// The value of a draw: the same whatever else is explored.
    fn draw(&self, name: &Name, how: &Drawn, seed: u64, draw: u64) -> Value {
        let share = share(&name.path, seed, draw);
        let number = |x: f64| Value {
            text: decimal(x),
            span: name.span,
        };
        match how {
            Drawn::Uniform { low, high, step } => match step {
                None => number(low + share * (high - low)),
                Some(step) => {
                    let (first, last) = (libm::ceil(low / step), libm::floor(high / step));
                    let at = libm::floor(share * (last - first + 1.0)).min(last - first);
                    number((first + at) * step)
                }
            },
            Drawn::LogUniform { low, high } => {
                let (low, high) = (libm::log(*low), libm::log(*high));
                number(libm::exp(low + share * (high - low)))
            }
            Drawn::Choice(list) => {
                let all: Vec<Value> = list.iter().flat_map(|l| self.filled(l)).collect();
                let at = (share * all.len() as f64) as usize;
                all[at.min(all.len() - 1)].clone()
            }
        }
    }
}

impl Listed {
    fn count(&self) -> u128 {
        let counts = self.holes.iter().map(|h| u128::from(h.count));
        counts.fold(1, u128::saturating_mul)
    }
}

/// A number of [0, 1) that belongs to a name, a seed and a draw: 53 bits of a hash.
fn share(path: &str, seed: u64, draw: u64) -> f64 {
    let hash = sha256(format!("odec explore 1\n{path}\n{seed}\n{draw}").as_bytes());
    let bits = u64::from_str_radix(&hash[..16], 16).unwrap_or(0) >> 11;
    bits as f64 / (1u64 << 53) as f64
}

/// Six digits, which every source of numbers reads alike.
fn decimal(x: f64) -> String {
    let rounded: f64 = format!("{x:.5e}").parse().unwrap_or(x);
    match x == 0.0 || (1e-4..1e9).contains(&x.abs()) {
        true => format!("{rounded}"),
        false => format!("{rounded:e}"),
    }
}

/// Whether a number lies in a range, either end of which may be missing.
fn between(x: &Exact, r: &Range, scope: &Scope) -> Result<bool, Diagnostic> {
    let above = match &r.start {
        Some(e) => *x >= exact(e, scope)?,
        None => true,
    };
    let below = match &r.end {
        Some(e) if r.inclusive => *x <= exact(e, scope)?,
        Some(e) => *x < exact(e, scope)?,
        None => true,
    };
    Ok(above && below)
}

/// `1000000` as `1,000,000`.
fn grouped(n: u128) -> String {
    let digits = n.to_string();
    let groups = digits.as_bytes().rchunks(3).rev();
    let groups: Vec<&str> = groups
        .map(|g| std::str::from_utf8(g).unwrap_or_default())
        .collect();
    groups.join(",")
}
