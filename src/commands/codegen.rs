//! The child process that generates code: `odec __codegen`.

use crate::fail::{Done, Failure};

#[cfg(feature = "mlir")]
pub fn run() -> Done {
    odec_mlir::serve(std::io::stdin(), std::io::stdout(), std::io::stderr())
        .map_err(Failure::internal)
}

#[cfg(not(feature = "mlir"))]
pub fn run() -> Done {
    Err(Failure::input(
        "this odec was built without code generation (feature `mlir`)",
    ))
}
