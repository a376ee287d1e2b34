//! Damage to JSON and bytes, from a stream of numbers that a case's number begins.

use serde_json::{Number, Value};

/// A fixed stream of numbers (splitmix64).
pub struct Stream(u64);

impl Stream {
    pub fn new(family: &str, case: u64) -> Stream {
        let seed = family.bytes().fold(0u64, |s, b| s * 31 + u64::from(b));
        Stream(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ case.wrapping_mul(0xd6e8_feb8_6659_fd93))
    }

    pub fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`.
    pub fn below(&mut self, n: usize) -> usize {
        (self.next() % n.max(1) as u64) as usize
    }

    pub fn pick<'a, T>(&mut self, all: &'a [T]) -> &'a T {
        &all[self.below(all.len())]
    }
}

/// Numbers at which something ends.
const EDGES: [u64; 16] = [
    0,
    1,
    2,
    3,
    7,
    63,
    65,
    4096,
    1 << 20,
    (1 << 31) - 1,
    u32::MAX as u64,
    1 << 40,
    1 << 46,
    1 << 53,
    i64::MAX as u64,
    u64::MAX,
];

/// Damages a value somewhere: on the way down every branch is as likely as its neighbours, so what there is little of is hit as often.
pub fn value(v: &mut Value, s: &mut Stream) {
    let whole = v.clone();
    at(v, &whole, s);
}

fn at(v: &mut Value, whole: &Value, s: &mut Stream) {
    let deeper = s.below(12) > 0;
    match v {
        Value::Array(all) if !all.is_empty() && deeper => {
            let n = s.below(all.len());
            at(&mut all[n], whole, s);
        }
        Value::Object(all) if !all.is_empty() && deeper => {
            let n = s.below(all.len());
            let child = all.values_mut().nth(n).expect("a child");
            at(child, whole, s);
        }
        Value::Array(all) => array(all, s),
        Value::Object(all) => {
            let n = s.below(all.len());
            if let Some(name) = all.keys().nth(n).cloned() {
                all.remove(&name);
            }
        }
        Value::Number(n) => *v = number(n, s),
        Value::Bool(b) => *v = Value::Bool(!*b),
        Value::String(_) => *v = text(whole, s),
        Value::Null => *v = Value::from(s.pick(&EDGES).to_owned()),
    }
}

fn array(all: &mut Vec<Value>, s: &mut Stream) {
    if all.is_empty() {
        return all.push(Value::from(0));
    }
    let (a, b) = (s.below(all.len()), s.below(all.len()));
    match s.below(4) {
        0 => _ = all.remove(a),
        1 => all.insert(a, all[b].clone()),
        2 => all.swap(a, b),
        _ => all.truncate(a),
    }
}

fn number(n: &Number, s: &mut Stream) -> Value {
    let Some(old) = n.as_u64() else {
        let strange = [0.0, -0.0, -1.0, 1e308, -1e308, 5e-324, 0.5, 1e-9];
        return Value::from(*s.pick(&strange));
    };
    match s.below(8) {
        0 => Value::from(old.wrapping_add(1)),
        1 => Value::from(old.wrapping_sub(1)),
        2 => Value::from(old.wrapping_mul(2)),
        3 => Value::from(old / 2),
        4 => Value::from(-1),
        _ => Value::from(*s.pick(&EDGES)),
    }
}

/// A text of the same document, or one that means trouble.
fn text(whole: &Value, s: &mut Stream) -> Value {
    let strange = [
        "",
        "/",
        "../../etc/passwd",
        "*",
        "\u{0}",
        "f32",
        "bf16",
        "i32",
    ];
    match s.below(3) {
        0 => Value::from(*s.pick(&strange)),
        1 => Value::from("x".repeat(1 << s.below(16))),
        _ => {
            let mut all = Vec::new();
            texts(whole, &mut all);
            all.get(s.below(all.len())).cloned().unwrap_or_default()
        }
    }
}

fn texts(v: &Value, all: &mut Vec<Value>) {
    match v {
        Value::String(_) => all.push(v.clone()),
        Value::Array(list) => list.iter().for_each(|v| texts(v, all)),
        Value::Object(list) => list.values().for_each(|v| texts(v, all)),
        _ => {}
    }
}

/// Damages bytes: some changed, cut off, doubled or zero.
pub fn bytes(all: &mut Vec<u8>, s: &mut Stream) {
    let at = s.below(all.len());
    match s.below(4) {
        0 => all.truncate(at),
        1 => all.extend_from_within(at..),
        2 => (0..=s.below(8)).for_each(|_| {
            let at = s.below(all.len());
            if let Some(b) = all.get_mut(at) {
                *b = s.next() as u8;
            }
        }),
        _ => all[at..].fill(0),
    }
}
