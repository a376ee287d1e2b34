//! `odec replay`: launches from files on the reference device and on a driver that computes nothing.

use odec_program::kernel::Gather;
use odec_program::{DType, Kernel, KernelSpec, Target};
use odec_runtime::conformance::cases::{Case, Cases, Expected};
use std::path::Path;
use std::process::{Command, Output};

/// Rows 2, 0 and 1 of a table, and the number that the last element should be.
fn gather(last: f64) -> Cases {
    let spec = KernelSpec::Gather(Gather {
        dtype: DType::F32,
        cols: 2,
    });
    let table = (0..6).map(|n| (n as f32).to_bits()).collect();
    let values = [4.0, 5.0, 0.0, 1.0, 2.0, last].map(|x| (x, 0.25));
    let case = Case {
        kernel: 0,
        dims: vec![3, 3],
        coeffs: vec![],
        aliases: vec![],
        operands: vec![vec![2, 0, 1], table, vec![0; 6]],
        results: vec![Expected {
            operand: 2,
            values: values.to_vec(),
        }],
    };
    Cases {
        target: Target::Sm80,
        ptx: format!(".visible .entry {}(\n", spec.symbol()),
        kernels: vec![Kernel {
            symbol: spec.symbol(),
            spec,
        }],
        cases: vec![case],
    }
}

fn replay(folder: &Path, device: &str) -> (Option<i32>, String) {
    let done: Output = Command::new(env!("CARGO_BIN_EXE_odec"))
        .arg("replay")
        .arg(folder)
        .args(["--device", device])
        .output()
        .expect("odec runs");
    let said = [done.stdout, done.stderr].concat();
    (done.status.code(), String::from_utf8_lossy(&said).into())
}

#[test]
fn launches_are_compared_with_what_they_must_give() {
    let folder = tempfile::tempdir().unwrap();
    let at = |name: &str| folder.path().join(name);
    gather(3.0).save(&at("a.safetensors")).unwrap();
    let good = (Some(0), "1 launch, as expected\n".to_string());
    assert_eq!(replay(folder.path(), "reference"), good);
    let (code, said) = replay(folder.path(), "cuda:dry");
    assert_eq!(
        (code, &*said),
        (Some(0), "1 launch, nothing was computed\n")
    );
    // One wrong launch, and one that cannot be read, do not hide the third.
    gather(3.5).save(&at("b.safetensors")).unwrap();
    std::fs::write(at("c.safetensors"), "no tensors").unwrap();
    let (code, said) = replay(folder.path(), "reference");
    assert_eq!(code, Some(1));
    assert!(said.contains("element 5: 3, not 3.5 ± 0.25"), "{said}");
    assert!(
        said.contains("c.safetensors does not hold launches"),
        "{said}"
    );
    let end = "not as expected; 1 file could not be replayed";
    assert!(
        said.contains("1 of the launches") && said.contains(end),
        "{said}"
    );
    let (code, said) = replay(folder.path(), "cuda:0");
    assert!(code == Some(1) && said.contains("add `--trust`"), "{said}");
    let (code, said) = replay(&at("none"), "reference");
    let ends = said
        .trim_end()
        .ends_with("error: 1 file could not be replayed");
    assert!(code == Some(1) && said.contains("none") && ends, "{said}");
}
