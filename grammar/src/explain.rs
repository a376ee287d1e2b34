//! Turns pest errors into diagnostics.
//!
//! Takes the place where pest gave up and the rules it tried there; gives a sentence that names the thing found and the
//! things expected as a user knows them, and a hint where a common slip is recognisable. Leaves finding the place to
//! pest, recovery to `parse.rs`, common slips to `slips.rs`, all else to `expected.rs`.

mod expected;
mod slips;

use crate::diag::Diagnostic;
use crate::layout;
use crate::lex::{Kind, Token};
use crate::rules::Rule;
use crate::span::Span;
use crate::words::{self, Context};
use pest::error::{ErrorVariant, InputLocation};

/// One place where an item does not parse.
pub struct Failure<'a> {
    source: u32,
    text: &'a str,
    tokens: &'a [Token],
    parents: Vec<Option<usize>>,
    /// The token that could not be read; one past the last at the end.
    pub at: usize,
    expected: Vec<Rule>,
    /// The parser gave up on its own limits.
    exhausted: bool,
}

impl<'a> Failure<'a> {
    /// `tokens` are those of the item, which begins at byte `base`.
    pub fn new(
        source: u32,
        text: &'a str,
        tokens: &'a [Token],
        base: usize,
        error: &pest::error::Error<Rule>,
    ) -> Self {
        let place = base
            + match error.location {
                InputLocation::Pos(at) => at,
                InputLocation::Span((at, _)) => at,
            };
        let (mut expected, exhausted) = match &error.variant {
            ErrorVariant::ParsingError { positives, .. } => (positives.clone(), false),
            ErrorVariant::CustomError { .. } => (Vec::new(), true),
        };
        expected.sort();
        expected.dedup();
        let at = tokens.partition_point(|t| t.end <= place);
        Failure {
            source,
            text,
            tokens,
            parents: layout::parents(tokens),
            at,
            expected,
            exhausted,
        }
    }

    /// The token whose statement is to blame: an earlier one when a statement stopped short of what it needs.
    pub fn blame(&self) -> usize {
        if let Some(equals) = self.empty_assignment() {
            equals
        } else if let Some(second) = self.juxtaposed() {
            second
        } else if let Some(row) = self.row() {
            row.start
        } else if self.stops_short() {
            self.at.saturating_sub(1)
        } else {
            self.at
        }
    }

    /// The sentence about it.
    pub fn explain(&self) -> Diagnostic {
        self.exhausted()
            .or_else(|| self.stray_doc())
            .or_else(|| self.block_comment())
            .or_else(|| self.unknown_item())
            .or_else(|| self.unit_of_time())
            .or_else(|| self.policy())
            .or_else(|| self.whole_list())
            .or_else(|| self.tableau_row())
            .or_else(|| self.missing_value())
            .or_else(|| self.foreign_statement())
            .or_else(|| self.claim())
            .or_else(|| self.misspelt_keyword())
            .or_else(|| self.reserved_word())
            .or_else(|| self.odd_sign())
            .or_else(|| self.missing_operator())
            .or_else(|| self.parameters())
            .unwrap_or_else(|| self.anything())
    }

