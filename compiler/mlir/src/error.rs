//! What can go wrong between a kernel and a shared object. All of it is our fault or the machine's,
//! never that of the model being compiled.

use std::path::PathBuf;

#[derive(Debug, thiserror::Error)]
pub enum CodegenError {
    /// The spec asks for something that the emitters do not do.
    #[error("kernel {symbol} cannot be emitted: {reason}")]
    Spec { symbol: String, reason: String },
    /// MLIR or LLVM rejects the emitted text.
    #[error("kernel {symbol}: {message}")]
    Lower { symbol: String, message: String },
    /// The object calls functions that no artifact provides.
    #[error("kernel {symbol} refers to undefined symbols: {}", names.join(", "))]
    Undefined { symbol: String, names: Vec<String> },
    /// The code generator's process answered with an error about this kernel.
    #[error("{message}")]
    Failed { symbol: String, message: String },
    /// The code generator's process ended while it worked on these kernels.
    #[error("the code generator ended ({status}) while compiling {}{}", symbols.join(", "), tail(output))]
    Aborted {
        symbols: Vec<String>,
        status: String,
        output: String,
    },
    /// The code generator's process was killed: for so long it had neither begun nor ended a kernel.
    #[error("the code generator did not finish within {seconds} s while compiling {}", symbols.join(", "))]
    Stuck { symbols: Vec<String>, seconds: f64 },
    /// The code generator's process answered with something else than objects.
    #[error("the code generator's answer cannot be read: {0}")]
    Protocol(String),
    /// The code generator's process could not hand over what it made.
    #[error("the code generator cannot write its result: {0}")]
    Unwritten(String),
    #[error("cannot run the code generator: {0}")]
    Spawn(#[source] std::io::Error),
    /// A linker ran and failed.
    #[error("linking failed: `{command}`: {output}")]
    Link { command: String, output: String },
    #[error("no linker found: install ld (package binutils), ld.lld (package lld-22) or a C compiler; tried {}", tried.join(", "))]
    NoLinker { tried: Vec<String> },
    #[error("{}: {source}", path.display())]
    Io {
        path: PathBuf,
        source: std::io::Error,
    },
}

impl CodegenError {
    /// Whether the machine is at fault, not odec: no process, disk or linker to be had.
    pub fn is_of_the_machine(&self) -> bool {
        use CodegenError::*;
        matches!(self, Unwritten(_) | Spawn(_) | NoLinker { .. } | Io { .. })
    }

    /// The kernel that failed, where it is one kernel.
    pub fn symbol(&self) -> Option<&str> {
        match self {
            CodegenError::Spec { symbol, .. }
            | CodegenError::Lower { symbol, .. }
            | CodegenError::Undefined { symbol, .. }
            | CodegenError::Failed { symbol, .. } => Some(symbol),
            _ => None,
        }
    }
}

fn tail(output: &str) -> String {
    match output.trim() {
        "" => String::new(),
        text => format!(": {text}"),
    }
}
