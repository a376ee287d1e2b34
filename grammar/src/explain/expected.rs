//! The general syntax error: what was expected, and what was found.
//!
//! Takes a [`Failure`] that is no common slip; gives a sentence made of the rules that were tried.

use super::Failure;
use crate::codes;
use crate::diag::Diagnostic;
use crate::lex::Token;
use crate::rules::Rule;
use crate::words::{self, Context};

impl Failure<'_> {
    /// What closes the parenthesis or list around the place.
    pub(super) fn bracket(&self) -> Option<&'static str> {
        let parent = (*self.parents.get(self.at)?)?;
        match self.word(&self.tokens[parent]) {
            "(" => Some(")"),
            "[" => Some("]"),
            _ => None,
        }
    }

    /// The general case: expected this, found that.
    pub(super) fn anything(&self) -> Diagnostic {
        let wanted = self.wanted();
        if self.stops_short()
            && let Some(before) = self.before()
        {
            let found = self
                .token()
                .map_or("the end".to_string(), |t| format!("`{}`", self.short(t)));
            return Diagnostic::error(
                codes::SYNTAX,
                self.span(before),
                format!("{wanted} after `{}`, found {found}", self.short(before)),
            )
            .label("this is incomplete");
        }
        let context = self.context(self.at.min(self.tokens.len().saturating_sub(1)));
        let (span, found) = match self.token() {
            Some(token) => (self.span(token), format!("`{}`", self.short(token))),
            None => (self.end(), "the end".to_string()),
        };
        let error = Diagnostic::error(codes::SYNTAX, span, format!("{wanted}, found {found}"))
            .label("not expected here");
        let parts = self
            .expected
            .iter()
            .filter(|&&rule| words::keyword(rule).is_some())
            .count();
        match self.expects(Rule::close) && parts > 2 {
            true => error.help(context.help()),
            false => error,
        }
    }

    /// `expected a name or `(``.
    pub(super) fn wanted(&self) -> String {
        let at = self.at.min(self.tokens.len().saturating_sub(1));
        let context = self.context(at);
        let mut parts: Vec<String> = Vec::new();
        let mut add = |part: String| {
            if !parts.contains(&part) {
                parts.push(part);
            }
        };
        let keywords = self
            .expected
            .iter()
            .filter(|&&rule| words::keyword(rule).is_some())
            .count();
        let entries = matches!(context, Context::Train | Context::Explore);
        let many = self.expects(Rule::close)
            && (entries || keywords > 2 && !context.keywords().is_empty());
        if many {
            add(context.part().to_string());
        }
        let operators_only = self
            .expected
            .iter()
            .all(|&rule| words::plain(rule).is_none());
        for &rule in &self.expected {
            if let Some(keyword) = words::keyword(rule) {
                if !many {
                    add(format!("`{keyword}`"));
                }
            } else if let Some(plain) = words::plain(rule)
                && !(many && rule != Rule::close)
                && !(rule == Rule::ident && self.expects_operand())
            {
                add(plain.to_string());
            }
        }
        if operators_only && keywords == 0 {
            add("an operator".to_string());
        }
        if let Some(close) = self.bracket().filter(|_| !self.expects_operand()) {
            add("`,`".to_string());
            add(format!("`{close}`"));
        }
        let last = parts.pop().unwrap_or_else(|| "something else".to_string());
        match parts.is_empty() {
            true => format!("expected {last}"),
            false => format!("expected {} or {last}", parts.join(", ")),
        }
    }

    /// A token as it is shown in a sentence.
    pub(super) fn short(&self, token: &Token) -> String {
        let text: String = self
            .word(token)
            .chars()
            .map(|c| if c.is_control() { '\u{fffd}' } else { c })
            .collect();
        match text.char_indices().nth(24) {
            Some((cut, _)) => format!("{}…", &text[..cut]),
            None => text,
        }
    }
}
