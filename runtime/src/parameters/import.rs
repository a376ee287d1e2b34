//! Imports and exports parameters as safetensors, with a map of names.
//!
//! Takes a file and, where its tensors are not called like the parameters, a [`NameMap`]: a JSON object from parameter paths to
//! tensor names. Names are exact but for `*`, which stands for one or more characters without a dot; what the stars of a
//! path stood for is put in place of those of its tensor name, in order. A path that the map does not have is its own tensor name. Shapes must
//! be equal; f32, f64, bf16 and f16 are read. Factors of low-rank adaptation are taken where the model has the same, and else are added to their
//! matrix, W + B A in f64 ([`mod@crate::parameters::factors`]). Leaves checkpoints with their hashes to [`mod@crate::parameters::checkpoint`].

use crate::executor::init;
use crate::executor::{Executor, State};
use crate::parameters::checkpoint::{self, CheckpointError, Tensor};
use crate::parameters::factors::{self, Shapes};
use crate::system::input;
use crate::system::output::{self, OutputError};
use crate::system::owned::CHECKPOINT;
use crate::system::shown::Shown;
use odec_program::manifest::added;
use safetensors::tensor::TensorView;
use safetensors::{Dtype, SafeTensors};
use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

/// From parameter paths to tensor names, both with stars.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NameMap(BTreeMap<String, String>);

/// Why parameters cannot be taken from a file.
#[derive(Debug, thiserror::Error)]
pub enum ImportError {
    #[error(
        "{path} is not a map of names: {reason}; expected a JSON object such as {{\"step.*.att.q.weight\": \"layers.*.q\"}}"
    )]
    Map { path: String, reason: String },
    #[error(transparent)]
    File(#[from] CheckpointError),
}

impl NameMap {
    /// Reads a map.
    ///
    /// # Errors
    /// When it is not an object of strings, or a tensor name has other stars than its path.
    pub fn open(path: &Path) -> Result<NameMap, ImportError> {
        let wrong = |reason: String| ImportError::Map {
            path: path.shown(),
            reason,
        };
        let text = input::read_text(path, input::most::MAP).map_err(|e| wrong(e.to_string()))?;
        let map: BTreeMap<String, String> =
            serde_json::from_str(&text).map_err(|e| wrong(e.to_string()))?;
        let stars = |s: &str| s.matches('*').count();
        if let Some((from, to)) = map.iter().find(|(from, to)| stars(to) > stars(from)) {
            return Err(wrong(format!("`{to}` has more stars than `{from}`")));
        }
        Ok(NameMap(map))
    }

    /// The tensor for a parameter: the exact entry, or those of all patterns that match.
    fn tensors(&self, path: &str) -> Vec<String> {
        if let Some(exact) = self.0.get(path) {
            return vec![exact.clone()];
        }
        let matching = self.0.iter().filter_map(|(pattern, tensor)| {
            let mut words = Vec::new();
            matches(pattern, path, &mut words).then(|| {
                let mut words = words.into_iter();
                let parts: Vec<&str> = tensor.split('*').collect();
                let mut name = parts[0].to_string();
                for part in &parts[1..] {
                    name += words.next().unwrap_or("");
                    name += part;
                }
                name
            })
        });
        matching.collect()
    }
}

/// Whether a path matches a pattern; `words` gets what its stars match.
fn matches<'p>(pattern: &str, path: &'p str, words: &mut Vec<&'p str>) -> bool {
    let Some((before, after)) = pattern.split_once('*') else {
        return pattern == path;
    };
    let Some(rest) = path.strip_prefix(before) else {
        return false;
    };
    let longest = rest.find('.').unwrap_or(rest.len());
    let ends = (1..=longest).rev().filter(|n| rest.is_char_boundary(*n));
    for end in ends {
        words.push(&rest[..end]);
        if matches(after, &rest[end..], words) {
            return true;
        }
        words.pop();
    }
    false
}

/// Where a run's parameters come from.
#[derive(Clone, Debug)]
pub struct Init {
    /// A safetensors file.
    pub file: PathBuf,
    pub map: NameMap,
}

impl Init {
    /// `path` is a safetensors file, or the folder of a run, whose last checkpoint it means.
    ///
    /// # Errors
    /// When the map cannot be read.
    pub fn open(path: &Path, map: Option<&Path>) -> Result<Init, ImportError> {
        let file = match path.is_dir() {
            true => path.join(CHECKPOINT),
            false => path.to_path_buf(),
        };
        let map = map.map_or_else(|| Ok(NameMap::default()), NameMap::open)?;
        Ok(Init { file, map })
    }

