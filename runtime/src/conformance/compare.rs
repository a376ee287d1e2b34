//! Compares a device with the reference device, entry by entry.
//!
//! Takes an artifact and a device; runs both from the same parameters and tokens: the forward pass, steps of training with all
//! that they leave behind, and a text read in pieces. Gives one [`Difference`] for each result. Nothing but the manifest
//! says what is right, so a machine needs no compiler and no stored numbers to see whether its card is to be trusted.

use crate::artifact::{Artifact, ArtifactError, DeviceChoice};
use crate::data::dataset::Numbers;
use crate::device::Device;
use crate::device::reals::Reals;
use crate::executor::step_count::drawn;
use crate::executor::{Executor, RunError, State};
use crate::infer::reader::{Reader, Texts};
use odec_program::gpu::tensor::{self, few, warpgroup};
use odec_program::kernel::{Contract, KernelSpec};
use odec_program::manifest::named;
use odec_program::{Bindings, DType, EntryId, Kernel, Target, names, noise};

/// What a result may always be off on tensor cores, as a part of its size in the Euclidean norm.
pub const LEAST: f64 = 0.02;
/// How much further than the reference moves when every parameter is moved by `SHAKE`. Some models answer small changes
/// with large ones: implicit methods that iterate, updates whose size does not depend on the gradient's.
pub const FACTOR: f64 = 2.0;
/// Half a unit of bf16, relatively: the least that rounding parameters differently could do.
const SHAKE: f64 = 1.0 / 512.0;
/// In how many ways at most parameters are moved: a sum that nearly cancels, such as the gradient of one number, may move little by chance.
const WAYS: u64 = 4;

/// One result on both devices.
#[derive(Clone, Debug)]
pub struct Difference {
    pub what: String,
    /// Elements compared.
    pub elements: usize,
    /// Elements whose bits differ.
    pub differ: usize,
    /// The distance in the Euclidean norm, as a part of the reference's size; infinite when something is not a number.
    pub apart: f64,
    /// The most that it may be; `None`: every bit must be the same.
    pub most: Option<f64>,
}

impl Difference {
    /// Whether the result is as it must be.
    pub fn good(&self) -> bool {
        self.differ == 0 || self.most.is_some_and(|most| self.apart <= most)
    }

    fn of(what: &str, got: &[f64], want: &[f64], most: Option<f64>) -> Difference {
        let bits =
            |(a, b): &(&f64, &f64)| a.to_bits() != b.to_bits() && !(a.is_nan() && b.is_nan());
        let norm = |xs: &mut dyn Iterator<Item = f64>| xs.map(|x| x * x).sum::<f64>().sqrt();
        let far = norm(&mut got.iter().zip(want).map(|(g, w)| g - w));
        let size = norm(&mut want.iter().copied());
        let differ = got.iter().zip(want).filter(bits).count() + got.len().abs_diff(want.len());
        let apart = match differ {
            0 => 0.0,
            _ if got.len() != want.len() => f64::INFINITY,
            _ => far / size,
        };
        Difference {
            what: what.into(),
            elements: want.len(),
            differ,
            apart: if apart.is_finite() {
                apart
            } else {
                f64::INFINITY
            },
            most,
        }
    }
}

