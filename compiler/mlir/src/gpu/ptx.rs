//! PTX modules as text: the check that a kernel stands on its own, and many kernels in one file.
//!
//! Takes what LLVM writes for one kernel; gives the names it refers to, or one module of all kernels, for the driver to
//! compile. Leaves the assembling to the driver (and, in tests, to `ptxas`).

use crate::object::Object;

/// The functions that a module refers to and does not have; `None` when it is not PTX, or has not exactly this kernel.
pub(crate) fn undefined(symbol: &str, bytes: &[u8]) -> Option<Vec<String>> {
    let text = std::str::from_utf8(bytes).ok()?;
    if !text.contains(".version") || !text.contains(".address_size 64") {
        return None;
    }
    let entries: Vec<&str> = text
        .lines()
        .filter_map(|l| l.split_once(".entry "))
        .map(|e| e.1)
        .collect();
    if entries.len() != 1 || entries[0].trim_end_matches('(') != symbol {
        return None;
    }
    // Shared memory whose size a launch says is declared as if it were somebody else's.
    let own = format!(" {symbol}_shared[];");
    let outside = text.lines().filter(|l| l.contains(".extern"));
    let outside = outside.filter(|l| !(l.contains(".extern .shared ") && l.ends_with(&own)));
    Some(outside.map(|l| l.trim().to_string()).collect())
}

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