    /// Whether there is a tensor for each parameter, given by path and shape.
    ///
    /// # Errors
    /// The list of everything that is missing, ambiguous, or of the wrong shape or type.
    pub fn check<'p>(
        &self,
        params: impl Iterator<Item = (&'p str, &'p [u64])>,
    ) -> Result<(), ImportError> {
        let names = |file: &SafeTensors| self.names(file, params);
        checkpoint::with_tensors(&self.file, names)?;
        Ok(())
    }

    /// Fills all parameters but those that training adds and the file does not have; gives the names of unused tensors.
    ///
    /// # Errors
    /// Those of [`Init::check`]; nothing is copied then.
    pub fn import(&self, x: &mut Executor) -> Result<Vec<String>, ImportError> {
        let artifact = x.artifact().clone();
        let params = &artifact.manifest().params;
        let unused = checkpoint::with_tensors(&self.file, |file| {
            let shapes = params.iter().map(|p| (p.path.as_str(), &p.shape[..]));
            let names = self.names(file, shapes)?;
            let real = x.real();
            let mut memory = x.state_mut(State::Params);
            let values = |name: &str| {
                let numbers = file.tensor(name).ok().and_then(|t| numbers(&t));
                numbers.unwrap_or_default()
            };
            for (p, from) in params.iter().zip(&names) {
                let numbers = match &from[..] {
                    [] => continue,
                    [own, b, a] => {
                        let (b, a) = (values(b), values(a));
                        let rows = p.shape.first().copied().unwrap_or(1).max(1) as usize;
                        factors::merged(values(own), &b, &a, b.len() / rows)
                    }
                    [own, ..] => values(own),
                };
                memory.part(init::range(p, real)).fill(numbers.into_iter());
            }
            let used: BTreeSet<&String> = names.iter().flatten().collect();
            let names = file.names().into_iter().map(String::from);
            Ok(names.filter(|n| !used.contains(n)).collect())
        })?;
        Ok(unused)
    }

    /// What each parameter is made of: its tensor, with its factors behind it where they are to be added; nothing, where it starts
    /// as it would without a file.
    fn names<'p>(
        &self,
        file: &SafeTensors,
        params: impl Iterator<Item = (&'p str, &'p [u64])>,
    ) -> Result<Vec<Vec<String>>, CheckpointError> {
        let params: Vec<(&str, &[u64])> = params.collect();
        let tensors = file.tensors();
        let tensors = tensors
            .iter()
            .filter(|(name, t)| READABLE.contains(&t.dtype()) && !checkpoint::is_moment(name));
        let shapes: Shapes = tensors
            .map(|(name, t)| (name.clone(), t.shape().iter().map(|d| *d as u64).collect()))
            .collect();
        let (mut wrong, mut names) = (Vec::new(), Vec::new());
        let mut asked = BTreeMap::new();
        for (path, _) in &params {
            let tensor = match added::matrix(path) {
                // A factor goes by the name of its matrix.
                Some(matrix) => {
                    let end = &path[matrix.len()..];
                    self.map
                        .tensors(matrix)
                        .iter()
                        .map(|m| format!("{m}{end}"))
                        .collect()
                }
                None => self.map.tensors(path),
            };
            match &tensor[..] {
                [] => _ = asked.insert(*path, path.to_string()),
                [one] => _ = asked.insert(*path, one.clone()),
                several => {
                    let all = several.join(" and ");
                    wrong.push(format!("  ambiguous: {path} is {all}"));
                }
            }
        }
        let model: Shapes = params
            .iter()
            .filter_map(|(path, shape)| Some((asked.get(path)?.clone(), shape.to_vec())))
            .collect();
        wrong.extend(factors::of_steps(&shapes, &model));
        // Factors are taken in pairs.
        let same = |name: &String| shapes.contains_key(name) && shapes.get(name) == model.get(name);
        let taken = |matrix: &str| factors::at(matrix).iter().all(same);
        for (path, shape) in params {
            let Some(name) = asked.get(path) else {
                continue;
            };
            if let Some(matrix) = added::matrix(name) {
                let takes = match added::factor_of(name) {
                    Some(_) => taken(matrix),
                    None => same(name),
                };
                names.push(Vec::from_iter(takes.then(|| name.clone())));
                continue;
            }
            let called = match name == path {
                true => String::new(),
                false => format!(" (for {path})"),
            };
            let mut from = vec![name.clone()];
            match file.tensor(name) {
                Err(_) => wrong.push(format!("  missing: {name} {shape:?}{called}")),
                Ok(t)
                    if t.shape()
                        .iter()
                        .map(|d| *d as u64)
                        .ne(shape.iter().copied()) =>
                {
                    let is = t.shape();
                    wrong.push(format!(
                        "  wrong shape: {name} is {is:?} and must be {shape:?}{called}"
                    ));
                }
                Ok(t) if !READABLE.contains(&t.dtype()) => wrong.push(format!(
                    "  wrong type: {name} is {:?} and must be F32, F64, BF16 or F16{called}",
                    t.dtype()
                )),
                Ok(_) if taken(name) => {}
                Ok(_) => match factors::of(&shapes, name, shape) {
                    Ok(true) => from.extend(factors::at(name)),
                    Ok(false) => {}
                    Err(line) => wrong.push(line),
                },
            }
            names.push(from);
        }
        match wrong.is_empty() {
            true => Ok(names),
            false => Err(checkpoint::mismatch(&self.file, wrong)),
        }
    }
}

