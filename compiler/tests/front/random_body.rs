//! Random bodies with their meaning: a text, and what it computes in f64 by plain loops over tokens and columns.
//!
//! A parameter's numbers follow from its path, so a wrong name gives wrong numbers. Knows nothing of graphs.

/// Of the state.
pub const WIDTH: usize = 4;
/// Kinds of tokens.
pub const VOCAB: usize = 5;

/// What the bodies of a run of tests must contain among them.
pub const FORMS: [&str; 8] = [
    "attend(", "scan(", "cumsum(", "shift(", "softmax(", "concat(", "inner(", "m^2",
];

/// The i-th number of a parameter.
pub fn number(path: &str, i: usize) -> f64 {
    let from = path
        .bytes()
        .fold(11, |h: usize, b| (h * 31 + b as usize) % 9973);
    ((from + 41 * i) % 97) as f64 / 97.0 - 0.5
}

/// A row of columns for each token.
type Value = Vec<Vec<f64>>;

/// Numbers below a bound, the same for one seed.
struct Random(u64);

impl Random {
    fn below(&mut self, n: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 >> 11) as usize % n
    }
}

/// A body as it is written and computed.
struct Writer {
    random: Random,
    text: String,
    named: Vec<(String, Value)>,
}

/// A model of one step along a random body, and its logits for these tokens.
pub fn random(seed: u64, tokens: &[usize]) -> (String, Value) {
    let row = |table: &str, n: usize| -> Vec<f64> {
        (0..WIDTH).map(|i| number(table, n * WIDTH + i)).collect()
    };
    let x: Value = tokens
        .iter()
        .map(|t| row("embed.token.weight", *t))
        .collect();
    let mut w = Writer {
        random: Random(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1),
        text: String::new(),
        named: vec![("id".into(), x.clone())],
    };
    for n in 0..4 + w.random.below(6) {
        w.statement(&format!("v{n}"));
    }
    let result = w.end();
    let text = format!(
        "layer inner(u: value, v: value, n, c: number = 1/2) {{\n  w = u |> linear(n)\n  return w*v + c\n}}\n\
         field g(x) {{ w = x |> linear(2); return w - 1/2 }}\nfield f {{\n{}}}\n\
         model m {{\n  input tokens(vocab: {VOCAB}, context: 8)\n  embed learned(width: {WIDTH})\n  \
         evolve euler(f) for 1 step\n  output logits\n}}\n",
        w.text
    );
    let logits = x.iter().zip(&result).map(|(x, d)| {
        let y: Vec<f64> = x.iter().zip(d).map(|(x, d)| x + d).collect();
        linear(&y, "output.logits.weight", VOCAB)
    });
    (text, logits.collect())
}

fn linear(x: &[f64], path: &str, columns: usize) -> Vec<f64> {
    mapped(x, |i| number(path, i), columns)
}

/// By the matrix of these numbers, row by row.
fn mapped(x: &[f64], matrix: impl Fn(usize) -> f64, columns: usize) -> Vec<f64> {
    let entry = |r: usize, i: usize| matrix(r * x.len() + i);
    let row = |r: usize| x.iter().enumerate().map(|(i, x)| x * entry(r, i)).sum();
    (0..columns).map(row).collect()
}

/// Each token from what the one before it has become, zero for the first.
fn carried(like: &Value, next: impl Fn(usize, f64, usize) -> f64) -> Value {
    let mut all: Value = Vec::new();
    for (t, row) in like.iter().enumerate() {
        let before = |i: usize| all.last().map_or(0.0, |row| row[i]);
        let row = (0..row.len()).map(|i| next(t, before(i), i)).collect();
        all.push(row);
    }
    all
}

fn shares(row: &[f64]) -> Vec<f64> {
    let each: Vec<f64> = row.iter().map(|x| x.exp()).collect();
    let sum: f64 = each.iter().sum();
    each.iter().map(|e| e / sum).collect()
}

/// One causal head whose queries and keys are `x`.
fn attended(x: &Value, values: &Value) -> Value {
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let row = |t: usize| {
        let scale = (x[t].len() as f64).sqrt();
        let scores: Vec<f64> = (0..=t).map(|s| dot(&x[t], &x[s]) / scale).collect();
        let shares = shares(&scores);
        let column = |c: usize| shares.iter().zip(values).map(|(p, v)| p * v[c]).sum();
        (0..values[t].len()).map(column).collect()
    };
    (0..x.len()).map(row).collect()
}

fn each(a: &Value, f: impl Fn(f64) -> f64) -> Value {
    let row = |row: &Vec<f64>| row.iter().map(|x| f(*x)).collect();
    a.iter().map(row).collect()
}

/// Element by element; one column stands for each of the other's.
fn zip(a: &Value, b: &Value, f: impl Fn(f64, f64) -> f64) -> Value {
    let row = |(a, b): (&Vec<f64>, &Vec<f64>)| {
        let n = a.len().max(b.len());
        let at = |row: &[f64], i: usize| row[if row.len() == 1 { 0 } else { i }];
        (0..n).map(|i| f(at(a, i), at(b, i))).collect()
    };
    a.iter().zip(b).map(row).collect()
}

impl Writer {
    fn tokens(&self) -> usize {
        self.named[0].1.len()
    }

    fn any(&mut self) -> (String, Value) {
        let n = self.random.below(self.named.len());
        self.named[n].clone()
    }

    /// A value that meets another element by element.
    fn beside(&mut self, columns: usize) -> (String, Value) {
        let fits = |v: &Value| v[0].len() == columns || v[0].len() == 1 || columns == 1;
        let fitting = self.named.iter().filter(|(_, v)| fits(v));
        let fitting: Vec<(String, Value)> = fitting.cloned().collect();
        let n = self.random.below(fitting.len());
        fitting[n].clone()
    }

