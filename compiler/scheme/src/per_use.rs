//! Which fields have their own parameters at each place in the source (`weights per use`).
//!
//! Two evaluations at one value are one evaluation, unless their field is one of these.

use std::collections::BTreeMap;

/// The policy for all fields, and for single ones.
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
