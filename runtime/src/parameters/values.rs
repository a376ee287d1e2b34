//! Values of parameters without an executor: from a file, in f64.
//!
//! Takes a safetensors file, such as `odec export` writes; gives the values of the parameters that are asked for. What else the file holds is not
//! read. Leaves how parameters start to [`crate::executor::init`].

use super::checkpoint::{self, CheckpointError};
use safetensors::Dtype;
use safetensors::tensor::TensorView;
use std::collections::BTreeMap;
use std::path::Path;

/// Reads parameters by their paths and shapes.
///
/// # Errors
/// When the file is missing or damaged; the list of all parameters that it lacks, or has in another shape or type.
pub fn read<'p>(
    path: &Path,
    wanted: impl Iterator<Item = (&'p str, &'p [u64])>,
) -> Result<BTreeMap<String, Vec<f64>>, CheckpointError> {
    checkpoint::with_tensors(path, |file| {
        let (mut found, mut wrong) = (BTreeMap::new(), Vec::new());
        for (name, shape) in wanted {
            let Ok(t) = file.tensor(name) else {
                wrong.push(format!("  missing: {name} {shape:?}"));
                continue;
            };
            let has = t.shape().iter().map(|n| *n as u64);
            match numbers(&t) {
                _ if has.ne(shape.iter().copied()) => wrong.push(format!(
                    "  wrong shape: {name} is {:?} and must be {shape:?}",
                    t.shape()
                )),
                Some(values) => _ = found.insert(name.to_string(), values),
                None => wrong.push(format!(
                    "  wrong type: {name} is {:?} and must be F32 or F64",
                    t.dtype()
                )),
            }
        }
        match wrong.is_empty() {
            true => Ok(found),
            false => Err(checkpoint::mismatch(path, wrong)),
        }
    })
}

fn numbers(t: &TensorView) -> Option<Vec<f64>> {
    match t.dtype() {
        Dtype::F32 => {
            let numbers = t.data().as_chunks().0.iter();
            Some(numbers.map(|b| f32::from_le_bytes(*b).into()).collect())
        }
        Dtype::F64 => {
            let numbers = t.data().as_chunks().0.iter();
            Some(numbers.map(|b| f64::from_le_bytes(*b)).collect())
        }
        _ => None,
    }
}
