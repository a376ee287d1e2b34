//! The program's own file: what the system does with it before a command begins.

#![cfg(llvm_waits)]

/// The system runs the constructors of `.init_array` before `main`. LLVM's 650 stand in a section of their own, and wait for the first kernel.
#[test]
fn a_command_starts_without_llvms_constructors() {
    let program = std::fs::read(env!("CARGO_BIN_EXE_odec")).expect("the program");
    let sections = sections(&program);
    let at_start = sections.iter().find(|(name, _)| name == ".init_array");
    let (_, bytes) = at_start.expect("Rust has one");
    assert!(bytes / 8 < 30, "{} constructors at the start", bytes / 8);
}

/// Names and sizes of the sections of an ELF file of 64 bits.
fn sections(elf: &[u8]) -> Vec<(String, u64)> {
    let number = |at: usize, bytes: usize| {
        let mut whole = [0; 8];
        whole[..bytes].copy_from_slice(&elf[at..at + bytes]);
        u64::from_le_bytes(whole)
    };
    let (table, count, names) = (
        number(0x28, 8) as usize,
        number(0x3c, 2) as usize,
        number(0x3e, 2) as usize,
    );
    let header = |n: usize| table + 64 * n;
    let names = number(header(names) + 0x18, 8) as usize;
    let each = (0..count).map(|n| {
        let name = &elf[names + number(header(n), 4) as usize..];
        let end = name.iter().position(|b| *b == 0).unwrap_or(0);
        (
            String::from_utf8_lossy(&name[..end]).into_owned(),
            number(header(n) + 0x20, 8),
        )
    });
    each.collect()
}
