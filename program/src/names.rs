//! Names of entries, and of their inputs and results: one spelling, in graphs, manifests, listings and files of tensors.
//!
//! [`EntryId`] is one of few; [`ResultId`] is made and read where a graph's results are. Names of depths are in [`crate::manifest::depth`].

use crate::{Slot, noise};
use serde::{Deserialize, Serialize};
use std::borrow::Borrow;
use std::fmt;
use std::str::FromStr;

/// Inputs: a token for each place of the batch, or the numbers of a patch; and what is to be predicted.
pub const TOKENS: &str = "tokens";
pub const PATCHES: &str = "patches";
pub const VECTORS: &str = "vectors";
/// How many tokens stand before each token in its text, where a run reads tokens of several texts.
pub const PLACES: &str = "places";
/// The same without those tokens of which windows keep nothing any more: nobody gives them, since who runs an entry drops them.
pub const RECENT_PLACES: &str = "recent_places";
/// What the input of an encoder is called by custom; its label says.
pub const SOURCE: &str = "source";
pub const TARGETS: &str = "targets";
/// How far a row is between noise and data, `[batch, 1, 1]`, and how much it is of each class, `[batch, 1, classes]`: 1 of its own, 0 of all others.
pub const TIME: &str = "time";
pub const LABEL: &str = "label";

/// Inputs that a model has without saying so: no label is one of these.
pub const INPUTS: [&str; 10] = [
    TOKENS,
    PATCHES,
    VECTORS,
    PLACES,
    RECENT_PLACES,
    TARGETS,
    TIME,
    LABEL,
    noise::KEY,
    "steps",
];

/// The results [`ResultId::Logits`], [`ResultId::Values`], [`ResultId::Loss`] and [`ResultId::GradientNorm`].
pub const LOGITS: &str = "logits";
pub const VALUES: &str = "values";
pub const LOSS: &str = "loss";
pub const GRADIENT_NORM: &str = "grad_norm";

/// Prefixes of names: moments and gradients of a parameter's path, and others.
pub const MOMENT1_OF: &str = "moment1.";
pub const MOMENT2_OF: &str = "moment2.";
pub const AVERAGE_OF: &str = "ema.";
const GRADIENT_OF: &str = "grad.";
const SUM_OF: &str = "sum.";
const TERM_OF: &str = "loss.";
const SHARES_OF: &str = "moe.share.";
const DROPPED_OF: &str = "moe.dropped.";
const REPORT_OF: &str = "report.";

/// An entry of a program. In the order of manifests, which is that of their names.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EntryId {
    /// Adds a micro-batch's gradients to [`Slot::Sums`], in programs that take several in a step.
    Accumulate,
    /// Predicts the next tokens of one sequence, a few tokens at a time: reads the keys and values of the tokens so far from
    /// [`Slot::Cache`] and adds those of its own.
    Decode,
    /// Reads all sequences but the last, and keeps in [`Slot::Cache`] what [`EntryId::Extend`] reads of it.
    Encode,
    /// Predicts the next tokens of several texts, a token of each, from what is kept of their earlier tokens in [`Slot::Cache`], and adds to that
    /// ([`crate::Kept`]). Each text has a length of its own ([`PLACES`]); `past` is that of the longest. Of several sequences, all texts are made of those
    /// that [`EntryId::Encode`] has read; else each goes on from what [`EntryId::Decode`] has read.
    Extend,
    /// Predicts the next token at each place.
    Forward,
    /// The loss, with its gradient in [`Slot::Grads`], all of it.
    Grad,
    /// The loss alone.
    Loss,
    /// Fills [`Slot::Prepared`] with what [`EntryId::Decode`] or [`EntryId::Extend`] reads of parameters alone: packed, or at the times that fields are
    /// evaluated at.
    Prepare,
    /// Fills [`Slot::Rounded`] with all parameters, after this process has written some. A program has it where contractions read them there.
    Round,
    /// Takes a step of the optimiser.
    Update,
}

impl EntryId {
    pub const ALL: [EntryId; 10] = [
        EntryId::Accumulate,
        EntryId::Decode,
        EntryId::Encode,
        EntryId::Extend,
        EntryId::Forward,
        EntryId::Grad,
        EntryId::Loss,
        EntryId::Prepare,
        EntryId::Round,
        EntryId::Update,
    ];

    pub const fn as_str(self) -> &'static str {
        match self {
            EntryId::Accumulate => "accumulate",
            EntryId::Decode => "decode",
            EntryId::Encode => "encode",
            EntryId::Extend => "extend",
            EntryId::Forward => "forward",
            EntryId::Grad => "grad",
            EntryId::Loss => "loss",
            EntryId::Prepare => "prepare",
            EntryId::Round => "round",
            EntryId::Update => "update",
        }
    }
}

