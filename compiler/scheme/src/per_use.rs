//! Which fields have parameters of their own at each place they are written at (`weights per use`).
//!
//! Two evaluations at one value are one evaluation, unless their field is among these.

use std::collections::BTreeMap;

/// What is said of all fields, and of single ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PerUse {
    pub all: bool,
    pub fields: BTreeMap<String, bool>,
}

/// All uses of a field share its parameters.
pub static SHARED: PerUse = PerUse::of_all(false);
/// Every use has its own.
pub static OWN: PerUse = PerUse::of_all(true);

impl PerUse {
    const fn of_all(all: bool) -> PerUse {
        PerUse {
            all,
            fields: BTreeMap::new(),
        }
    }

    pub fn of(&self, field: &str) -> bool {
        self.fields.get(field).copied().unwrap_or(self.all)
    }

    /// Whether it is so of any field.
    pub fn is_any(&self) -> bool {
        self.all || self.fields.values().any(|own| *own)
    }
}
