//! Files of vectors with the numbers that are predicted for them.
//!
//! - `….npz` of NumPy with all arrays, of the names that the data says;
//! - `….npy`: inputs, and targets in files beside it whose names have the word of the targets in the place of that of the inputs.
//!
//! All of it is read into memory and looked at before anything is computed: shapes, and numbers that are none.

use super::DataSource;
use super::arrays::{Archive, beside_of, whole};
use crate::data::array::{self, Element, Head};
use crate::data::dataset::{Dataset, Numbers};
use crate::data::identity::{DataFile, Identity};
use crate::data::vectors::{Sequences, VectorSet};
use crate::data::{DataError, Source};
use crate::system::shown::Shown;
use odec_program::manifest::{Target, Vectors};
use std::path::{Path, PathBuf};

pub struct VectorFiles<'a> {
    pub shape: &'a Vectors,
}

/// An array, and what it is called in messages.
type Named = (PathBuf, Head, Vec<u8>);

impl DataSource for VectorFiles<'_> {
    fn open(&self, s: &Source, _: u64) -> Result<Box<dyn Dataset>, DataError> {
        let (mut all, mut files) = (Sequences::default(), vec![]);
        for path in s.data.files.iter().map(Path::new) {
            let (inputs, targets) = self.arrays(path, &mut files)?;
            self.add(&mut all, &inputs, &targets)?;
        }
        let name = s.data.files.join(", ");
        if u32::try_from(all.count).is_err() {
            let reason = format!("{} sequences; at most {} are read", all.count, u32::MAX);
            return Err(DataError::Images { path: name, reason });
        }
        let percent = s.data.held_out_percent;
        let set = VectorSet::new(name, files, self.shape.clone(), all, percent);
        Ok(Box::new(set))
    }
}

impl VectorFiles<'_> {
    /// The arrays of inputs, and of the targets of each output.
    fn arrays(
        &self,
        path: &Path,
        files: &mut Vec<Identity>,
    ) -> Result<(Named, Vec<Named>), DataError> {
        let inputs = &self.shape.inputs;
        let targets = || self.shape.targets.iter().map(|t| t.array.as_str());
        let file = known(path)?;
        files.push(file.identity()?);
        // Shapes are looked at when both are here.
        let any = |_: &Path, _: &Head| Ok(());
        let extension = path.extension().and_then(|e| e.to_str());
        match extension {
            Some("npz") => {
                let mut archive = Archive::open(&file)?;
                let mut names = [inputs.as_str()].into_iter().chain(targets());
                if let Some(missing) = names.find(|name| !archive.has(name)) {
                    let has = archive.names();
                    let reason = format!("it has no array `{missing}`; it has {has:?}");
                    return Err(DataError::images(path, reason));
                }
                let of_inputs = archive.array(inputs, &any)?;
                let of_targets: Result<_, _> = targets().map(|t| archive.array(t, &any)).collect();
                Ok((of_inputs, of_targets?))
            }
            Some("npy") => {
                let read = |file: &DataFile| -> Result<Named, DataError> {
                    let (head, bytes) = whole(file, array::npy, &any)?;
                    Ok((file.path().to_path_buf(), head, bytes))
                };
                let of_inputs = read(&file)?;
                let mut of_targets = Vec::new();
                for array in targets() {
                    let beside = beside_of(path, &[(inputs, array)]).ok_or_else(|| {
                        let reason = format!(
                            "its name does not have `{inputs}` as a word, so where its targets are is not known"
                        );
                        DataError::images(path, reason)
                    })?;
                    let found = known(&beside).map_err(|e| match e {
                        DataError::NoVectorsAt { path: other } => DataError::images(
                            path,
                            format!("its targets are not beside it, in {other}"),
                        ),
                        e => e,
                    })?;
                    files.push(found.identity()?);
                    of_targets.push(read(&found)?);
                }
                Ok((of_inputs, of_targets))
            }
            _ => Err(DataError::images(
                path,
                "its name ends neither in .npz nor in .npy",
            )),
        }
    }

    fn add(&self, all: &mut Sequences, inputs: &Named, targets: &[Named]) -> Result<(), DataError> {
        let of = self.shape;
        let (path, head, _) = inputs;
        let [n, positions, width] = head.shape[..] else {
            let reason = format!(
                "its shape is {:?}; inputs are [n, positions, {}]",
                head.shape, of.width
            );
            return Err(DataError::images(path, reason));
        };
        if width != of.width || !(1..=of.positions).contains(&positions) {
            let reason = format!(
                "its shape is {:?}; this model reads up to {} positions of {} numbers",
                head.shape, of.positions, of.width
            );
            return Err(DataError::images(path, reason));
        }
        if n == 0 {
            return Err(DataError::images(path, "it holds no sequences"));
        }
        if of.flow.is_some() && positions != of.positions {
            let reason = format!(
                "its sequences have {positions} positions; a model that draws sequences draws all of its context, which is {}",
                of.positions
            );
            return Err(DataError::images(path, reason));
        }
        if all.count > 0 && positions != all.positions {
            let reason = format!(
                "its sequences have {positions} positions, those of the files before it {}",
                all.positions
            );
            return Err(DataError::images(path, reason));
        }
        for (target, (path, head, _)) in of.targets.iter().zip(targets) {
            let wanted = match target.whole {
                _ if target.classes => vec![n],
                true => vec![n, target.columns],
                false => vec![n, positions, target.columns],
            };
            if head.shape != wanted {
                let reason = format!(
                    "its shape is {:?}; targets of these inputs are {wanted:?}",
                    head.shape
                );
                return Err(DataError::images(path, reason));
            }
        }
        all.positions = positions;
        all.count += n as usize;
        let standard = |x: f64| (x - of.mean) / of.std;
        let any = |_: f64| None;
        all.inputs.extend(numbers(inputs, n, standard, any)?);
        for (number, (target, named)) in of.targets.iter().zip(targets).enumerate() {
            let found = compared(target, named, n)?;
            match (all.targets.get_mut(number), found) {
                (Some(Numbers::I32(all)), Numbers::I32(more)) => all.extend(more),
                (Some(Numbers::F32(all)), Numbers::F32(more)) => all.extend(more),
                (_, first) => all.targets.push(first),
            }
        }
        Ok(())
    }
}

