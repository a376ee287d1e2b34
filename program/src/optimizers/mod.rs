//! Optimisers: what each of them says of itself, and the list.
//!
//! An optimiser is one file and one line in the list. The trait has no default methods: a missing rule does not compile. The compiler makes a
//! kernel of [`Numbers::update`], or launches of [`Whole::update`]; the runtime passes it [`Optimizer::scalars`] at each step. Nothing outside of this folder knows which
//! optimisers there are.
//!
//! An update is an expression for each number (`compiler/passes/src/update.rs` makes the kernel), or steps for a whole matrix (`whole.rs` here;
//! `compiler/passes/src/whole.rs` makes the launches). Parameters that an optimiser is not made for it leaves to a group (`others`, `group.rs`).
//! How it follows the width, or that its steps grow with the gradient, is said by `scaled`. Reading, checks, manifests, memory, checkpoints and
//! docs/parts.md (`odec help parts`) follow from the declaration. Its equations in f64 are an arm in `compiler/tests/passes/optimiser.rs`, which
//! does not compile without it.

pub mod group;
mod rule;
pub mod whole;

pub use adamw::{BIAS1, BIAS2};
pub use group::Group;
pub use rule::{Next, Rule};

use crate::Slot;
use crate::choice::{Choice, Given, Value, Values, choices, restored};
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The scalar that every update reads: the rate of this step.
pub const LR: &str = "lr";

/// What a scalar is called that the updates of group `n` read, counted from 1: `lr.1`. Those of group 0, which is in no group, have no number.
pub fn of_group(name: &str, n: usize) -> String {
    match n {
        0 => name.into(),
        n => format!("{name}.{n}"),
    }
}

/// Where numbers lie that are kept beside parameters, in the order of [`Optimizer::states`].
pub const SLOTS: [Slot; 2] = [Slot::Moment1, Slot::Moment2];

/// How parameters follow their gradients.
pub trait Optimizer: Choice {
    /// The rate that a schedule multiplies.
    fn rate(&self) -> f64;
    /// What is kept beside each number of a parameter from step to step, in words; at most as many as there are [`SLOTS`].
    /// All of them start at 0.
    fn states(&self) -> &'static [&'static str];
    /// What an update reads of step `t`, counted from 1, beside its rate: the same names at every step.
    fn scalars(&self, t: u64) -> Vec<(&'static str, f64)>;
    /// Parameters that it is not made for, with what they follow instead; a train block may say something else of them.
    fn others(&self) -> Option<Group>;
    /// The same with other arguments, as parametrizations by width and depth ask for; `None` where its steps grow with the gradient, or have a size of their own: there is no rule for it.
    fn scaled(&self, by: Scale) -> Option<OptimizerKind>;
    /// How it updates.
    fn way(&self) -> Way<'_>;
}

/// What arguments of an optimiser are multiplied by.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    pub rate: f64,
    pub decay: f64,
    /// Of what is added below a fraction.
    pub eps: f64,
}

impl Scale {
    pub const NONE: Scale = Scale {
        rate: 1.0,
        decay: 1.0,
        eps: 1.0,
    };
}

