//! The `data` entry of a train block.
//!
//! | form | |
//! |---|---|
//! | `text("a.txt", …, tokenizer: bytes)` | texts; a token per byte |
//! | `text("a.txt", …, tokenizer: "tokenizer.json")` | texts, and the Hugging Face tokenizer that makes tokens of them |
//! | `… key: "text", separator: "<\|endoftext\|>"` | in files named `….jsonl`: where a line of JSON has its text (default `text`), and what follows it (default: a line end) |
//! | `tokens("a.bin", …)` | token numbers, little-endian: 4 bytes each in files named `….u32.bin`, 2 in all others |
//! | `… held_out: 10%` | the end is held out for evaluation; 10% unless given |
//!
//! Files are named, not opened: whether a `tokenizer.json` fits the model is for those to check who may read it, with the
//! [`Tokenized`] place that is given back.

use super::spec::expect;
use crate::codes;
use crate::scheme::args::{Args, report};
use crate::scheme::scalar::{Scope, exact, name_of};
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
use odec_program::manifest::{Data, Form, Tokenizer};

/// Tokens of the byte tokenizer.
pub const BYTES: u64 = 256;

/// A tokenizer file, and where the source names it.
#[derive(Clone, Debug, PartialEq)]
pub struct Tokenized {
    pub path: String,
    pub span: Span,
}

const EXAMPLE: &str = "data text(\"corpus.txt\", tokenizer: bytes)";

/// Reads `text(…)` or `tokens(…)`; `vocab` is the model's.
pub fn read(e: &Expr, vocab: u64, sink: &mut Vec<Diagnostic>) -> Option<(Data, Option<Tokenized>)> {
    if Args::of(e).is_some_and(|a| a.callee.name == "tokens") {
        let mut args = Args::of(e)?;
        let files = files(&mut args, sink);
        let held_out_percent = held_out(&mut args, sink);
        args.finish(&[], sink);
        let data = Data {
            files: files?,
            form: Form::Tokens,
            held_out_percent: held_out_percent?,
        };
        return Some((data, None));
    }
    let mut args = expect(e, "text", &["images"], EXAMPLE, sink)?;
    let files = files(&mut args, sink);
    let given = args.required("tokenizer", sink);
    let key = words(&mut args, "key", "text", sink);
    let separator = words(&mut args, "separator", "\n", sink);
    let held_out_percent = held_out(&mut args, sink);
    args.finish(&[], sink);
    let (tokenizer, tokenized) = tokenizer(given?, vocab, sink)?;
    let data = Data {
        files: files?,
        form: Form::Text {
            tokenizer,
            key: key?,
            separator: separator?,
        },
        held_out_percent: held_out_percent?,
    };
    Some((data, tokenized))
}

fn tokenizer(
    e: &Expr,
    vocab: u64,
    sink: &mut Vec<Diagnostic>,
) -> Option<(Tokenizer, Option<Tokenized>)> {
    if let ExprKind::Str(path) = &e.kind {
        let tokenized = Tokenized {
            path: path.clone(),
            span: e.span,
        };
        return Some((Tokenizer::File(path.clone()), Some(tokenized)));
    }
    if name_of(e).is_none_or(|n| n.name != "bytes") {
        sink.push(
            Diagnostic::error(codes::UNKNOWN_OPTION, e.span, "this is not a tokenizer")
                .label("`bytes`, or the path of a tokenizer.json in quotes, is expected"),
        );
        return None;
    }
    if vocab < BYTES {
        sink.push(too_many(e.span, "bytes are", BYTES, vocab));
        return None;
    }
    Some((Tokenizer::Bytes, None))
}

/// A vocabulary that the model has no room for; `which` begins the sentence.
pub fn too_many(span: Span, which: &str, needs: u64, vocab: u64) -> Diagnostic {
    Diagnostic::error(
        codes::VOCABULARY_MISMATCH,
        span,
        format!("{which} {needs} kinds of tokens, the model knows {vocab}"),
    )
    .help(format!("write `input tokens(vocab: {needs}, …)`"))
}

/// All arguments without a label: one path at least.
fn files(args: &mut Args, sink: &mut Vec<Diagnostic>) -> Option<Vec<String>> {
    let (name, span) = (args.callee.name.clone(), args.span);
    let mut files = Vec::new();
    let mut good = true;
    while let Some(e) = args.positional() {
        match &e.kind {
            ExprKind::Str(path) => files.push(path.clone()),
            _ => {
                good = false;
                sink.push(
                    Diagnostic::error(codes::NOT_A_STRING, e.span, "this is not a path")
                        .label("a path in quotes is expected"),
                );
            }
        }
    }
    if files.is_empty() && good {
        let message = format!("`{name}` needs a file");
        sink.push(
            Diagnostic::error(codes::MISSING_ARGUMENT, span, message)
                .help(format!("write `{name}(\"file\", …)`")),
        );
        return None;
    }
    good.then_some(files)
}

/// An optional string.
fn words(
    args: &mut Args,
    label: &'static str,
    default: &str,
    sink: &mut Vec<Diagnostic>,
) -> Option<String> {
    match args.labelled(label, sink).map(|e| (&e.kind, e.span)) {
        None => Some(default.into()),
        Some((ExprKind::Str(text), _)) => Some(text.clone()),
        Some((_, span)) => {
            let message = format!("`{label}` is a text");
            sink.push(
                Diagnostic::error(codes::NOT_A_STRING, span, message)
                    .label("something in quotes is expected"),
            );
            None
        }
    }
}

fn held_out(args: &mut Args, sink: &mut Vec<Diagnostic>) -> Option<u32> {
    match args.labelled("held_out", sink) {
        Some(e) => per_cent(e, sink),
        None => Some(10),
    }
}

fn per_cent(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<u32> {
    let value = report(exact(e, &Scope::new()), sink)?;
    let hundred = (&value * &Exact::int(100)).as_integer();
    let n = hundred.and_then(|n| u32::try_from(n).ok());
    match n.filter(|n| (1..=50).contains(n)) {
        Some(n) => Some(n),
        None => {
            sink.push(
                Diagnostic::error(
                    codes::OUT_OF_RANGE,
                    e.span,
                    format!("{value} of the text cannot be held out"),
                )
                .label("a whole percentage from 1% to 50% is expected"),
            );
            None
        }
    }
}