    fn token(&self) -> Option<&'a Token> {
        self.tokens.get(self.at)
    }

    fn before(&self) -> Option<&'a Token> {
        self.at.checked_sub(1).and_then(|at| self.tokens.get(at))
    }

    fn word(&self, token: &Token) -> &'a str {
        token.text(self.text)
    }

    fn span(&self, token: &Token) -> Span {
        Span {
            source: self.source,
            start: token.start as u32,
            end: token.end as u32,
        }
    }

    /// Where there is no token: just after the last one.
    fn end(&self) -> Span {
        let end = self.tokens.last().map_or(self.text.len(), |t| t.end) as u32;
        Span {
            source: self.source,
            start: end,
            end,
        }
    }

    fn expects(&self, rule: Rule) -> bool {
        self.expected.contains(&rule)
    }

    fn expects_operand(&self) -> bool {
        self.expected.iter().any(|&rule| words::is_operand(rule))
    }

    /// The innermost block around token `at`.
    fn context(&self, at: usize) -> Context {
        let Some(open) = layout::block(self.tokens, self.text, &self.parents, at) else {
            return Context::Item;
        };
        let head = layout::statement(self.tokens, self.text, open);
        let first = self.tokens[head.start..open]
            .iter()
            .find(|t| t.kind != Kind::Doc);
        first.map_or(Context::Item, |t| Context::of(self.word(t)))
    }

    /// The first token of the statement that token `at` belongs to.
    fn statement_start(&self, at: usize) -> usize {
        layout::statement(self.tokens, self.text, at).start
    }

    /// The statement before ends too early, and what was found begins the next one.
    fn stops_short(&self) -> bool {
        let complete = self.expects(Rule::close) || self.expects(Rule::EOI);
        let next = self
            .token()
            .is_none_or(|t| t.leads() || t.kind == Kind::Close || self.word(t) == ";");
        !complete && next && self.at > 0
    }

    /// `y =`, and the next line begins a statement of its own: the place of the `=`.
    fn empty_assignment(&self) -> Option<usize> {
        let equals = self.at.checked_sub(2)?;
        let (token, name) = (self.token()?, &self.tokens[self.at - 1]);
        let empty =
            self.word(token) == "=" && name.leads() && self.word(&self.tokens[equals]) == "=";
        empty.then_some(equals)
    }

    /// The tokens of the tableau or multistep row that cannot be read.
    fn row(&self) -> Option<std::ops::Range<usize>> {
        let at = self.at.min(self.tokens.len().checked_sub(1)?);
        let open = self.parents[at].filter(|&open| layout::is_rows(self.tokens, self.text, open));
        // At the brace that closes the block the last row is meant.
        let closing = || {
            self.parents[at.checked_sub(1)?]
                .filter(|&open| layout::is_rows(self.tokens, self.text, open))
        };
        let open = open.or_else(closing)?;
        let new_row = |t: usize| {
            self.tokens[t].leads() || self.word(&self.tokens[t - 1]) == ";" || t == open + 1
        };
        let over = |t: usize| {
            self.word(&self.tokens[t]) == "}" || self.word(&self.tokens[t]) == ";" || new_row(t)
        };
        // A row that ended before it was complete ends at the token before.
        let start_at = if over(at) && at > open + 1 && self.expects(Rule::bar) {
            at - 1
        } else {
            at
        };
        let start = (open + 1..=start_at).rev().find(|&t| new_row(t))?;
        let end = (start + 1..self.tokens.len()).find(|&t| over(t))?;
        Some(start..end)
    }

    /// Two operands side by side on one line: the place of the second.
    fn juxtaposed(&self) -> Option<usize> {
        let side_by_side = |at: usize| {
            let (a, b) = (self.tokens.get(at.checked_sub(1)?)?, self.tokens.get(at)?);
            let operand = matches!(b.kind, Kind::Word | Kind::Number | Kind::Str)
                || matches!(self.word(b), "(" | "[");
            let ended = matches!(a.kind, Kind::Word | Kind::Number | Kind::Str | Kind::Close);
            let words = words::is_keyword(self.word(a)) || words::is_keyword(self.word(b));
            (operand && ended && !words && !b.leads()).then_some(at)
        };
        let operators = [Rule::add_op, Rule::mul_op, Rule::pow_op, Rule::pipe_op];
        if operators.iter().any(|&rule| self.expects(rule)) {
            return side_by_side(self.at);
        }
        // `x + h F(x)` reads as `x + h` and the beginning of an assignment to `F`.
        let context = self.context(self.at.saturating_sub(1));
        let assigns = self.expects(Rule::eq) && matches!(context, Context::Body | Context::Layer);
        side_by_side(self.at.checked_sub(1).filter(|_| assigns)?)
    }
}