/// How parameters are updated.
pub enum Way<'o> {
    /// Number by number.
    Numbers(&'o dyn Numbers),
    /// Each matrix as a whole.
    Wholes(&'o dyn Whole),
}

/// An update that is the same for every number of a parameter.
pub trait Numbers {
    /// The numbers after a step, of those before it.
    fn update(&self, r: &mut Rule) -> Next;
}

/// An update of matrices. Vectors are matrices of one row, scalars of one row and column.
pub trait Whole {
    /// What is kept beside a matrix of so many rows and columns, other than states: the ends of paths, and how many numbers. All of them start
    /// at 0.
    fn beside(&self, shape: [u64; 2]) -> Vec<(&'static str, u64)>;
    /// The steps of an update, which read and write what lies beside a matrix.
    fn update(&self, plan: &mut whole::Plan);
}

choices! { OptimizerKind of Optimizer, "an optimiser":
    adamw::AdamW,
    sgd::Sgd,
    lion::Lion,
    adafactor::Adafactor,
    muon::Muon,
}

/// The key of the name in manifests. One without a name is of the first optimiser there was.
const NAME: &str = "name";
const FIRST: &str = "adamw";

impl Serialize for OptimizerKind {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        let mut map = s.serialize_map(None)?;
        if self.name() != FIRST {
            map.serialize_entry(NAME, self.name())?;
        }
        for (name, value) in Values::of(self).0 {
            map.serialize_entry(name, &value)?;
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for OptimizerKind {
    fn deserialize<D: Deserializer<'de>>(d: D) -> Result<OptimizerKind, D::Error> {
        let mut given = Given::deserialize(d)?;
        match given.remove(NAME) {
            Some(Value::Word(name)) => restored(&name, given),
            Some(_) => Err(Error::custom("the name of an optimiser is a word")),
            None => restored(FIRST, given),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::whole::{Part, Plan, Step};
    use super::*;
    use crate::choice::{Choices, find};
    use crate::expr::{Access, Body};
    use crate::{Coeff, DType};
    use std::collections::BTreeSet;

    /// How many states an update writes, and the names of the scalars that it reads.
    fn made(o: &OptimizerKind) -> (usize, BTreeSet<String>) {
        let (written, coeffs) = match o.way() {
            Way::Numbers(numbers) => {
                let mut b = Body::default();
                let kept = o.states().len() as u32;
                let loads: Vec<_> = (0..3 + kept).map(|i| b.load(i, Access::full(1))).collect();
                let parts = [loads[0], loads[1], loads[2]];
                let mut rule = Rule::new(b, parts, loads[3..].to_vec(), true);
                (numbers.update(&mut rule).states.len(), rule.coeffs)
            }
            Way::Wholes(whole) => {
                let mut plan = Plan::new(DType::F32, [3, 2], true);
                whole.update(&mut plan);
                let rows = plan.steps.iter().filter_map(|s| match s {
                    Step::Rows(kernel, args, _, coeffs) => Some((kernel, args, coeffs)),
                    Step::Columns(..) | Step::Product(_) => None,
                });
                let written = rows.clone().flat_map(|(kernel, args, _)| {
                    kernel.stores.iter().map(|s| args[s.operand as usize])
                });
                let states = written.filter(|part| matches!(part, Part::State(_)));
                (states.count(), rows.flat_map(|(.., c)| c.clone()).collect())
            }
        };
        let named = coeffs.into_iter().filter_map(|c| match c {
            Coeff::Named(name) => Some(name),
            _ => None,
        });
        (written, named.collect())
    }

    #[test]
    fn an_update_is_of_what_is_declared() {
        let names: BTreeSet<&str> = OptimizerKind::all().iter().map(|o| o.name()).collect();
        assert_eq!(names.len(), OptimizerKind::all().len());
        for o in OptimizerKind::all() {
            assert!(o.states().len() <= SLOTS.len(), "{o:?}");
            let (written, reads) = made(&o);
            assert_eq!(written, o.states().len(), "{o:?}");
            for t in [1, 2, 1000] {
                let scalars = o.scalars(t).into_iter();
                let passed = scalars.map(|(name, _)| name).chain([LR]);
                assert_eq!(reads, passed.map(String::from).collect(), "{o:?}");
            }
        }
    }

    /// As every version has written it: a run goes on with the artifact that it began with.
    #[test]
    fn manifests_hold_optimisers_as_they_always_did() {
        let adamw = AdamW {
            lr: 2e-3,
            weight_decay: 1.0,
            ..AdamW::default()
        };
        let sgd = Sgd {
            lr: 0.1,
            momentum: 0.9,
            weight_decay: 0.0,
        };
        let lion = Lion {
            lr: 1e-4,
            ..Lion::default()
        };
        for (optimizer, text) in [
            (
                OptimizerKind::from(adamw),
                r#"{"lr":0.002,"betas":[0.9,0.95],"eps":1e-8,"weight_decay":1.0}"#,
            ),
            (
                sgd.into(),
                r#"{"name":"sgd","lr":0.1,"momentum":0.9,"weight_decay":0.0}"#,
            ),
            (
                lion.into(),
                r#"{"name":"lion","lr":0.0001,"betas":[0.9,0.99],"weight_decay":0.0}"#,
            ),
        ] {
            assert_eq!(serde_json::to_string(&optimizer).unwrap(), text);
            let read: OptimizerKind = serde_json::from_str(text).unwrap();
            assert_eq!(read, optimizer);
        }
        assert_eq!(find::<OptimizerKind>("adam"), None);
    }

    #[test]
    fn what_no_optimiser_has_is_refused() {
        for (text, why) in [
            (r#"{"name":"adam","lr":1}"#, "`adam` is not an optimiser"),
            (r#"{"name":1,"lr":1}"#, "the name of an optimiser is a word"),
            (r#"{"name":"sgd"}"#, "`sgd` needs `lr`"),
            (r#"{"name":"sgd","lr":[1,2]}"#, "`sgd` has no such `lr`"),
            (r#"{"name":"sgd","lr":"much"}"#, "`sgd` has no such `lr`"),
            (r#"{"lr":1,"betas":0.5}"#, "`adamw` has no such `betas`"),
            (
                r#"{"name":"sgd","lr":1,"eps":1}"#,
                "`sgd` has no argument `eps`",
            ),
            (r#"{"lr":null}"#, "did not match"),
            (r#""sgd""#, "invalid type"),
        ] {
            let said = serde_json::from_str::<OptimizerKind>(text).unwrap_err();
            assert!(said.to_string().contains(why), "{text}: {said}");
        }
        // A number may be written without a point, and what was not there when it was written is meant as where nothing is said.
        let sgd: OptimizerKind = serde_json::from_str(r#"{"name":"sgd","lr":1}"#).unwrap();
        let meant = Sgd {
            lr: 1.0,
            ..Sgd::default()
        };
        assert_eq!(sgd, meant.into());
    }
}
