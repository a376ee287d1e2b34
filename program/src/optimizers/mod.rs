//! Optimisers: what each of them says of itself, and the list.
//!
//! An optimiser is one file and one line in the list. The trait has no default methods: a missing rule does not compile. The compiler makes a
//! kernel of [`Optimizer::update`], the runtime passes it [`Optimizer::scalars`] at each step. Nothing outside of this folder knows which
//! optimisers there are.

mod rule;

pub use adamw::{BIAS1, BIAS2};
pub use rule::{Next, Rule};

use crate::Slot;
use crate::choice::{Choice, Given, Value, Values, choices, restored};
use serde::de::Error;
use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};

/// The scalar that every update reads: the rate of this step.
pub const LR: &str = "lr";

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
    /// The numbers after a step, of those before it.
    fn update(&self, r: &mut Rule) -> Next;
}

choices! { OptimizerKind of Optimizer, "an optimiser":
    adamw::AdamW,
    sgd::Sgd,
    lion::Lion,
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
    use super::*;
    use crate::Coeff;
    use crate::choice::{Choices, find};
    use crate::expr::{Access, Body};
    use std::collections::BTreeSet;

    /// An update made for one number, and the names of the scalars that it reads.
    fn made(o: &OptimizerKind) -> (Next, BTreeSet<String>) {
        let mut b = Body::default();
        let kept = o.states().len() as u32;
        let loads: Vec<_> = (0..3 + kept).map(|i| b.load(i, Access::full(1))).collect();
        let mut rule = Rule::new(b, [loads[0], loads[1], loads[2]], loads[3..].to_vec(), true);
        let next = o.update(&mut rule);
        let named = rule.coeffs.into_iter().filter_map(|c| match c {
            Coeff::Named(name) => Some(name),
            _ => None,
        });
        (next, named.collect())
    }

    #[test]
    fn an_update_is_of_what_is_declared() {
        let names: BTreeSet<&str> = OptimizerKind::all().iter().map(|o| o.name()).collect();
        assert_eq!(names.len(), OptimizerKind::all().len());
        for o in OptimizerKind::all() {
            assert!(o.states().len() <= SLOTS.len(), "{o:?}");
            let (next, reads) = made(&o);
            assert_eq!(next.states.len(), o.states().len(), "{o:?}");
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
