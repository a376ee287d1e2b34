//! Kernel specs (a JSON list on standard input) to a shared object, for benchmarks in other languages:
//! `kernels TARGET OUT.so < specs.json` prints the symbol of each.

use odec_mlir::Cache;
use odec_program::{Kernel, KernelSpec, Target};
use std::path::Path;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [target, out] = &arguments[..] else {
        return Err("usage: kernels TARGET OUT.so < specs.json".into());
    };
    let target: Target = target.parse()?;
    let specs: Vec<KernelSpec> = serde_json::from_reader(std::io::stdin())?;
    let mut kernels = Vec::new();
    for spec in specs {
        let kernel = Kernel {
            symbol: spec.symbol(),
            spec,
        };
        println!("{}", kernel.symbol);
        if !kernels.contains(&kernel) {
            kernels.push(kernel);
        }
    }
    let objects = odec_mlir::compile(&kernels, target, Cache::from_env().as_ref())?;
    odec_mlir::link(&objects, Path::new(out))?;
    Ok(())
}
