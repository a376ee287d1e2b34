//! What a train block chooses by name, an optimiser or a schedule: its arguments, its documentation, its text in manifests.
//!
//! An argument is bound to the field that holds it in one place, [`Choice::arguments`]. Reading a source, documentation, checks and
//! manifests all go through it. Leaves what an optimiser or a schedule does to `optimizers/` and `schedules/`.

use crate::bounds::Bounds;
use serde::de::Error;
use serde::{Deserialize, Serialize, Serializer};
use std::collections::BTreeMap;

/// What it computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct About {
    /// One sentence.
    pub summary: &'static str,
    pub formula: &'static str,
    /// Who published it; empty where nobody has to be named.
    pub source: &'static str,
    /// What else a user should know, a paragraph each.
    pub notes: &'static [&'static str],
}

/// A use of it, as a file says it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Example {
    pub text: &'static str,
    pub meaning: &'static str,
}

/// An argument.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Argument {
    pub name: &'static str,
    /// Whether it must be given. Where another is not, the value of the type's `Default` is meant.
    pub needed: bool,
    pub meaning: &'static str,
}

impl Argument {
    pub const fn needed(name: &'static str, meaning: &'static str) -> Argument {
        Argument {
            name,
            needed: true,
            meaning,
        }
    }

    pub const fn optional(name: &'static str, meaning: &'static str) -> Argument {
        Argument {
            name,
            needed: false,
            meaning,
        }
    }
}

/// What may be chosen by name.
pub trait Choice {
    fn name(&self) -> &'static str;
    fn about(&self) -> About;
    /// Uses to show. Tests are made of them.
    fn examples(&self) -> &'static [Example];
    /// Shows every argument with the field that holds its value.
    fn arguments(&mut self, v: &mut dyn Visitor);
}

/// What is done with arguments, one after the other.
pub trait Visitor {
    /// A number within bounds: `lr: 3e-4`.
    fn number(&mut self, a: &Argument, bounds: Bounds, value: &mut f64);
    /// Two numbers, each within bounds: `betas: (0.9, 0.95)`.
    fn pair(&mut self, a: &Argument, bounds: Bounds, value: &mut (f64, f64));
    /// A number of steps, at most those of the run; a file may also say a share of these: `warmup: 5%`.
    fn steps(&mut self, a: &Argument, value: &mut u64);
    /// One of these words: `shape: sqrt`.
    fn word(&mut self, a: &Argument, words: &'static [&'static str], value: &mut &'static str);
}

/// A closed set of choices.
pub trait Choices: Clone {
    /// As messages call one of them: "an optimiser".
    const WHAT: &'static str;
    type Of: Choice + ?Sized;

    /// All of them, with what is meant where nothing is said.
    fn all() -> Vec<Self>;
    fn get(&self) -> &Self::Of;
    fn get_mut(&mut self) -> &mut Self::Of;
}

/// The choice of this name, with what is meant where nothing is said.
pub fn find<C: Choices>(name: &str) -> Option<C> {
    C::all().into_iter().find(|c| c.get().name() == name)
}

/// Declares a closed set: one line per choice, `module::Type`.
macro_rules! choices {
    ($kind:ident of $trait:ident, $what:literal: $($module:ident :: $ty:ident),* $(,)?) => {
        $(mod $module; pub use $module::$ty;)*

        #[doc = concat!("Any of them: ", $what, " with its arguments.")]
        #[derive(Clone, PartialEq)]
        pub enum $kind { $($ty($ty)),* }

        $(impl From<$ty> for $kind { fn from(one: $ty) -> $kind { $kind::$ty(one) } })*

        impl $crate::choice::Choices for $kind {
            const WHAT: &'static str = $what;
            type Of = dyn $trait;

            fn all() -> Vec<$kind> { vec![$($ty::default().into()),*] }
            fn get(&self) -> &Self::Of { match self { $($kind::$ty(one) => one),* } }
            fn get_mut(&mut self) -> &mut Self::Of { match self { $($kind::$ty(one) => one),* } }
        }

        impl std::ops::Deref for $kind {
            type Target = dyn $trait;
            fn deref(&self) -> &Self::Target { $crate::choice::Choices::get(self) }
        }

        impl std::ops::DerefMut for $kind {
            fn deref_mut(&mut self) -> &mut Self::Target { $crate::choice::Choices::get_mut(self) }
        }

        impl std::fmt::Debug for $kind {
            fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
                match self { $($kind::$ty(one) => std::fmt::Debug::fmt(one, f)),* }
            }
        }
    };
}
pub(crate) use choices;

/// The value of an argument, in a manifest.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(untagged)]
pub(crate) enum Value {
    Whole(u64),
    Number(f64),
    Pair(f64, f64),
    Word(String),
}

