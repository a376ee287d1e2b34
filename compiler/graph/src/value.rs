//! The name of a value: which result of which node.

/// One result of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    pub node: u32,
    pub port: u32,
}

/// An iterate and what f makes of it, each one value for every unknown.
#[derive(Clone, Debug, PartialEq)]
pub struct Pair {
    pub z: Vec<Value>,
    pub f: Vec<Value>,
}