/// What an output is compared with, of so many sequences.
fn compared(target: &Target, named: &Named, sequences: u64) -> Result<Numbers, DataError> {
    if target.classes {
        return classes(named, target.columns).map(Numbers::I32);
    }
    let event = |x: f64| match target.events && !(0.0..=1.0).contains(&x) {
        true => Some("targets of `bce` are from 0 to 1"),
        false => None,
    };
    numbers(named, sequences, |x| x, event).map(Numbers::F32)
}

fn known(path: &Path) -> Result<DataFile, DataError> {
    DataFile::open(path).map_err(|e| match e {
        DataError::Missing { path } => DataError::NoVectorsAt { path },
        e => e,
    })
}

/// The classes of sequences, below a number.
fn classes((path, head, bytes): &Named, below: u64) -> Result<Vec<i32>, DataError> {
    if let Element::Float(_) = head.element {
        let reason = "its numbers are not whole ones, which classes are";
        return Err(DataError::images(path, reason));
    }
    let each = bytes.chunks_exact(head.element.bytes()).enumerate();
    each.map(|(i, b)| {
        let class = head.element.whole(b);
        let known = class.and_then(|c| i32::try_from(c).ok());
        known
            .filter(|c| u64::try_from(*c).is_ok_and(|c| c < below))
            .ok_or_else(|| DataError::Sequence {
                path: path.shown(),
                number: i as u64,
                reason: match class {
                    Some(c) => format!("its class is {c}; classes are 0 to {}", below - 1),
                    None => "its class is beyond 64 bits".into(),
                },
            })
    })
    .collect()
}

/// The numbers of an array of so many sequences. `wrong`: what is wrong with one that is finite.
fn numbers(
    (path, head, bytes): &Named,
    sequences: u64,
    change: impl Fn(f64) -> f64,
    wrong: impl Fn(f64) -> Option<&'static str>,
) -> Result<Vec<f32>, DataError> {
    let size = match head.element {
        Element::Float(size @ (4 | 8)) => size,
        _ => {
            let reason = "its numbers are not real ones of 4 or 8 bytes";
            return Err(DataError::images(path, reason));
        }
    };
    let one = (bytes.len() / size / sequences.max(1) as usize).max(1);
    let each = bytes.chunks_exact(size).enumerate();
    each.map(|(i, b)| {
        let x = match b {
            &[a, b, c, d] => f64::from(f32::from_le_bytes([a, b, c, d])),
            _ => f64::from_le_bytes(b.try_into().unwrap_or_default()),
        };
        let made = change(x) as f32;
        let wrong = match made.is_finite() {
            true => wrong(x).map(|why| format!("; {why}")),
            false => Some(String::new()),
        };
        match wrong {
            None => Ok(made),
            Some(why) => Err(DataError::Sequence {
                path: path.shown(),
                number: (i / one) as u64,
                reason: format!("it has the number {x}{why}"),
            }),
        }
    })
    .collect()
}