/// Arguments by name, in a manifest that is read.
pub(crate) type Given = BTreeMap<String, Value>;

/// Arguments by name, in their own order.
#[derive(Default)]
pub(crate) struct Values(pub Vec<(&'static str, Value)>);

impl Values {
    pub fn of<C: Choices>(chosen: &C) -> Values {
        let mut values = Values::default();
        chosen.clone().get_mut().arguments(&mut values);
        values
    }
}

impl Visitor for Values {
    fn number(&mut self, a: &Argument, _: Bounds, value: &mut f64) {
        self.0.push((a.name, Value::Number(*value)));
    }
    fn pair(&mut self, a: &Argument, _: Bounds, value: &mut (f64, f64)) {
        self.0.push((a.name, Value::Pair(value.0, value.1)));
    }
    fn steps(&mut self, a: &Argument, value: &mut u64) {
        self.0.push((a.name, Value::Whole(*value)));
    }
    fn word(&mut self, a: &Argument, _: &'static [&'static str], value: &mut &'static str) {
        self.0.push((a.name, Value::Word((*value).into())));
    }
}

/// As a file says it, with all arguments: `sgd(lr: 0.1, momentum: 0.9, weight_decay: 0)`.
pub fn text<C: Choices>(chosen: &C) -> String {
    let values = Values::of(chosen).0.into_iter();
    let values: Vec<String> = values.map(|(name, x)| format!("{name}: {x}")).collect();
    match &values[..] {
        [] => chosen.get().name().into(),
        values => format!("{}({})", chosen.get().name(), values.join(", ")),
    }
}

impl std::fmt::Display for Value {
    fn fmt(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        // The shorter way to write a number.
        let short = |x: f64| {
            let [plain, power] = [format!("{x}"), format!("{x:e}")];
            if power.len() < plain.len() {
                power
            } else {
                plain
            }
        };
        match self {
            Value::Whole(n) => write!(f, "{n}"),
            Value::Number(x) => f.write_str(&short(*x)),
            Value::Pair(x, y) => write!(f, "({}, {})", short(*x), short(*y)),
            Value::Word(word) => f.write_str(word),
        }
    }
}

impl Serialize for Values {
    fn serialize<S: Serializer>(&self, s: S) -> Result<S::Ok, S::Error> {
        s.collect_map(self.0.iter().map(|(name, value)| (name, value)))
    }
}

/// The choice of a name with the arguments that a manifest gives.
pub(crate) fn restored<C: Choices, E: Error>(name: &str, given: Given) -> Result<C, E> {
    let unknown = || E::custom(format!("`{name}` is not {}", C::WHAT));
    let mut chosen: C = find(name).ok_or_else(unknown)?;
    let mut filler = Filler { given, wrong: None };
    chosen.get_mut().arguments(&mut filler);
    let Filler { given, wrong } = filler;
    let left = given.keys().next();
    let left = left.map(|argument| format!("has no argument `{argument}`"));
    match wrong.or(left) {
        Some(wrong) => Err(E::custom(format!("`{name}` {wrong}"))),
        None => Ok(chosen),
    }
}

/// Puts values of a manifest into their fields.
struct Filler {
    given: Given,
    /// The first that is wrong.
    wrong: Option<String>,
}

impl Filler {
    fn fill<T>(&mut self, a: &Argument, into: &mut T, read: impl Fn(&Value) -> Option<T>) {
        let wrong = match self.given.remove(a.name) {
            Some(value) => match read(&value) {
                Some(value) => {
                    *into = value;
                    return;
                }
                None => format!("has no such `{}`", a.name),
            },
            None if a.needed => format!("needs `{}`", a.name),
            None => return,
        };
        self.wrong.get_or_insert(wrong);
    }
}

impl Visitor for Filler {
    fn number(&mut self, a: &Argument, _: Bounds, value: &mut f64) {
        self.fill(a, value, |given| match given {
            Value::Whole(n) => Some(*n as f64),
            Value::Number(x) => Some(*x),
            _ => None,
        });
    }
    fn pair(&mut self, a: &Argument, _: Bounds, value: &mut (f64, f64)) {
        self.fill(a, value, |given| match given {
            Value::Pair(x, y) => Some((*x, *y)),
            _ => None,
        });
    }
    fn steps(&mut self, a: &Argument, value: &mut u64) {
        self.fill(a, value, |given| match given {
            Value::Whole(n) => Some(*n),
            _ => None,
        });
    }
    fn word(&mut self, a: &Argument, words: &'static [&'static str], value: &mut &'static str) {
        self.fill(a, value, |given| match given {
            Value::Word(word) => words.iter().copied().find(|known| known == word),
            _ => None,
        });
    }
}