    fn set(&mut self, name: &str, text: &str, value: Value) {
        self.text += &format!("  {name} = {text}\n");
        self.named.push((name.into(), value));
    }

    fn statement(&mut self, name: &str) {
        let (a, x) = self.any();
        let columns = x[0].len();
        let of = |part: &str| format!("step.0.f.{part}");
        match self.random.below(18) {
            0 | 1 => {
                let n = 1 + self.random.below(5);
                let path = of(&format!("{name}.weight"));
                let y = x.iter().map(|row| linear(row, &path, n)).collect();
                self.set(name, &format!("{a} |> linear({n})"), y);
            }
            2 => {
                let n = [1, 1, columns][self.random.below(3)];
                let path = of(name);
                let row: Vec<f64> = (0..n).map(|i| number(&path, i)).collect();
                let shape = if n == 1 {
                    String::new()
                } else {
                    format!("[{n}]")
                };
                self.text += &format!("  learn {name}{shape} = 1/3\n");
                let rows = self.tokens();
                self.named.push((name.into(), vec![row; rows]));
            }
            3 => {
                let (b, y) = self.beside(columns);
                let sum = zip(&x, &y, |a, b| 2.0 * a - b / 3.0 + 1.0 - 0.5 * (a - b));
                self.set(name, &format!("2*{a} - {b}/3 + 1 - 1/2*({a} - {b})"), sum);
            }
            4 => {
                let (b, y) = self.beside(columns);
                self.set(
                    name,
                    &format!("-{a} * (3*{b} - 1)"),
                    zip(&x, &y, |a, b| -a * (3.0 * b - 1.0)),
                );
            }
            5 => {
                let (b, y) = self.beside(columns);
                let quotient = zip(&x, &y, |a, b| 2.0 * a / (b * b + 1.0));
                self.set(name, &format!("2*{a} / ({b}^2 + 1)"), quotient);
            }
            6 => self.set(
                name,
                &format!("(1 + {a}^2)^(1/2) - 1"),
                each(&x, |a| (1.0 + a * a).sqrt() - 1.0),
            ),
            7 => {
                let y = each(&x, |a| a.powi(3) * (2.0 + a * a).powf(-1.5));
                self.set(name, &format!("{a}^3 * (2 + {a}^2)^(-3/2)"), y);
            }
            8 => {
                let y = each(&x, |a| 1.0 / (1.0 + (-a).exp()));
                self.set(name, &format!("sigmoid({a})"), y);
            }
            9 => {
                let (b, y) = self.any();
                let side = |(a, b): (&Vec<f64>, &Vec<f64>)| [&a[..], &b[..]].concat();
                let both = x.iter().zip(&y).map(side).collect();
                self.set(name, &format!("concat({a}, {b})"), both);
            }
            10 => {
                let (b, y) = self.any();
                let n = y[0].len();
                let path = of(&format!("{name}.w.weight"));
                let w: Value = x.iter().map(|row| linear(row, &path, n)).collect();
                self.set(
                    name,
                    &format!("inner({a}, {b}, n: {n})"),
                    zip(&w, &y, |w, v| w * v + 0.5),
                );
            }
            11 => {
                let (b, y) = self.any();
                self.set(
                    name,
                    &format!("attend({a}, {a}, {b}, heads: 1, causal)"),
                    attended(&x, &y),
                );
            }
            12 => {
                let keeps = each(&x, |a| 1.0 / (1.0 + (-a).exp()));
                let y = carried(&x, |t, before, i| keeps[t][i] * before + x[t][i]);
                self.set(name, &format!("scan(sigmoid({a}), {a})"), y);
            }
            13 => {
                let y = carried(&x, |t, before, i| before + x[t][i]);
                self.set(name, &format!("cumsum({a})"), y);
            }
            14 => {
                let zeros = vec![vec![0.0; columns]];
                let before = &x[..x.len() - 1];
                self.set(name, &format!("shift({a})"), [&zeros, before].concat());
            }
            15 => {
                let y = x.iter().map(|row| shares(row)).collect();
                self.set(name, &format!("softmax({a})"), y);
            }
            16 => {
                let n = 1 + self.random.below(5);
                self.text += &format!("  learn {name}m[{n}, {columns}] = normal\n");
                let path = of(&format!("{name}m.weight"));
                let matrix = |i: usize| number(&path, i).powi(2) - number(&path, i) / 2.0;
                let y = x.iter().map(|row| mapped(row, matrix, n)).collect();
                self.set(name, &format!("linear({a}, {name}m^2 - {name}m/2)"), y);
            }
            _ => {
                let x = self.named[0].1.clone();
                let y: Value = x
                    .iter()
                    .map(|row| linear(row, &of("g.w.weight"), 2))
                    .collect();
                self.set(name, "g(id) * g", each(&y, |y| (y - 0.5) * (y - 0.5)));
            }
        }
    }

    /// The sum of all values, those of other widths through a map.
    fn end(&mut self) -> Value {
        let mut names = Vec::new();
        let mut sum = vec![vec![0.0; WIDTH]; self.tokens()];
        for (n, (name, value)) in self.named.clone().into_iter().enumerate() {
            let (name, value) = match value[0].len() {
                1 | WIDTH => (name, value),
                _ => {
                    let path = format!("step.0.f.t{n}.weight");
                    let own = value.iter().map(|row| linear(row, &path, WIDTH));
                    let own: Value = own.collect();
                    self.text += &format!("  t{n} = linear({name}, {WIDTH})\n");
                    (format!("t{n}"), own)
                }
            };
            sum = zip(&sum, &value, |a, b| a + b / 8.0);
            names.push(name);
        }
        self.text += &format!("  return ({})/8\n", names.join(" + "));
        sum
    }
}