impl fmt::Display for EntryId {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        f.pad(self.as_str())
    }
}

/// There is no entry of that name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("`{0}` is no entry")]
pub struct NoSuchEntry(pub String);

impl FromStr for EntryId {
    type Err = NoSuchEntry;

    fn from_str(name: &str) -> Result<EntryId, NoSuchEntry> {
        let found = EntryId::ALL.into_iter().find(|e| e.as_str() == name);
        found.ok_or_else(|| NoSuchEntry(name.into()))
    }
}

impl AsRef<str> for EntryId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

/// Names are in the order of entries, so that a table of entries is also searched by name.
impl Borrow<str> for EntryId {
    fn borrow(&self) -> &str {
        self.as_str()
    }
}

impl PartialEq<str> for EntryId {
    fn eq(&self, name: &str) -> bool {
        self.as_str() == name
    }
}

impl PartialEq<&str> for EntryId {
    fn eq(&self, name: &&str) -> bool {
        self.as_str() == *name
    }
}

impl From<EntryId> for String {
    fn from(entry: EntryId) -> String {
        entry.as_str().into()
    }
}

/// A result of an entry or a graph, which is written as its name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ResultId<'a> {
    Logits,
    /// Numbers that are compared with given ones.
    Values,
    Loss,
    /// The norm of the whole gradient.
    GradientNorm,
    /// The gradient of the parameter of this path.
    Gradient(&'a str),
    /// A term of the loss, without its coefficient.
    Term(&'a str),
    /// The share of each expert in what the router of this path chose.
    Shares(&'a str),
    /// The share of what the router of this path chose that full experts did not take.
    Dropped(&'a str),
    /// What an evolve reports under this name, a number for each step.
    Report(&'a str),
    /// What an evolve tells of its steps.
    Other(&'a str),
}

impl<'a> ResultId<'a> {
    /// The result that is written so.
    pub fn of(name: &'a str) -> ResultId<'a> {
        match name {
            LOGITS => ResultId::Logits,
            VALUES => ResultId::Values,
            LOSS => ResultId::Loss,
            GRADIENT_NORM => ResultId::GradientNorm,
            _ => {
                let gradient = name.strip_prefix(GRADIENT_OF).map(ResultId::Gradient);
                let term = || name.strip_prefix(TERM_OF).map(ResultId::Term);
                let shares = || name.strip_prefix(SHARES_OF).map(ResultId::Shares);
                let dropped = || name.strip_prefix(DROPPED_OF).map(ResultId::Dropped);
                let report = || name.strip_prefix(REPORT_OF).map(ResultId::Report);
                let found = gradient
                    .or_else(term)
                    .or_else(shares)
                    .or_else(dropped)
                    .or_else(report);
                found.unwrap_or(ResultId::Other(name))
            }
        }
    }
}

impl fmt::Display for ResultId<'_> {
    fn fmt(&self, f: &mut fmt::Formatter) -> fmt::Result {
        match self {
            ResultId::Logits => f.write_str(LOGITS),
            ResultId::Values => f.write_str(VALUES),
            ResultId::Loss => f.write_str(LOSS),
            ResultId::GradientNorm => f.write_str(GRADIENT_NORM),
            ResultId::Gradient(path) => write!(f, "{GRADIENT_OF}{path}"),
            ResultId::Term(name) => write!(f, "{TERM_OF}{name}"),
            ResultId::Shares(path) => write!(f, "{SHARES_OF}{path}"),
            ResultId::Dropped(path) => write!(f, "{DROPPED_OF}{path}"),
            ResultId::Report(name) => write!(f, "{REPORT_OF}{name}"),
            ResultId::Other(name) => f.write_str(name),
        }
    }
}

/// What an input or a result of an output is called: that of the output without a label by the name alone, another `class.targets`, after its label.
pub fn of_output(label: &str, name: &str) -> String {
    match label {
        "" => name.into(),
        label => format!("{label}.{name}"),
    }
}

/// Whether names that begin with this word and a dot are those of something else: of gradients, terms of the loss, shares of experts and reports, or
/// of what an optimiser keeps.
pub fn is_taken(word: &str) -> bool {
    let prefixes = [
        MOMENT1_OF,
        MOMENT2_OF,
        AVERAGE_OF,
        GRADIENT_OF,
        SUM_OF,
        TERM_OF,
        SHARES_OF,
        DROPPED_OF,
        REPORT_OF,
    ];
    prefixes.iter().any(|p| p.split('.').next() == Some(word))
}

impl Slot {
    /// What stands before the path of a parameter where something of it is named that lies here, in listings and checkpoints; `None` of
    /// memory that is not laid out as parameters are.
    pub const fn prefix(self) -> Option<&'static str> {
        match self {
            Slot::Params => Some(""),
            Slot::Grads => Some(GRADIENT_OF),
            Slot::Sums => Some(SUM_OF),
            Slot::Moment1 => Some(MOMENT1_OF),
            Slot::Moment2 => Some(MOMENT2_OF),
            Slot::Average => Some(AVERAGE_OF),
            Slot::Arena
            | Slot::Consts
            | Slot::Prepared
            | Slot::Rounded
            | Slot::Cache
            | Slot::Input(_)
            | Slot::Output(_) => None,
        }
    }
}

/// The name of a learned coefficient of a scheme, or of a step size, without its step, and that step, from a parameter's path: `core.step.3.scheme.b`
/// is `core.scheme.b` of step 3.
pub fn coefficient(path: &str) -> Option<(String, Option<u64>)> {
    let parts: Vec<&str> = path.split('.').collect();
    let at = parts.iter().position(|p| *p == "scheme");
    if at.is_none() && parts.last() != Some(&"h") {
        return None;
    }
    let before = &parts[..at.unwrap_or(parts.len() - 1)];
    let (step, label) = match before {
        [label @ .., "step", n] => (Some(n.parse().ok()?), label),
        label => (None, label),
    };
    let name = label.iter().chain(&parts[before.len()..]);
    Some((name.copied().collect::<Vec<_>>().join("."), step))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::collections::BTreeMap;

    #[test]
    fn entries_are_written_and_read_as_their_names() {
        let names = EntryId::ALL.map(EntryId::as_str);
        assert!(names.is_sorted() && EntryId::ALL.is_sorted());
        for (e, name) in EntryId::ALL.into_iter().zip(names) {
            assert_eq!(name.parse(), Ok(e));
            assert_eq!((e.to_string(), String::from(e)), (name.into(), name.into()));
            assert_eq!(serde_json::to_string(&e).unwrap(), format!("{name:?}"));
        }
        assert_eq!(format!("{:<8}|", EntryId::Grad), "grad    |");
        let other = "Grad".parse::<EntryId>().unwrap_err();
        assert_eq!(other.to_string(), "`Grad` is no entry");
    }

    #[test]
    fn a_table_of_entries_is_that_of_their_names() {
        let typed: BTreeMap<EntryId, usize> = EntryId::ALL.into_iter().zip(0..).collect();
        let plain: BTreeMap<String, usize> =
            typed.iter().map(|(e, n)| (e.to_string(), *n)).collect();
        let json = serde_json::to_string(&typed).unwrap();
        assert_eq!(json, serde_json::to_string(&plain).unwrap());
        assert_eq!(
            serde_json::from_str::<BTreeMap<EntryId, usize>>(&json).unwrap(),
            typed
        );
        for name in plain.keys() {
            assert_eq!(typed.get(name.as_str()), plain.get(name));
        }
        assert!(serde_json::from_str::<BTreeMap<EntryId, usize>>(r#"{"other": 1}"#).is_err());
    }

    #[test]
    fn results_are_what_their_names_say() {
        for (id, name) in [
            (ResultId::Logits, "logits"),
            (ResultId::Values, "values"),
            (ResultId::Loss, "loss"),
            (ResultId::GradientNorm, "grad_norm"),
            (
                ResultId::Gradient("step.0.att.q.weight"),
                "grad.step.0.att.q.weight",
            ),
            (ResultId::Term("kinetic"), "loss.kinetic"),
            (
                ResultId::Shares("step.0.ffn.router"),
                "moe.share.step.0.ffn.router",
            ),
            (
                ResultId::Dropped("step.0.ffn.router"),
                "moe.dropped.step.0.ffn.router",
            ),
            (ResultId::Report("core.energy"), "report.core.energy"),
            (ResultId::Other("core.steps.rest"), "core.steps.rest"),
        ] {
            assert_eq!((id.to_string().as_str(), ResultId::of(name)), (name, id));
        }
        assert_eq!(Slot::Grads.prefix(), Some("grad."));
        for (word, taken) in [
            ("report", true),
            ("moe", true),
            ("moment2", true),
            ("ema", true),
            ("share", false),
            ("core", false),
        ] {
            assert_eq!(is_taken(word), taken, "{word}");
        }
    }

    #[test]
    fn coefficients_are_known_by_their_paths() {
        let of = |path: &str| coefficient(path);
        let some = |name: &str, step| Some((name.to_string(), step));
        assert_eq!(of("step.3.scheme.b"), some("scheme.b", Some(3)));
        assert_eq!(
            of("core.step.10.scheme.beta.2"),
            some("core.scheme.beta.2", Some(10))
        );
        assert_eq!(of("scheme.alpha"), some("scheme.alpha", None));
        assert_eq!(of("step.0.h"), some("h", Some(0)));
        assert_eq!(of("core.h"), some("core.h", None));
        assert_eq!(of("step.3.att.q.weight"), None);
    }
}
