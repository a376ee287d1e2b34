//! What went wrong, in words: a pest error to a diagnostic.
//!
//! Takes the place where pest gave up and the rules it tried there; gives a sentence that names the thing found and the
//! things expected as a user knows them, and a hint where a common slip is recognisable. Leaves finding the place to
//! pest and recovery to `parse.rs`.

use crate::diag::Diagnostic;
use crate::layout;
use crate::lex::{Kind, Token};
use crate::nearest::nearest;
use crate::parse::Rule;
use crate::scan::ITEMS;
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
            .or_else(|| self.unknown_item())
            .or_else(|| self.tableau_row())
            .or_else(|| self.missing_value())
            .or_else(|| self.misspelt_keyword())
            .or_else(|| self.reserved_word())
            .or_else(|| self.odd_sign())
            .or_else(|| self.missing_operator())
            .or_else(|| self.parameters())
            .unwrap_or_else(|| self.anything())
    }

    // ---- looking around ----

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

    // ---- recognisable slips ----

    fn exhausted(&self) -> Option<Diagnostic> {
        let span = self.token().map_or(self.end(), |t| self.span(t));
        self.exhausted.then(|| {
            Diagnostic::error(
                "nested-too-deeply",
                span,
                "this is nested too deeply to be read",
            )
            .help("name parts of it with `let` or `field`")
        })
    }

    fn stray_doc(&self) -> Option<Diagnostic> {
        let alone = self.token().is_none_or(|t| t.kind == Kind::Close);
        let doc = match self.token() {
            Some(token) if token.kind == Kind::Doc => token,
            _ => self.before().filter(|t| t.kind == Kind::Doc && alone)?,
        };
        Some(
            Diagnostic::error(
                "stray-doc",
                self.span(doc),
                "this doc comment documents nothing",
            )
            .label("`///` stands before an item or a statement")
            .help("put it before what it describes, or write `//` for a plain comment"),
        )
    }

    fn unknown_item(&self) -> Option<Diagnostic> {
        let token = self.token()?;
        let here = self.expects(Rule::source_item)
            || self.expects(Rule::scheme) && self.expects(Rule::model);
        let next = self.expects(Rule::EOI) && token.leads() && token.kind == Kind::Word;
        if !(here || next) {
            return None;
        }
        let word = self.word(token);
        let inside = words::home(word);
        let message = match token.kind {
            Kind::Word if inside.is_some() => format!("`{word}` does not stand on its own"),
            Kind::Word => format!("unknown keyword `{word}`"),
            _ => format!("expected an item, found `{}`", self.short(token)),
        };
        let error = Diagnostic::error("unknown-keyword", self.span(token), message);
        let close = nearest(word, ITEMS);
        Some(match (inside, close) {
            (Some(home), _) => error
                .label("no item begins so")
                .help(format!("`{word}` stands inside {home}")),
            (None, Some(close)) if token.kind == Kind::Word => error
                .label(format!("did you mean `{close}`?"))
                .help(words::ITEMS_HELP),
            _ => error.label("no item begins so").help(words::ITEMS_HELP),
        })
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

    fn tableau_row(&self) -> Option<Diagnostic> {
        let row = self.row()?;
        let at = self
            .at
            .clamp(row.start, row.end.saturating_sub(1).max(row.start));
        let error = |at: usize, message: &str| {
            Diagnostic::error("tableau-row", self.span(&self.tokens[at]), message)
        };
        let operator =
            |at: usize| matches!(self.word(&self.tokens[at]), "+" | "-" | "*" | "/" | "^");
        let spaced = [at, at.saturating_sub(1)]
            .into_iter()
            .find(|&at| row.contains(&at) && operator(at));
        if let Some(spaced) = spaced {
            let error = error(spaced, "an entry of a row stands without blanks")
                .label("blanks separate entries");
            return Some(
                error.help("put an entry that contains blanks in parentheses: `(1/2 - sqrt(3)/6)`"),
            );
        }
        let context = self.context(row.start);
        let has_bar = row.clone().any(|t| self.word(&self.tokens[t]) == "|");
        Some(match context {
            Context::Tableau if !has_bar => error(row.start, "this tableau row has no `|`")
                .label("expected `|` in this row")
                .help(context.help()),
            Context::Tableau => error(at, "this tableau row cannot be read")
                .label("expected a coefficient or the end of the row")
                .help(context.help()),
            _ => error(row.start, "this multistep row cannot be read")
                .label("expected `alpha` or `beta` and coefficients")
                .help(context.help()),
        })
    }

    fn missing_value(&self) -> Option<Diagnostic> {
        let error = |token: &Token, after: &str| {
            Diagnostic::error(
                "syntax",
                self.span(token),
                format!("expected an expression after `{after}`"),
            )
            .label("nothing follows")
        };
        if let Some(equals) = self.empty_assignment() {
            return Some(error(&self.tokens[equals], "="));
        }
        let before = self.before()?;
        let dangles =
            before.kind == Kind::Sign && self.word(before) != ";" && self.word(before) != "|";
        (dangles && self.stops_short() && self.expects_operand())
            .then(|| error(before, self.word(before)))
    }

    /// A word that is nearly one of the keywords that may stand here, or begins a statement that no keyword begins.
    fn misspelt_keyword(&self) -> Option<Diagnostic> {
        let candidates: Vec<&str> = self
            .expected
            .iter()
            .filter_map(|&rule| words::keyword(rule))
            .collect();
        let error = |token: &Token, close: &str| {
            Diagnostic::error(
                "unknown-keyword",
                self.span(token),
                format!("unknown keyword `{}`", self.word(token)),
            )
            .label(format!("did you mean `{close}`?"))
        };
        if let Some(token) = self.token().filter(|t| t.kind == Kind::Word)
            && let Some(close) = nearest(self.word(token), candidates.iter().copied())
        {
            return Some(error(token, close));
        }
        let context = self.context(self.at.min(self.tokens.len().saturating_sub(1)));
        let start = self.statement_start(self.at.min(self.tokens.len().saturating_sub(1)));
        let first = self.tokens.get(start).filter(|t| t.kind == Kind::Word)?;
        let (word, keywords) = (self.word(first), context.keywords());
        // `retrun y` reads as the beginning of an assignment.
        if self.at <= start + 1
            && !words::is_keyword(word)
            && let Some(close) = nearest(word, keywords.iter().copied())
        {
            return Some(error(first, close));
        }
        if self.at != start || !self.expects(Rule::close) || keywords.is_empty() {
            return None;
        }
        let stray =
            |message: String| Diagnostic::error("unknown-keyword", self.span(first), message);
        match words::home(word) {
            Some(home) => {
                let error = stray(format!("`{word}` does not stand in {}", context.name()));
                Some(
                    error
                        .label("not here")
                        .help(format!("`{word}` stands inside {home}")),
                )
            }
            None if words::is_keyword(word) => None,
            None => {
                let error = stray(format!("unknown keyword `{word}` in {}", context.name()));
                Some(
                    error
                        .label(format!("expected {} or `}}`", context.part()))
                        .help(context.help()),
                )
            }
        }
    }

    fn reserved_word(&self) -> Option<Diagnostic> {
        let token = self.token()?;
        let word = self.word(token);
        let name = self.expects(Rule::ident) || self.expects_operand() || self.expects(Rule::param);
        if !words::is_keyword(word) || !name || self.stops_short() {
            return None;
        }
        Some(
            Diagnostic::error(
                "reserved-word",
                self.span(token),
                format!("`{word}` is a keyword, not a name"),
            )
            .label(self.wanted())
            .help("choose another name; keywords may only be argument labels and block keys"),
        )
    }

    /// `.5`, `1.`, `**`, `|`.
    fn odd_sign(&self) -> Option<Diagnostic> {
        let (token, before) = (self.token()?, self.before()?);
        let next = self.tokens.get(self.at + 1);
        let number = |t: &Token| t.kind == Kind::Number;
        let help = match (self.word(token), self.word(before)) {
            (".", _) if next.is_some_and(number) && !number(before) => {
                "write a digit before the point: `0.5`"
            }
            (".", _) if number(before) => "write digits after the point, `1.0`, or none: `1`",
            ("*", "*") => "a power is written `a^b`",
            ("|", _) => "fields are chained with `|>`",
            ("=", "=") => "the language has no comparisons; one `=` names a value",
            (">", "|") => "fields are chained with `|>`, without a blank",
            _ => return None,
        };
        let message = format!("unexpected `{}`", self.word(token));
        Some(Diagnostic::error("syntax", self.span(token), message).help(help))
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
        let assigns =
            self.expects(Rule::eq) && self.context(self.at.saturating_sub(1)) == Context::Body;
        side_by_side(self.at.checked_sub(1).filter(|_| assigns)?)
    }

    fn missing_operator(&self) -> Option<Diagnostic> {
        let second = self.juxtaposed()?;
        let (before, token) = (&self.tokens[second - 1], &self.tokens[second]);
        let (a, b) = (self.short(before), self.short(token));
        let message = format!("no operator between `{a}` and `{b}`");
        let error = Diagnostic::error("missing-operator", self.span(token), message);
        let keyword = self.expected.iter().find_map(|&rule| match rule {
            Rule::k_for | Rule::k_steps | Rule::k_from | Rule::k_by => words::keyword(rule),
            _ => None,
        });
        let start = self.statement_start(second);
        let labelled = second == start + 2 && self.word(&self.tokens[start]) == "evolve";
        Some(match (keyword, self.bracket()) {
            _ if labelled => error.label("expected `:` before this").help(format!(
                "a label is followed by `:`, as in `evolve {a}: {b}`"
            )),
            (_, Some(close)) => error
                .label(format!("expected an operator, `,` or `{close}`"))
                .help("a product is written `a*b`; arguments are separated by commas"),
            (Some(keyword), None) => error.label(format!("expected an operator or `{keyword}`")),
            _ => error.label("expected an operator").help(
                "a product is written `a*b`; a new statement stands on its own line or after `;`",
            ),
        })
    }

    /// `scheme s(F G)`: parameters that cannot be read make the whole list unexpected.
    fn parameters(&self) -> Option<Diagnostic> {
        let token = self.token().filter(|t| self.word(t) == "(")?;
        let (scheme, field) = (self.expects(Rule::params), self.expects(Rule::field_params));
        let error = || {
            Diagnostic::error(
                "syntax",
                self.span(token),
                "these parameters cannot be read",
            )
        };
        let error = || error().label("expected names separated by commas");
        match (scheme, field) {
            (true, _) => Some(error().help("for example `scheme name(A, L[..], r = 3) { … }`")),
            (_, true) => Some(error().help("for example `field gate(u, v) = …`")),
            _ => None,
        }
    }

    /// What closes the parenthesis or list around the place.
    fn bracket(&self) -> Option<&'static str> {
        let parent = (*self.parents.get(self.at)?)?;
        match self.word(&self.tokens[parent]) {
            "(" => Some(")"),
            "[" => Some("]"),
            _ => None,
        }
    }

    /// The general case: expected this, found that.
    fn anything(&self) -> Diagnostic {
        let wanted = self.wanted();
        if self.stops_short()
            && let Some(before) = self.before()
        {
            let found = self
                .token()
                .map_or("the end".to_string(), |t| format!("`{}`", self.short(t)));
            return Diagnostic::error(
                "syntax",
                self.span(before),
                format!("{wanted} after `{}`, found {found}", self.short(before)),
            )
            .label("this is not complete");
        }
        let context = self.context(self.at.min(self.tokens.len().saturating_sub(1)));
        let (span, found) = match self.token() {
            Some(token) => (self.span(token), format!("`{}`", self.short(token))),
            None => (self.end(), "the end".to_string()),
        };
        let error = Diagnostic::error("syntax", span, format!("{wanted}, found {found}"))
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
    fn wanted(&self) -> String {
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
    fn short(&self, token: &Token) -> String {
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
