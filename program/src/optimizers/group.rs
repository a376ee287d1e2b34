//! Groups of parameters that do not follow the optimiser that all others follow.
//!
//! Parameters are chosen by parts of their paths, or by what they are. Leaves reading and what is wrong about names to
//! `compiler/model`, where a group lies to `compiler/passes/src/layout.rs`.

use super::OptimizerKind;
use serde::{Deserialize, Serialize};

/// What a parameter may be called by its shape: one of two sides or more, and all others.
pub const MATRICES: &str = "matrices";
pub const VECTORS: &str = "vectors";

/// Parameters with an optimiser of their own: the same with other arguments, or another one.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Group {
    /// Parts of paths: `norm`, `att.q`, `step.0`; [`MATRICES`] and [`VECTORS`].
    pub of: Vec<String>,
    pub optimizer: OptimizerKind,
    /// Whether vectors and scalars decay as matrices do.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub vectors_decay: bool,
}

impl Group {
    /// Whether a parameter is one of these.
    pub fn has(&self, path: &str, shape: &[u64]) -> bool {
        self.of.iter().any(|name| is_called(name, path, shape))
    }
}

/// Whether a name means a parameter: its parts stand in the path one behind the other, or it says what the parameter is.
pub fn is_called(name: &str, path: &str, shape: &[u64]) -> bool {
    let shaped = match shape.len() >= 2 {
        true => MATRICES,
        false => VECTORS,
    };
    let is = path.match_indices(name).any(|(at, _)| {
        let (before, behind) = (&path[..at], &path[at + name.len()..]);
        let begins = before.is_empty() || before.ends_with('.');
        begins && (behind.is_empty() || behind.starts_with('.'))
    });
    is || name == shaped
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_are_whole_parts_of_paths() {
        let path = "core.step.10.att.q.weight";
        for (name, is) in [
            ("att", true),
            ("att.q", true),
            ("step.10", true),
            ("core", true),
            ("weight", true),
            ("step.1", false),
            ("step.0", false),
            ("tt.q", false),
            ("att.k", false),
            ("matrices", true),
            ("vectors", false),
        ] {
            assert_eq!(is_called(name, path, &[8, 8]), is, "{name}");
        }
        assert!(is_called("vectors", path, &[8]) && is_called("vectors", path, &[]));
        assert!(is_called("matrices", path, &[2, 8, 8]));
    }
}