/// Writes all parameters under their paths, factors added to their matrices, and nothing else; gives how many tensors and numbers.
///
/// # Errors
/// When the disk refuses, or the file belongs to a run.
pub fn export(path: &Path, x: &Executor) -> Result<(usize, u64), OutputError> {
    let made = factors::exported(x).map_err(|source| OutputError::Write {
        path: path.shown(),
        source,
    })?;
    let list = made.iter().map(|(p, merged)| {
        let values = match merged {
            Some(buffer) => buffer.reals(x.real()).part(0..p.elements() as usize),
            None => x.of(State::Params, p),
        };
        Tensor::new(&p.path, &p.shape, values)
    });
    let list: Vec<Tensor> = list.collect();
    output::write(path, |out| checkpoint::put_tensors(out, &list, &[]))?;
    Ok((list.len(), made.iter().map(|(p, _)| p.elements()).sum()))
}

/// The types of numbers that are read.
const READABLE: [Dtype; 4] = [Dtype::F32, Dtype::F64, Dtype::BF16, Dtype::F16];

/// The elements of a tensor.
fn numbers(t: &TensorView) -> Option<Vec<f64>> {
    let bytes = t.data();
    let two = || bytes.as_chunks().0.iter().map(|b| u16::from_le_bytes(*b));
    Some(match t.dtype() {
        Dtype::F32 => bytes
            .as_chunks()
            .0
            .iter()
            .map(|b| f32::from_le_bytes(*b).into())
            .collect(),
        Dtype::F64 => {
            let wide = bytes.as_chunks().0.iter();
            wide.map(|b| f64::from_le_bytes(*b)).collect()
        }
        Dtype::BF16 => two()
            .map(|b| f32::from_bits(u32::from(b) << 16).into())
            .collect(),
        Dtype::F16 => two().map(|b| half(b).into()).collect(),
        _ => return None,
    })
}

/// A binary16 number (IEEE 754-2008).
fn half(bits: u16) -> f32 {
    let sign = if bits >> 15 == 1 { -1.0 } else { 1.0 };
    let fraction = f32::from(bits & 0x3FF);
    sign * match (bits >> 10) & 0x1F {
        0 => fraction * 2f32.powi(-24),
        31 if fraction == 0.0 => f32::INFINITY,
        31 => f32::NAN,
        e => (1.0 + fraction / 1024.0) * 2f32.powi(i32::from(e) - 15),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn map(pairs: &[(&str, &str)]) -> NameMap {
        let pair = |(a, b): &(&str, &str)| (a.to_string(), b.to_string());
        NameMap(pairs.iter().map(pair).collect())
    }

    #[test]
    fn stars_stand_for_words() {
        let m = map(&[
            ("step.*.att.*.weight", "layers.*.attn.*_proj.weight"),
            ("step.0.att.q.weight", "first"),
            ("embed.weight", "wte"),
        ]);
        assert_eq!(
            m.tensors("step.12.att.k.weight"),
            ["layers.12.attn.k_proj.weight"]
        );
        assert_eq!(m.tensors("step.0.att.q.weight"), ["first"]);
        assert_eq!(m.tensors("embed.weight"), ["wte"]);
        assert!(
            m.tensors("step.1.2.att.k.weight").is_empty(),
            "a dot is no word"
        );
        assert!(m.tensors("step..att.k.weight").is_empty());
        let both = map(&[("*.weight", "a.*"), ("embed.*", "b.*")]);
        assert_eq!(both.tensors("embed.weight"), ["a.embed", "b.weight"]);
        assert_eq!(map(&[("a*b*", "*/*")]).tensors("axbyb"), ["x/yb"]);
    }

    #[test]
    fn halves_are_exact() {
        let known = [
            (0x0000, 0.0),
            (0x8001, -5.960_464_5e-8),
            (0x3C00, 1.0),
            (0x3555, 0.333_251_95),
            (0xFBFF, -65504.0),
            (0x7C00, f32::INFINITY),
        ];
        for (bits, value) in known {
            assert_eq!(half(bits), value, "{bits:#x}");
        }
        assert!(half(0x7E00).is_nan());
    }
}