/// Why two devices cannot be compared.
#[derive(Debug, thiserror::Error)]
pub enum CompareError {
    #[error(transparent)]
    Artifact(#[from] ArtifactError),
    #[error(transparent)]
    Run(#[from] RunError),
    #[error("a launch cannot be compared, or its operands cannot be written: {0}")]
    Dump(std::io::Error),
}

/// Results by name.
type Results = Vec<(String, Vec<f64>)>;

/// Runs the program's entries for so many steps on both devices. A dry run launches everything and compares nothing.
///
/// # Errors
/// When the device cannot be had, or fails.
pub fn compare(
    artifact: &Artifact,
    choice: DeviceChoice,
    steps: u64,
) -> Result<Vec<Difference>, CompareError> {
    let got = results(artifact, artifact.device(choice, None)?, steps, None)?;
    if matches!(choice, DeviceChoice::Dry { .. }) {
        return Ok(vec![]);
    }
    let reference = |shake: Option<u64>| {
        let device = artifact.device(DeviceChoice::Reference, None)?;
        Ok::<_, CompareError>(results(artifact, device, steps, shake)?)
    };
    let want = reference(None)?;
    let kernels = &artifact.manifest().program.kernels;
    let near =
        matches!(choice, DeviceChoice::Cuda(_)) && kernels.iter().any(|k| tensor::runs(&k.spec));
    let pairs = got.iter().zip(&want);
    let mut out: Vec<Difference> = pairs
        .map(|((what, got), (_, want))| Difference::of(what, got, want, near.then_some(LEAST)))
        .collect();
    // The reference is shaken until that explains all differences, or does not.
    for way in 0..WAYS {
        if !near || out.iter().all(Difference::good) {
            break;
        }
        let shaken = reference(Some(way))?;
        for ((d, (_, shaken)), (_, want)) in out.iter_mut().zip(&shaken).zip(&want) {
            d.most = d.most.map(|most| most.max(explained(shaken, want)));
        }
    }
    // The device alone: a text in pieces gives the bits of the whole, but where few rows are added up in another order.
    let named = |name: &str| got.iter().find(|r| r.0 == name).map(|r| &r.1);
    if let (Some(pieces), Some(whole)) = (named("logits in pieces"), named("logits of the text")) {
        // An artifact with code for both kinds of cards has the bound on either.
        let objects = artifact.manifest().objects.iter();
        let targets: Vec<Target> = objects.filter_map(|o| o.target.parse().ok()).collect();
        let by_warpgroups = |c: &Contract| targets.iter().any(|target| warpgroup::runs(c, *target));
        let few = |k: &Kernel| match &k.spec {
            KernelSpec::Contract(c) => by_warpgroups(c) && few::runs(c).is_some(),
            _ => false,
        };
        let most = out.iter().find(|d| d.what == "logits in pieces");
        let most = most
            .and_then(|d| d.most)
            .filter(|_| kernels.iter().any(few));
        out.push(Difference::of(
            "pieces against the whole",
            pieces,
            whole,
            most,
        ));
    }
    Ok(out)
}

/// What a result may be off, when it is `shaken` with parameters moved.
fn explained(shaken: &[f64], want: &[f64]) -> f64 {
    let moved = Difference::of("", shaken, want, None).apart;
    // What breaks when it is shaken says nothing.
    let moved = if moved.is_finite() { moved } else { 0.0 };
    FACTOR * moved
}

/// All that a device computes; where it is shaken, from parameters moved by a part of themselves, some up and some down, in one of several ways.
pub(crate) fn results(
    artifact: &Artifact,
    device: Box<dyn Device>,
    steps: u64,
    shake: Option<u64>,
) -> Result<Results, RunError> {
    let mut x = Executor::new(artifact, device)?;
    x.set_poison(true);
    x.initialise(7);
    if let Some(way) = shake {
        let params = x.state(State::Params).iter().zip(way << 40..);
        let up = |i: u64| i.wrapping_mul(0x9E37_79B9_7F4A_7C15) >> 63 == 0;
        let moved: Vec<f64> = params
            .map(|(p, i)| p * (1.0 + if up(i) { SHAKE } else { -SHAKE }))
            .collect();
        x.state_mut(State::Params).fill(moved.into_iter());
    }
    let m = artifact.manifest();
    let at = m.program.maxima.longest();
    let seq = at.seq;
    let mut out = Results::new();
    // A sequence that is no whole tile, where there is room for one. Images are all of one size.
    let shorter = match x.has_input(EntryId::Forward, names::PATCHES) {
        true => None,
        false => Some(seq.saturating_sub(seq / 4 + 1).max(1)),
    };
    for seq in [seq].into_iter().chain(shorter) {
        let logits = entry(&mut x, EntryId::Forward, Bindings { seq, ..at }, 1)?;
        out.extend(logits.map(|r| (format!("logits of {seq} tokens"), r)));
    }
    for step in 1..=steps {
        let Some(loss) = entry(&mut x, EntryId::Grad, at, step)? else {
            break;
        };
        out.push((format!("loss {step}"), loss));
        x.fetch(&[State::Grads])?;
        for p in State::Grads.holds(m) {
            let gradient = all(x.of(State::Grads, p));
            out.push((format!("gradient {step} of {}", p.path), gradient));
        }
        entry(&mut x, EntryId::Accumulate, Bindings::new(1, 1), step)?;
        let norm = entry(&mut x, EntryId::Update, Bindings::new(1, 1), step)?;
        out.extend(norm.map(|r| (format!("norm {step}"), r)));
        for (state, what) in [
            (State::Params, "parameters"),
            (State::Moment1, "first moments"),
            (State::Moment2, "second moments"),
            (State::Average, "running means"),
        ] {
            x.fetch(&[state])?;
            out.push((format!("{what} {step}"), all(x.state(state))));
        }
    }
    if x.has_entry(EntryId::Decode) {
        let whole = entry(&mut x, EntryId::Forward, Bindings::new(1, seq), 3)?;
        out.extend(whole.map(|r| ("logits of the text".into(), r)));
        let text = tokens(m.model.vocab, seq, 3);
        let mut reader = Reader::new(&mut x)?;
        let (mut logits, mut past) = (vec![], 0);
        // A beginning, single tokens, the rest.
        let half = text.len() / 2;
        let last = text.len().min(half + 3);
        let cuts = (1..half.min(2))
            .chain(half.max(1)..last)
            .chain([text.len()]);
        for cut in cuts {
            if cut > past {
                let mut before = vec![];
                let last =
                    reader.read_each(&text[past..cut], &mut |read| before.extend(all(read)))?;
                logits.extend(before);
                logits.extend(all(last));
                past = cut;
            }
        }
        out.push(("logits in pieces".into(), logits));
        if Texts::most(&x) > 1 && text.len() > 2 {
            let mut texts = Texts::new(&mut x, 2)?;
            let (begun, last) = text.split_at(text.len() - 1);
            texts.read(&[begun, &text[..1]])?;
            let next = texts.read(&[last, &text[1..2]])?;
            let both = [0, 1].map(|n| all(next.of(n)));
            out.push(("logits of two texts".into(), both.concat()));
        }
    }
    Ok(out)
}

fn all(x: Reals) -> Vec<f64> {
    x.iter().collect()
}

/// Tokens that do not repeat soon.
fn tokens(vocab: u64, count: u64, seed: u64) -> Vec<i32> {
    let token = |i: u64| (i * i * 7 + i * 3 + seed) % vocab;
    (0..count).map(|i| token(i) as i32).collect()
}

/// Numbers from −1 to 1 that do not repeat soon.
fn reals(count: u64, seed: u64) -> Vec<f32> {
    let numbers = tokens(2001, count, seed);
    numbers
        .into_iter()
        .map(|n| n as f32 / 1000.0 - 1.0)
        .collect()
}

/// The first output of an entry that the program has; nothing when it has no such entry, or the entry no output.
fn entry(
    x: &mut Executor,
    name: EntryId,
    at: Bindings,
    step: u64,
) -> Result<Option<Vec<f64>>, RunError> {
    let model = x.manifest().model.clone();
    let drawn = drawn(&x.manifest().depths, 7, step);
    let Some(e) = x.manifest().program.entries.get(&name) else {
        return Ok(None);
    };
    let inputs: Vec<(String, Numbers)> = (e.inputs.iter().zip(step..))
        .map(|(io, seed)| {
            let count = io.shape.iter().map(|d| d.at(at)).product();
            let steps = drawn.iter().find(|(name, _)| *name == io.name);
            let values = match io.name.as_str() {
                _ if let Some((_, n)) = steps => Numbers::I32(vec![*n]),
                noise::KEY => Numbers::I32(vec![step as i32]),
                names::TOKENS => Numbers::I32(tokens(model.kinds(names::TOKENS), count, step)),
                _ if io.dtype == DType::I32 => {
                    Numbers::I32(tokens(model.kinds(&io.name), count, seed + 4))
                }
                _ => Numbers::F32(reals(count, step)),
            };
            (io.name.clone(), values)
        })
        .collect();
    let output = e.outputs.first().map(|io| io.name.clone());
    let given: Vec<_> = (inputs.iter())
        .map(|(name, values)| (name.as_str(), values.value()))
        .collect();
    let train = x.manifest().train.as_ref();
    let of_step = train.map(|t| t.scalars(step, 1.0)).unwrap_or_default();
    // Steps that are long enough to be seen.
    let is_rate = |name: &str| name.split('.').next() == Some(named::LR);
    let of_step = of_step
        .iter()
        .map(|(name, x)| (name.as_str(), if is_rate(name) { 1e-2 } else { *x }));
    let scalars: Vec<_> = [(named::KEEP, 0.0), (named::SHARE, 1.0)]
        .into_iter()
        .chain(of_step)
        .collect();
    let done = x.run(name, at, &given, &scalars)?;
    output.map(|o| Ok(all(done.reals(&o)?))).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_moves_much_may_be_off_by_more() {
        assert_eq!(explained(&[3.0, 4.0], &[3.0, 4.0]), 0.0);
        assert_eq!(explained(&[3.0, 5.0], &[3.0, 4.0]), FACTOR * 0.2);
        assert_eq!(explained(&[f64::NAN, 5.0], &[3.0, 4.0]), 0.0);
    }

    #[test]
    fn bits_and_distances_are_told_apart() {
        let want = [3.0, 4.0];
        let same = Difference::of("x", &want, &want, None);
        assert!(same.good() && same.apart == 0.0);
        let near = |most| Difference::of("x", &[3.0, 4.1], &want, most);
        assert!(!near(None).good() && near(Some(0.021)).good() && !near(Some(0.019)).good());
        assert_eq!(near(None).differ, 1);
        let broken = Difference::of("x", &[3.0, f64::NAN], &want, Some(0.1));
        assert!(!broken.good() && broken.apart.is_infinite());
        assert!(!Difference::of("x", &want[..1], &want, Some(0.1)).good());
    }
}
