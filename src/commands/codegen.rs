//! The child process that generates code: `odec __codegen`.

use crate::fail::{Done, Failure};
#[cfg(feature = "mlir")]
use odec_runtime::private;

#[cfg(feature = "mlir")]
pub fn run() -> Done {
    let cache = private::folder().ok().map(odec_mlir::Cache::at);
    let (input, output, log) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    odec_mlir::serve(input, output, log, cache.as_ref()).map_err(Failure::internal)
}

#[cfg(not(feature = "mlir"))]
pub fn run() -> Done {
    Err(Failure::input(
        "this odec was built without code generation (feature `mlir`)",
    ))
}
