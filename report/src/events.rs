//! Metrics of runs for other tools: TensorBoard's event files, CSV, JSON lines.
//!
//! Takes runs; gives bytes. A number that a run logs has a tag, `loss/training` or `experts/step.0.ffn.router/1`, a step and a time. Leaves writing
//! files to `src/`.
//!
//! An event file is a sequence of records (length, its checksum, bytes, their checksum: TensorFlow's `record_writer.cc`), each an `Event` of `event.proto`
//! with a `Summary` of scalars. Two messages with five fields in all are written by hand: a compiler of protocol buffers would be more to keep.
//!
//! A new format is a function from runs to bytes and a variant of `Metrics` in `src/cli.rs`. The names of numbers are said here once.

use crate::runs::Run;
use odec_runtime::train::metrics::{HeldOut, Movement, Record, Step};
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};
use std::time::UNIX_EPOCH;

/// The name of the event file in the folder of a run: TensorBoard knows such files by `tfevents` in their names.
pub const EVENTS: &str = "events.out.tfevents.odec";

/// Numbers of a run after a step, by their tags.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    pub step: u64,
    /// Of training, since its start.
    pub seconds: f64,
    pub numbers: Vec<(String, f64)>,
}

/// All that a run has logged, in order. Warnings are words, and left out.
pub fn rows(r: &Run) -> Vec<Row> {
    let rows = r.records.iter().filter_map(|record| match record {
        Record::Step(s) => Some(of_step(s)),
        Record::HeldOut(h) => Some(of_evaluation(h)),
        Record::Movement(m) => Some(of_movement(m)),
        Record::Warning(_) => None,
    });
    rows.collect()
}

fn of_step(s: &Step) -> Row {
    let speed = format!("{}_per_s", s.speed.unit().name());
    let mut numbers = vec![
        ("loss/training".to_string(), s.loss),
        ("learning_rate".into(), s.lr),
        ("gradient_norm".into(), s.grad_norm),
        (speed, s.speed.number()),
    ];
    let named = |of: &str, name: &str| format!("{of}/{name}");
    numbers.extend(s.terms.iter().map(|(name, x)| (named("terms", name), *x)));
    lists("experts", &s.experts, &mut numbers);
    numbers.extend(
        s.dropped
            .iter()
            .map(|(name, x)| (named("dropped", name), *x)),
    );
    lists("reports", &s.reports, &mut numbers);
    let optimizer = Some(s.optimizer_flops as f64).filter(|n| *n > 0.0);
    let single = [
        ("solver_steps", s.solver_steps),
        ("attempts", s.attempts),
        ("padding", s.padding),
        ("flops", s.flops.map(|n| n as f64)),
        ("optimizer_flops", optimizer),
        ("flop_per_s", s.flop_per_s),
    ];
    numbers.extend(
        single
            .into_iter()
            .filter_map(|(name, x)| Some((name.to_string(), x?))),
    );
    Row {
        step: s.step,
        seconds: s.seconds,
        numbers,
    }
}

fn of_evaluation(h: &HeldOut) -> Row {
    let mut numbers = vec![("loss/held_out".to_string(), h.held_out_loss)];
    numbers.extend(h.accuracy.map(|share| ("accuracy".to_string(), share)));
    lists("held_out_reports", &h.reports, &mut numbers);
    Row {
        step: h.step,
        seconds: h.seconds,
        numbers,
    }
}

fn of_movement(m: &Movement) -> Row {
    let named = |of: &str, all: &BTreeMap<String, f64>| -> Vec<(String, f64)> {
        let each = all.iter();
        each.map(|(path, x)| (format!("{of}/{path}"), *x)).collect()
    };
    let mut numbers = named("update_to_weight", &m.update_to_weight);
    numbers.extend(named("coefficients", &m.coefficients));
    Row {
        step: m.step,
        seconds: m.seconds,
        numbers,
    }
}

fn lists<'a>(
    of: &str,
    all: impl IntoIterator<Item = (&'a String, &'a Vec<f64>)>,
    into: &mut Vec<(String, f64)>,
) {
    for (name, list) in all {
        let each = list.iter().enumerate();
        into.extend(each.map(|(n, x)| (format!("{of}/{name}/{n}"), *x)));
    }
}

/// An event file. Times are those of the clock if it is known when the metrics were last written to, else seconds since the start.
pub fn events(r: &Run) -> Vec<u8> {
    let rows = rows(r);
    let last = rows.last().map_or(0.0, |row| row.seconds);
    let written = r.modified.and_then(|m| m.duration_since(UNIX_EPOCH).ok());
    let start = written.map_or(0.0, |w| w.as_secs_f64() - last);
    let mut out = Vec::new();
    let mut version = Message::default();
    version.double(1, start);
    version.bytes(3, b"brain.Event:2");
    record(&version.out, &mut out);
    for row in rows {
        let mut summary = Message::default();
        for (tag, x) in &row.numbers {
            let mut value = Message::default();
            value.bytes(1, tag.as_bytes());
            value.float(2, *x as f32);
            summary.bytes(1, &value.out);
        }
        let mut event = Message::default();
        event.double(1, start + row.seconds);
        event.integer(2, row.step);
        event.bytes(5, &summary.out);
        record(&event.out, &mut out);
    }
    out
}

