//! Diagnostics: a code, a sentence, labelled places, and help. Only the command line prints them.

use crate::escape::{escaped, escaped_lines};
use crate::span::{Sources, Span};
use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};
use serde::Serialize;
use std::ops::Range;

#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Severity {
    Error,
    Warning,
    Note,
}

/// A place and what is to be said about it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Label {
    pub span: Span,
    pub text: String,
}

/// One message about the user's source.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Diagnostic {
    pub severity: Severity,
    /// One of [`codes`](crate::codes).
    pub code: &'static str,
    /// One sentence without a full stop: what is wrong.
    pub message: String,
    /// The place to look at first, then related ones.
    pub labels: Vec<Label>,
    /// What was expected, or how to fix it.
    pub help: Option<String>,
}

impl Diagnostic {
    pub fn error(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Error,
            code,
            message: message.into(),
            labels: vec![Label {
                span,
                text: String::new(),
            }],
            help: None,
        }
    }
    pub fn warning(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Warning,
            ..Self::error(code, span, message)
        }
    }
    pub fn note(code: &'static str, span: Span, message: impl Into<String>) -> Self {
        Diagnostic {
            severity: Severity::Note,
            ..Self::error(code, span, message)
        }
    }
    /// Text under the caret of the first place.
    pub fn label(mut self, text: impl Into<String>) -> Self {
        self.labels[0].text = text.into();
        self
    }
    /// A related place.
    pub fn also(mut self, span: Span, text: impl Into<String>) -> Self {
        self.labels.push(Label {
            span,
            text: text.into(),
        });
        self
    }
    pub fn help(mut self, text: impl Into<String>) -> Self {
        self.help = Some(text.into());
        self
    }
}

/// Renders a message with file, line, caret, expectation and hint. No newline at the end.
///
/// Labels of one source are shown together, sources in the order of their first label. A span outside its text is moved
/// to the nearest place inside it.
pub fn render(d: &Diagnostic, sources: &Sources, colour: bool) -> String {
    let level = match d.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
        Severity::Note => Level::NOTE,
    };
    let mut order: Vec<u32> = Vec::new();
    for label in &d.labels {
        if !order.contains(&label.span.source) && (label.span.source as usize) < sources.len() {
            order.push(label.span.source);
        }
    }
    let mut group = level
        .primary_title(escaped_lines(&d.message))
        .id(d.code)
        .elements(order.iter().map(|&source| {
            let text = sources.text(source);
            let places: Vec<(usize, &Label, Range<usize>)> = d
                .labels
                .iter()
                .enumerate()
                .filter(|(_, label)| label.span.source == source)
                .map(|(at, label)| (at, label, inside(text, label.span)))
                .collect();
            // Only the lines from the first label to the last, so that long texts cost nothing.
            let start = places
                .iter()
                .map(|(_, _, range)| range.start)
                .min()
                .unwrap_or(0);
            let end = places
                .iter()
                .map(|(_, _, range)| range.end)
                .max()
                .unwrap_or(0);
            let start = text[..start].rfind('\n').map_or(0, |newline| newline + 1);
            let end = text[end..].find('\n').map_or(text.len(), |len| end + len);
            let line = 1 + text[..start].bytes().filter(|&b| b == b'\n').count();
            let annotations = places.into_iter().map(|(at, label, range)| {
                let kind = if at == 0 {
                    AnnotationKind::Primary
                } else {
                    AnnotationKind::Context
                };
                let annotation = kind.span(range.start - start..range.end - start);
                if label.text.is_empty() {
                    annotation
                } else {
                    annotation.label(escaped_lines(&label.text))
                }
            });
            Snippet::source(&text[start..end])
                .line_start(line)
                .path(escaped(sources.name(source)))
                .annotations(annotations)
        }));
    if let Some(help) = &d.help {
        group = group.element(Level::HELP.message(escaped_lines(help)));
    }
    let renderer = if colour {
        Renderer::styled()
    } else {
        Renderer::plain()
    };
    renderer.render(&[group])
}

/// The bytes of a span, moved to character boundaries inside the text.
fn inside(text: &str, span: Span) -> Range<usize> {
    let floor = |at: u32| text.floor_char_boundary((at as usize).min(text.len()));
    let start = floor(span.start);
    start..floor(span.end).max(start)
}
