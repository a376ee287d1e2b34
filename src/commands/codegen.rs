//! The child process that generates code: `odec __codegen`.

use odec_driver::fail::{Done, Failure};
#[cfg(feature = "mlir")]
use odec_runtime::system::private;
#[cfg(feature = "mlir")]
use odec_runtime::{errln, remedy};
#[cfg(feature = "mlir")]
use std::io::ErrorKind;

#[cfg(feature = "mlir")]
pub fn run() -> Done {
    let cache = private::folder().ok().map(odec_mlir::Cache::at);
    let (input, output, log) = (std::io::stdin(), std::io::stdout(), std::io::stderr());
    match odec_mlir::serve(input, output, log, cache.as_ref()) {
        Ok(()) => Ok(()),
        Err(e) if matches!(e.kind(), ErrorKind::InvalidData | ErrorKind::UnexpectedEof) => {
            Err(Failure::internal(e))
        }
        Err(e) => {
            errln!("{e}; {}", remedy(&e));
            std::process::exit(odec_mlir::CANNOT_WRITE)
        }
    }
}

#[cfg(not(feature = "mlir"))]
pub fn run() -> Done {
    Err(Failure::input(
        "this odec was built without code generation (feature `mlir`)",
    ))
}
