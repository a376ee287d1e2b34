//! Explorations: which of several models is better at equal cost, with evidence.
//!
//! Takes a checked file with an `explore` block; gives its trials, what is the same in all of them, ordinary runs of each, and a ranking.
//!
//! ```text
//! space      the block: names, values, points
//! examine    one point: its costs, its proved order, its stability
//! matching   what all trials have alike, solved from exact costs
//! ladder     who is trained next and how far: successive halving
//! plan       all trials before anything runs, as a table and as JSON
//! identity   what a trial is known by
//! times      how long training steps take, measured
//! folder     where runs and results are kept
//! trial      trains one of them to the end of a rung, and evaluates it there
//! work       what is known while trials run, and what is written down
//! share      how many trials run at once
//! display    what is shown while they run
//! ray        trials as tasks of a Ray cluster, by a driver in Python
//! run        trains what is not there yet, several trials at once
//! student    Student's t distribution, Holm's correction
//! executed   what trials took beside what was predicted of them
//! fit        laws of loss against training FLOPs, where models come in several sizes
//! rank       intervals, paired differences, which of them hold
//! picture    a ranking as SVG
//! ```
//!
//! A file uses those above it. Leaves arguments to `src/`, and what training is to `odec-runtime`.
//!
//! `ladder` decides and knows no files. What is said of trials that have ended is evidence, the same each time (`rank`, `fit`: `ranking.json`), or
//! what they took (`executed`: `executed.json`); `tests/evidence.rs` holds both.
//!
//! # Invariants
//!
//! - A trial is a list of `--set` over a file: `odec train` with the same settings makes the same run.
//! - A plan is deterministic, and the same on every machine, but for times that were measured; those that steps were solved from are kept with the exploration.
//! - Nothing is trained before the whole plan is known to be right.
//! - A trial's run is a run of `odec train`, killed and continued like any other; a result is written once, after it.

// `odec_runtime::system::stdio` prints: what `println!` prints can end a run.
#![deny(clippy::print_stdout, clippy::print_stderr)]

mod display;
pub mod examine;
pub mod executed;
pub mod fit;
pub mod folder;
pub mod identity;
pub mod ladder;
pub mod matching;
pub mod picture;
pub mod plan;
pub mod rank;
pub mod ray;
pub mod run;
pub mod share;
pub mod space;
pub mod student;
pub mod times;
pub mod trial;
pub mod work;
