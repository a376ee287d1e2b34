//! LoRA factors in files and runs: which are loaded as they are, and which are added to their matrix.
//!
//! ```text
//! W' = W + B A       W [out, in], B [out, r] at `<path of W>.lora.b`, A [r, in] at `<path of W>.lora.a`
//! ```
//! in f64, rounded once (Hu et al. 2021, arXiv:2106.09685, section 4.1). Factors of weights of time belong to steps and to no tensor: they are
//! taken where a model has just the same, and are left as they are otherwise. Takes tensors by name; gives what each parameter is made of.
//! Leaves names and numbers to [`mod@crate::parameters::import`].

use crate::device::memory::Buffer;
use crate::executor::{Executor, State};
use odec_program::manifest::{Param, added};
use std::collections::{BTreeMap, BTreeSet};
use std::io;

/// Shapes of a file's tensors, by name.
pub type Shapes = BTreeMap<String, Vec<u64>>;

/// The two names at a matrix: of B, then of A.
pub fn at(matrix: &str) -> [String; 2] {
    [added::LORA_B, added::LORA_A].map(|end| format!("{matrix}{end}"))
}

/// Whether a file has factors of a matrix.
///
/// # Errors
/// A line about what is there and does not fit.
pub fn of(file: &Shapes, matrix: &str, shape: &[u64]) -> Result<bool, String> {
    let [b, a] = at(matrix);
    match (
        file.get(&b).map(|s| &s[..]),
        file.get(&a).map(|s| &s[..]),
        shape,
    ) {
        (None, None, _) => Ok(false),
        (Some([rows, r]), Some([k, cols]), [m, n]) if r == k && rows == m && cols == n => Ok(true),
        (fb, fa, _) => Err(format!(
            "  wrong shape: {b} is {fb:?} and {a} is {fa:?}; their product must be {shape:?}"
        )),
    }
}

/// The factors in a file, and those that a model has, that belong to no tensor, where they are not the same ones; a line each.
/// `model` has all parameters.
pub fn of_steps(file: &Shapes, model: &Shapes) -> Vec<String> {
    let alone = |of: &Shapes| -> BTreeSet<(String, Vec<u64>)> {
        let own = of.iter().filter(|(name, _)| {
            added::factor_of(name).is_some_and(|matrix| !of.contains_key(matrix))
        });
        own.map(|(n, s)| (n.clone(), s.clone())).collect()
    };
    let (file, model) = (alone(file), alone(model));
    if file.is_empty() || file == model {
        return Vec::new();
    }
    let only = |a: &BTreeSet<_>, b: &BTreeSet<_>, what: &str| -> Vec<String> {
        let lines = a.difference(b);
        let line = |(name, shape): &(String, Vec<u64>)| format!("  {what}: {name} {shape:?}");
        lines.map(line).collect()
    };
    let mut lines = vec![
        "  LoRA factors of weights of time belong to single steps: only a model with the same steps and rank can load them".to_string(),
    ];
    lines.extend(only(&file, &model, "only in the file"));
    lines.extend(only(&model, &file, "only in the model"));
    lines
}

/// `W + B A`, B of `rank` columns.
pub fn merged(mut w: Vec<f64>, b: &[f64], a: &[f64], rank: usize) -> Vec<f64> {
    let cols = a.len() / rank.max(1);
    for (row, b) in w
        .chunks_exact_mut(cols.max(1))
        .zip(b.chunks_exact(rank.max(1)))
    {
        for (a, b) in a.chunks_exact(cols.max(1)).zip(b) {
            row.iter_mut().zip(a).for_each(|(w, a)| *w += b * a);
        }
    }
    w
}

/// The parameters of a run as others can use them: factors are added to their matrices; those of steps come as they are.
///
/// # Errors
/// When the system has no memory left.
pub fn exported(x: &Executor) -> io::Result<Vec<(&Param, Option<Buffer>)>> {
    let params = &x.manifest().params;
    let find = |path: &str| params.iter().find(|p| p.path == path);
    let mut out = Vec::new();
    for p in params {
        if added::matrix(&p.path).is_some_and(|matrix| find(matrix).is_some()) {
            continue;
        }
        let [b, a] = at(&p.path);
        let (Some(b), Some(a)) = (find(&b), find(&a)) else {
            out.push((p, None));
            continue;
        };
        let values = |p: &Param| x.of(State::Params, p).iter().collect::<Vec<f64>>();
        let w = merged(values(p), &values(b), &values(a), b.shape[1] as usize);
        let mut buffer = Buffer::zeroed(p.elements() * x.real().bytes())?;
        buffer.reals_mut(x.real()).fill(w.into_iter());
        out.push((p, Some(buffer)));
    }
    Ok(out)
}
