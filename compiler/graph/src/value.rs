//! The name of a value: which result of which node.

/// One result of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    pub node: u32,
    pub port: u32,
}
