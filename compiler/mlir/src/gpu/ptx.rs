//! PTX modules as text: many kernels in one file.
//!
//! Takes what LLVM writes for each kernel; gives one module of all, for the driver to compile. Leaves the assembling to
//! the driver (and, in tests, to `ptxas`).

use crate::object::Object;

/// One module of all kernels, in their order. The heads of modules for one target are the same.
pub fn join(objects: &[Object]) -> Vec<u8> {
    let mut out = String::new();
    for object in objects {
        let text = String::from_utf8_lossy(&object.bytes);
        let directive = |l: &&str| {
            [".version", ".target", ".address_size"]
                .iter()
                .any(|d| l.starts_with(d))
        };
        if out.is_empty() {
            for line in text.lines().filter(directive) {
                out.push_str(line);
                out.push('\n');
            }
        }
        out.push('\n');
        let kept = text.lines().filter(|l| !directive(l));
        let kept = kept.filter(|l| !l.trim().is_empty() && !l.trim_start().starts_with("//"));
        for line in kept {
            // labels are the same in every module, and belong to their function
            out.push_str(line);
            out.push('\n');
        }
    }
    out.into_bytes()
}
