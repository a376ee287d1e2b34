//! What others made: manifests, kernels, checkpoints, tokenizers and sources, damaged or crafted, in great number. Each is refused with
//! words that say where, or does what it says; nothing panics, hangs or ends the process.
//!
//! The suite tries a part; `make hostile` tries all and prints the counts. Cases are numbered and made from their number alone.

mod checkpoints;
mod kernels;
mod manifests;
mod models;
mod mutate;
mod sources;
mod tokenizers;
mod worker;

use worker::Family;

const FAMILIES: [Family; 5] = [
    Family {
        name: "manifests",
        whole: 7000,
        part: 40,
        run: manifests::run,
    },
    Family {
        name: "kernels",
        whole: 400,
        part: 12,
        run: kernels::run,
    },
    Family {
        name: "checkpoints",
        whole: 250,
        part: 16,
        run: checkpoints::run,
    },
    Family {
        name: "tokenizers",
        whole: 70,
        part: 6,
        run: tokenizers::run,
    },
    Family {
        name: "sources",
        whole: 350,
        part: 35,
        run: sources::run,
    },
];

/// Not a test: the process that tries the cases, started by the others.
#[test]
fn worker() {
    worker::serve(&FAMILIES);
}

fn survive(name: &str) {
    let family = FAMILIES.iter().find(|f| f.name == name).unwrap();
    let counts = worker::survive(family);
    println!("{counts}");
    assert!(counts.faults.is_empty(), "{counts}");
    assert!(counts.refused > 0, "{name}: nothing was refused");
}

#[test]
fn manifests() {
    survive("manifests");
}

#[test]
fn kernels() {
    survive("kernels");
}

#[test]
fn checkpoints() {
    survive("checkpoints");
}

#[test]
fn tokenizers() {
    survive("tokenizers");
}

#[test]
fn sources() {
    survive("sources");
}