/// A line for each step and evaluation of each run, with a column for each tag; empty where a line has no such number.
pub fn csv(runs: &[Run]) -> String {
    let all: Vec<(&Run, Vec<Row>)> = runs.iter().map(|r| (r, rows(r))).collect();
    let numbers = all
        .iter()
        .flat_map(|(_, rows)| rows)
        .flat_map(|row| &row.numbers);
    let tags: BTreeSet<&String> = numbers.map(|(tag, _)| tag).collect();
    let mut out = String::from("run,step,seconds");
    tags.iter()
        .for_each(|tag| out += &format!(",{}", field(tag)));
    out += "\r\n";
    for (r, rows) in &all {
        for row in rows {
            out += &format!("{},{},{}", field(&r.name), row.step, row.seconds);
            for tag in &tags {
                let mut numbers = row.numbers.iter();
                let found = numbers.find(|(t, x)| t == *tag && x.is_finite());
                out += &found.map_or(",".into(), |(_, x)| format!(",{x}"));
            }
            out += "\r\n";
        }
    }
    out
}

/// A field of a table, in quotes where RFC 4180 asks for them.
fn field(text: &str) -> String {
    match text.contains(['"', ',', '\r', '\n']) {
        true => format!("\"{}\"", text.replace('"', "\"\"")),
        false => text.to_string(),
    }
}

/// An object for each step and evaluation of each run, as in its `metrics.jsonl`, with the run's name under `run`.
pub fn json_lines(runs: &[Run]) -> String {
    let mut out = String::new();
    for r in runs {
        for record in &r.records {
            let mut line = Map::from_iter([("run".to_string(), Value::from(r.name.clone()))]);
            if let Ok(Value::Object(fields)) = serde_json::to_value(record) {
                line.extend(fields);
            }
            out += &format!("{}\n", Value::Object(line));
        }
    }
    out
}

/// A record: its length and bytes, each with a checksum.
fn record(bytes: &[u8], out: &mut Vec<u8>) {
    let length = (bytes.len() as u64).to_le_bytes();
    out.extend(length);
    out.extend(masked(crc32c(&length)).to_le_bytes());
    out.extend(bytes);
    out.extend(masked(crc32c(bytes)).to_le_bytes());
}

/// A checksum that may itself be part of what is checked: rotated, and a constant added.
fn masked(crc: u32) -> u32 {
    crc.rotate_right(15).wrapping_add(0xa282_ead8)
}

/// CRC-32C (Castagnoli), bits reflected: RFC 3720, appendix B.4.
fn crc32c(bytes: &[u8]) -> u32 {
    const TABLE: [u32; 256] = {
        let mut table = [0; 256];
        let mut n = 0;
        while n < 256 {
            let mut crc = n as u32;
            let mut bit = 0;
            while bit < 8 {
                crc = if crc & 1 == 1 {
                    crc >> 1 ^ 0x82f6_3b78
                } else {
                    crc >> 1
                };
                bit += 1;
            }
            table[n] = crc;
            n += 1;
        }
        table
    };
    let step = |crc: u32, b: &u8| TABLE[((crc ^ u32::from(*b)) & 0xff) as usize] ^ crc >> 8;
    !bytes.iter().fold(!0, step)
}

/// A protocol buffer being written.
#[derive(Default)]
struct Message {
    out: Vec<u8>,
}

impl Message {
    fn varint(&mut self, mut n: u64) {
        while n >= 0x80 {
            self.out.push(n as u8 | 0x80);
            n >>= 7;
        }
        self.out.push(n as u8);
    }

    fn key(&mut self, field: u64, wire: u64) {
        self.varint(field << 3 | wire);
    }

    fn integer(&mut self, field: u64, n: u64) {
        self.key(field, 0);
        self.varint(n);
    }

    fn double(&mut self, field: u64, x: f64) {
        self.key(field, 1);
        self.out.extend(x.to_le_bytes());
    }

    fn bytes(&mut self, field: u64, bytes: &[u8]) {
        self.key(field, 2);
        self.varint(bytes.len() as u64);
        self.out.extend(bytes);
    }

    fn float(&mut self, field: u64, x: f32) {
        self.key(field, 5);
        self.out.extend(x.to_le_bytes());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, appendix B.4, and the check value of the CRC catalogues.
    #[test]
    fn checksums_are_those_of_the_standard() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c(&[0; 32]), 0x8a91_36aa);
        assert_eq!(crc32c(&[0xff; 32]), 0x62a8_ab43);
        let rising: Vec<u8> = (0..32).collect();
        assert_eq!(crc32c(&rising), 0x46dd_794e);
    }

    #[test]
    fn fields_of_tables_are_quoted_where_they_must_be() {
        assert_eq!(field("loss/training"), "loss/training");
        assert_eq!(field("a,\"b\"\n"), "\"a,\"\"b\"\"\n\"");
    }

    #[test]
    fn numbers_are_written_in_groups_of_seven_bits() {
        let mut m = Message::default();
        m.integer(1, 150);
        m.bytes(2, b"testing");
        // Both are examples of the encoding's documentation.
        assert_eq!(m.out, b"\x08\x96\x01\x12\x07testing");
    }
}
