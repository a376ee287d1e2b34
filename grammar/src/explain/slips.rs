//! Common syntax mistakes, each with its own message.
//!
//! Takes a [`Failure`]; gives `None` where the mistake is another one. `explain.rs` decides the order.

use super::Failure;
use crate::codes;
use crate::diag::Diagnostic;
use crate::lex::{Kind, Token};
use crate::nearest::nearest;
use crate::rules::Rule;
use crate::span::Span;
use crate::words::{self, Context, ITEMS};

impl Failure<'_> {
    pub(super) fn exhausted(&self) -> Option<Diagnostic> {
        let span = self.token().map_or(self.end(), |t| self.span(t));
        self.exhausted.then(|| {
            Diagnostic::error(codes::NESTED_TOO_DEEPLY, span, "this is nested too deeply")
                .help("name inner parts with `let` or `field`")
        })
    }

    pub(super) fn stray_doc(&self) -> Option<Diagnostic> {
        let alone = self.token().is_none_or(|t| t.kind == Kind::Close);
        let doc = match self.token() {
            Some(token) if token.kind == Kind::Doc => token,
            _ => self.before().filter(|t| t.kind == Kind::Doc && alone)?,
        };
        Some(
            Diagnostic::error(
                codes::STRAY_DOC,
                self.span(doc),
                "this doc comment documents nothing",
            )
            .label("`///` must precede a definition or a statement")
            .help("put it before what it describes, or write `//` for a plain comment"),
        )
    }

    pub(super) fn unknown_item(&self) -> Option<Diagnostic> {
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
            Kind::Word if inside.is_some() => format!("`{word}` is not allowed on its own"),
            Kind::Word => format!("unknown keyword `{word}`"),
            _ => format!("expected an item, found `{}`", self.short(token)),
        };
        let error = Diagnostic::error(codes::UNKNOWN_KEYWORD, self.span(token), message);
        let close = nearest(word, ITEMS.into_iter().chain([words::LAYER]));
        Some(match (inside, close) {
            (Some(home), _) => error
                .label("no definition begins like this")
                .help(format!("`{word}` belongs in {home}")),
            (None, Some(close)) if token.kind == Kind::Word => error
                .label(format!("did you mean `{close}`?"))
                .help(words::ITEMS_HELP),
            _ => error
                .label("no definition begins like this")
                .help(words::ITEMS_HELP),
        })
    }

    pub(super) fn tableau_row(&self) -> Option<Diagnostic> {
        let row = self.row()?;
        let at = self
            .at
            .clamp(row.start, row.end.saturating_sub(1).max(row.start));
        let error = |at: usize, message: &str| {
            Diagnostic::error(codes::TABLEAU_ROW, self.span(&self.tokens[at]), message)
        };
        let drawn = |at: usize| matches!(self.word(&self.tokens[at]), "-" | "+" | "|" | "=");
        if row.len() > 3 && row.clone().all(drawn) {
            return Some(
                error(row.start, "this line holds no numbers")
                    .label("rows of a tableau have no line between them")
                    .help("leave it out: rows of weights begin with `|`, such as `| 1/6 2/3 1/6`"),
            );
        }
        let operator =
            |at: usize| matches!(self.word(&self.tokens[at]), "+" | "-" | "*" | "/" | "^");
        let spaced = [at, at.saturating_sub(1)]
            .into_iter()
            .find(|&at| row.contains(&at) && operator(at));
        if let Some(spaced) = spaced {
            let error = error(spaced, "an entry of a row contains no blanks")
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

    pub(super) fn missing_value(&self) -> Option<Diagnostic> {
        let error = |token: &Token, after: &str| {
            Diagnostic::error(
                codes::SYNTAX,
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

    /// `if a { … }`, `y = while …`: statements of other languages.
    pub(super) fn foreign_statement(&self) -> Option<Diagnostic> {
        let at = self.at.min(self.tokens.len().checked_sub(1)?);
        let starts = at == self.statement_start(at);
        // `y = if a x` reads as `y = if` and the beginning of an assignment to `a`.
        let places = [
            at.checked_sub(2),
            at.checked_sub(1),
            Some(at).filter(|_| starts),
        ];
        let mut places = places.into_iter().flatten();
        let context = self.context(at);
        let found = places.find_map(|at| {
            let token = &self.tokens[at];
            let word = self.word(token);
            let here = token.kind == Kind::Word && words::home(word).is_none() && word != "let";
            Some((token, word, words::instead(word, context).filter(|_| here)?))
        });
        let (token, word, help) = found?;
        let message = format!("{} has no `{word}`", context.name());
        let error = Diagnostic::error(codes::UNKNOWN_KEYWORD, self.span(token), message);
        Some(error.label("not here").help(help))
    }

    /// A word that is nearly one of the keywords that may stand here, or begins a statement that no keyword begins.
    pub(super) fn misspelt_keyword(&self) -> Option<Diagnostic> {
        let candidates: Vec<&str> = self
            .expected
            .iter()
            .filter_map(|&rule| words::keyword(rule))
            .collect();
        let error = |token: &Token, close: &str| {
            Diagnostic::error(
                codes::UNKNOWN_KEYWORD,
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
        let last = self.at.min(self.tokens.len().saturating_sub(1));
        let context = self.context(last);
        // A lone word of which more is wanted is a statement of its own.
        let alone = last.checked_sub(1).filter(|&at| {
            let word = self.word(&self.tokens[at]);
            let lone = self.stops_short() && self.statement_start(at) == at;
            lone && !context.keywords().contains(&word)
        });
        let start = alone.unwrap_or_else(|| self.statement_start(last));
        let first = self.tokens.get(start).filter(|t| t.kind == Kind::Word)?;
        let (word, keywords) = (self.word(first), context.keywords());
        let claims: &[&str] = match context {
            Context::Scheme => &words::CLAIMS,
            _ => &[],
        };
        // `retrun y` reads as the beginning of an assignment, `symetric` as that of a flow.
        if self.at <= start + 1
            && !words::is_keyword(word)
            && let Some(close) = nearest(word, keywords.iter().chain(claims).copied())
        {
            return Some(error(first, close));
        }
        let known = !keywords.is_empty() || words::home(word).is_some();
        if self.at != start || !self.expects(Rule::close) || !known {
            return None;
        }
        let stray =
            |message: String| Diagnostic::error(codes::UNKNOWN_KEYWORD, self.span(first), message);
        match words::home(word) {
            Some(home) => {
                let error = stray(format!("`{word}` is not allowed in {}", context.name()));
                let belongs = || format!("`{word}` belongs in {home}");
                let help = words::instead(word, context).map_or_else(belongs, String::from);
                Some(error.label("not here").help(help))
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

    /// `A-stable`, `claim order 4`, `claim A_stable`: claims are words with `_`, and stand by themselves.
    pub(super) fn claim(&self) -> Option<Diagnostic> {
        let start = self.statement_start(self.at.min(self.tokens.len().checked_sub(1)?));
        if self.context(start) != Context::Scheme {
            return None;
        }
        let word = |at: usize| self.tokens.get(at).map_or("", |t| self.word(t));
        let announced = word(start) == "claim";
        let first = start + usize::from(announced);
        let hyphen = self
            .tokens
            .get(first + 2)
            .filter(|t| word(first + 1) == "-" && t.kind == Kind::Word);
        let joined = match hyphen {
            Some(second) => format!("{}_{}", word(first), self.word(second)),
            None => word(first).to_string(),
        };
        let claims = words::CLAIMS.into_iter().chain(["order"]);
        let meant = match claims.clone().find(|claim| *claim == joined) {
            Some(claim) => claim,
            None => nearest(&joined, claims)?,
        };
        if !announced && hyphen.is_none() {
            return None;
        }
        let end = hyphen.map_or(self.tokens.get(first)?.end, |t| t.end);
        let span = Span {
            end: end as u32,
            ..self.span(&self.tokens[start])
        };
        let written = &self.text[self.tokens[start].start..end];
        let message = format!("unknown claim `{written}`");
        let d = Diagnostic::error(codes::UNKNOWN_KEYWORD, span, message);
        let d = d.label(format!("did you mean `{meant}`?"));
        Some(match announced {
            true => d.help("claims stand by themselves: `order 4`, `A_stable`"),
            false => d,
        })
    }

    pub(super) fn reserved_word(&self) -> Option<Diagnostic> {
        let token = self.token()?;
        let word = self.word(token);
        let names = [Rule::ident, Rule::param, Rule::layer_param];
        let name = names.iter().any(|r| self.expects(*r)) || self.expects_operand();
        if !words::is_keyword(word) || !name || self.stops_short() {
            return None;
        }
        Some(
            Diagnostic::error(
                codes::RESERVED_WORD,
                self.span(token),
                format!("`{word}` is a keyword, not a name"),
            )
            .label(self.wanted())
            .help("choose another name; keywords may only be argument labels and block keys"),
        )
    }

    /// `.5`, `1.`, `**`, `|`.
    pub(super) fn odd_sign(&self) -> Option<Diagnostic> {
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
            ("=", _) if before.kind == Kind::Word && self.bracket() == Some(")") => {
                return Some(self.label_with_equals(token, before));
            }
            ("=", "=") => "the language has no comparisons; one `=` names a value",
            (">", "|") => "fields are chained with `|>`, without a blank",
            _ => return None,
        };
        let message = format!("unexpected `{}`", self.word(token));
        Some(Diagnostic::error(codes::SYNTAX, self.span(token), message).help(help))
    }

    /// `attention(heads=4)`
    fn label_with_equals(&self, equals: &Token, label: &Token) -> Diagnostic {
        let label = self.short(label);
        let message = format!("unexpected `=` after `{label}`");
        Diagnostic::error(codes::SYNTAX, self.span(equals), message)
            .help(format!("arguments are given with `:`, as in `{label}: 4`"))
    }

    /// `/* … */`
    pub(super) fn block_comment(&self) -> Option<Diagnostic> {
        let star = self.tokens[..self.tokens.len().min(self.at + 2)]
            .iter()
            .rposition(|t| self.word(t) == "*")
            .filter(|&star| star >= self.at)?;
        let (slash, star) = (self.tokens.get(star.checked_sub(1)?)?, &self.tokens[star]);
        (self.word(slash) == "/" && slash.end == star.start).then(|| {
            let span = Span {
                end: star.end as u32,
                ..self.span(slash)
            };
            Diagnostic::error(codes::SYNTAX, span, "unexpected `/*`")
                .help("comments begin with `//` and end with the line")
        })
    }

    /// `weights shard`, `weights per layer`: the first word may be a field, so what stands behind it is missed.
    pub(super) fn policy(&self) -> Option<Diagnostic> {
        let before = self.before()?;
        let per = self.word(before) == "per" && self.expects(Rule::k_use);
        let alone = before.kind == Kind::Word && self.expects(Rule::policy);
        let start = self.statement_start(self.at - 1);
        let weights = self.word(&self.tokens[start]) == "weights" && self.at > start + 1;
        if !weights || !(per || alone) {
            return None;
        }
        let named = self.word(before);
        let next = self.token().filter(|t| t.kind == Kind::Word && !t.leads());
        let (blamed, words) = match next {
            Some(next) => (next, format!("{named} {}", self.short(next))),
            None => (before, named.to_string()),
        };
        let message = format!("`{words}` is not a weights policy");
        let error = Diagnostic::error(codes::SYNTAX, self.span(blamed), message);
        let close = match per {
            true => nearest(self.word(blamed), ["step", "use"]),
            false => nearest(self.word(blamed), ["shared", "per", "every", "cycle", "of"]),
        };
        let error = match close {
            Some(close) => error.label(format!("did you mean `{close}`?")),
            None => error,
        };
        Some(error.help(
            "the policies are `per step`, `per use`, `shared`, `every n`, `cycle n` and `of time { … }`; that of one field stands behind its name, `ffn shared`",
        ))
    }

    /// `sum f in F { … }`
    pub(super) fn whole_list(&self) -> Option<Diagnostic> {
        let [keyword, _, within, list] = self.tokens.get(self.at.checked_sub(4)?..self.at)? else {
            return None;
        };
        let over = matches!(self.word(keyword), "sum" | "repeat") && self.word(within) == "in";
        let opened = self.token().is_some_and(|t| self.word(t) == "{");
        (over && opened && list.kind == Kind::Word).then(|| {
            let list_name = self.short(list);
            let message = format!("`{list_name}` alone is not a range");
            Diagnostic::error(codes::SYNTAX, self.span(list), message)
                .label("expected a range, or a part of a list")
                .help(format!("all fields of a list are `{list_name}[..]`"))
        })
    }

    /// `budget 2 days`: a word that is no unit of time begins another entry, which then stops short.
    pub(super) fn unit_of_time(&self) -> Option<Diagnostic> {
        let [budget, number, unit] = self.tokens.get(self.at.checked_sub(3)?..self.at)? else {
            return None;
        };
        let lasting = self.word(budget) == "budget" && number.kind == Kind::Number;
        (lasting && unit.kind == Kind::Word).then(|| {
            let message = format!("`{}` is no unit of time", self.word(unit));
            Diagnostic::error(codes::SYNTAX, self.span(unit), message)
                .help("units are `h`, `min` and `s`: two days are `48 h`")
        })
    }

    pub(super) fn missing_operator(&self) -> Option<Diagnostic> {
        let second = self.juxtaposed()?;
        let (before, token) = (&self.tokens[second - 1], &self.tokens[second]);
        let (a, b) = (self.short(before), self.short(token));
        let message = format!("no operator between `{a}` and `{b}`");
        let error = Diagnostic::error(codes::MISSING_OPERATOR, self.span(token), message);
        let keyword = self.expected.iter().find_map(|&rule| match rule {
            Rule::k_for | Rule::k_steps | Rule::k_from | Rule::k_by => words::keyword(rule),
            _ => None,
        });
        let start = self.statement_start(second);
        let labelled = second == start + 2 && self.word(&self.tokens[start]) == "evolve";
        let memory = self.word(&self.tokens[start]) == "memory";
        Some(match (keyword, self.bracket()) {
            (_, None) if memory => error
                .label("this is not a memory policy")
                .help("the policies are `store`, `revolve(slots: 8)` and `budget(4 GiB)`"),
            _ if labelled => error.label("expected `:` before this").help(format!(
                "a label is followed by `:`, as in `evolve {a}: {b}`"
            )),
            (_, Some(close)) => error
                .label(format!("expected an operator, `,` or `{close}`"))
                .help("a product is written `a*b`; arguments are separated by commas"),
            (Some(keyword), None) => error.label(format!("expected an operator or `{keyword}`")),
            _ => error.label("expected an operator").help(
                "a product is written `a*b`; a new statement begins on its own line or after `;`",
            ),
        })
    }

    /// `scheme s(F G)`: parameters that cannot be read make the whole list unexpected.
    pub(super) fn parameters(&self) -> Option<Diagnostic> {
        let token = self.token().filter(|t| self.word(t) == "(")?;
        let (scheme, field) = (self.expects(Rule::params), self.expects(Rule::field_params));
        let layer = self.expects(Rule::layer_params);
        let error = || {
            Diagnostic::error(
                codes::SYNTAX,
                self.span(token),
                "these parameters cannot be read",
            )
        };
        let error = || error().label("expected names separated by commas");
        match (scheme, field) {
            (true, _) => Some(error().help("for example `scheme name(A, L[..], r = 3) { … }`")),
            (_, true) => Some(error().help(
                "for example `field gate(u, v) = …`; all of them are values, and none has a kind or a default",
            )),
            _ if layer => {
                Some(error().help("for example `layer ffn(hidden, scale: number = 1) = …`"))
            }
            _ => None,
        }
    }
}
