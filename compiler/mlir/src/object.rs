//! Object code of one kernel, and the check that it needs no others.

use crate::error::CodegenError;
use odec_program::Target;

/// An ELF object, or a PTX module, holding one kernel.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Object {
    pub symbol: String,
    pub bytes: Vec<u8>,
}

/// The C functions that LLVM may call on its own account; every process has them.
const PROVIDED: [&str; 3] = ["memcpy", "memmove", "memset"];

impl Object {
    /// Wraps an object file for a processor, or a PTX module for a GPU.
    ///
    /// # Errors
    /// [`CodegenError::Undefined`] when it refers to anything but `memcpy`, `memmove` and `memset` (PTX: to anything at
    /// all); [`CodegenError::Lower`] when it is not a 64-bit little-endian ELF object, or PTX without the kernel.
    pub fn new(symbol: &str, target: Target, bytes: Vec<u8>) -> Result<Object, CodegenError> {
        let symbol = symbol.to_string();
        let (found, what) = match target.is_gpu() {
            true => (undefined_in_ptx(&symbol, &bytes), "PTX with the kernel"),
            false => (undefined_in_elf(&bytes), "an ELF object"),
        };
        let Some(names) = found else {
            return Err(CodegenError::Lower {
                symbol,
                message: format!("LLVM's output is not {what}"),
            });
        };
        let names: Vec<String> = names
            .into_iter()
            .filter(|n| !PROVIDED.contains(&n.as_str()))
            .collect();
        if !names.is_empty() {
            return Err(CodegenError::Undefined { symbol, names });
        }
        Ok(Object { symbol, bytes })
    }
}

/// The functions that a module refers to and does not have; `None` when it is not PTX, or has not exactly this kernel.
fn undefined_in_ptx(symbol: &str, bytes: &[u8]) -> Option<Vec<String>> {
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

/// The names in the symbol table of a 64-bit little-endian ELF file that have no section (System V ABI,
/// chapter 4, "Symbol Table"). `None` when the file is something else or cut short.
fn undefined_in_elf(file: &[u8]) -> Option<Vec<String>> {
    const SYMBOL_TABLE: u64 = 2;
    let field = |at: u64, bytes: usize| -> Option<u64> {
        let part = file.get(at as usize..)?.get(..bytes)?;
        Some(part.iter().rev().fold(0, |n, &b| n << 8 | b as u64))
    };
    if file.get(..6)? != b"\x7fELF\x02\x01" {
        return None;
    }
    let (headers, size, count) = (field(40, 8)?, field(58, 2)?, field(60, 2)?);
    let header = |n: u64| headers + n * size;
    let mut names = Vec::new();
    for section in (0..count).map(header) {
        if field(section + 4, 4)? != SYMBOL_TABLE {
            continue;
        }
        let (start, bytes, strings) = (
            field(section + 24, 8)?,
            field(section + 32, 8)?,
            field(section + 40, 4)?,
        );
        let text = field(header(strings) + 24, 8)?;
        // entry 0 is the null symbol
        for entry in (start + 24..start + bytes).step_by(24) {
            let (name, index) = (field(entry, 4)?, field(entry + 6, 2)?);
            let name = file
                .get((text + name) as usize..)?
                .split(|&b| b == 0)
                .next()?;
            if index == 0 && !name.is_empty() {
                names.push(String::from_utf8_lossy(name).into_owned());
            }
        }
    }
    Some(names)
}
