//! Pest's pairs to the syntax tree.
//!
//! Takes the pairs of one `source_item` or `source_value` and the tokens of the text; gives [`crate::ast`] nodes with spans in
//! the whole text. The shapes it relies on are those of `odec.pest`, read off beside each rule.

mod exprs;
mod models;
mod schemes;

use crate::ast::{Ident, Item, Use};
use crate::lex::Token;
use crate::rules::Rule;
use crate::span::Span;
use pest::iterators::{Pair, Pairs};
use std::iter::Peekable;

/// Where the parsed text lies, and its tokens: pest lets a rule end in trailing blanks, spans end at a token.
pub struct Builder<'t> {
    pub source: u32,
    pub base: usize,
    pub tokens: &'t [Token],
}

/// The children of one pair.
struct Children<'i>(Peekable<Pairs<'i, Rule>>);

impl<'i> Children<'i> {
    fn of(pair: Pair<'i, Rule>) -> Self {
        Children(pair.into_inner().peekable())
    }
    /// The next child. The grammar promises it: this is only called where `odec.pest` has a mandatory rule.
    fn next(&mut self) -> Pair<'i, Rule> {
        self.0.next().expect("odec.pest promises this child")
    }
    fn next_if(&mut self, rule: Rule) -> Option<Pair<'i, Rule>> {
        self.0.next_if(|pair| pair.as_rule() == rule)
    }
    /// Passes a keyword or a sign.
    fn skip(&mut self, rule: Rule) -> bool {
        self.next_if(rule).is_some()
    }
    fn rest(self) -> impl Iterator<Item = Pair<'i, Rule>> {
        self.0
    }
}

/// An item, or the `use` line that stands where one may stand.
pub enum Top {
    Use(Use),
    Item(Item),
}

impl Builder<'_> {
    pub(super) fn span(&self, pair: &Pair<Rule>) -> Span {
        let raw = pair.as_span();
        let (start, end) = (raw.start() + self.base, raw.end() + self.base);
        let first = self.tokens.partition_point(|t| t.start < start);
        let past = self.tokens.partition_point(|t| t.end <= end);
        let start = self.tokens.get(first).map_or(start, |t| t.start.min(end));
        let end = past
            .checked_sub(1)
            .map_or(end, |last| self.tokens[last].end.max(start));
        Span {
            source: self.source,
            start: start as u32,
            end: end as u32,
        }
    }

    /// `doc* item`
    pub fn top(&self, source_item: Pair<Rule>) -> Top {
        let mut inner = Children::of(source_item);
        let mut doc = Vec::new();
        while let Some(line) = inner.next_if(Rule::doc) {
            let text = line.as_str().trim_start_matches("///");
            doc.push(
                text.strip_prefix(' ')
                    .unwrap_or(text)
                    .trim_end()
                    .to_string(),
            );
        }
        let item = inner.next();
        Top::Item(match item.as_rule() {
            Rule::use_item => return Top::Use(self.use_item(item)),
            Rule::scheme => Item::Scheme(self.scheme(doc, item)),
            Rule::field => Item::Field(self.field(doc, item)),
            Rule::layer => Item::Layer(self.layer(doc, item)),
            Rule::model => Item::Model(self.model(doc, item)),
            Rule::train => Item::Train(self.block(item)),
            _ => Item::Explore(self.block(item)),
        })
    }

    fn use_item(&self, pair: Pair<Rule>) -> Use {
        let mut inner = Children::of(pair);
        inner.skip(Rule::k_use);
        let path = inner.next();
        Use {
            path: string(&path),
            span: self.span(&path),
        }
    }

    pub(super) fn ident(&self, pair: Pair<Rule>) -> Ident {
        Ident {
            name: pair.as_str().to_string(),
            span: self.span(&pair),
        }
    }
}

/// The text between the quotes.
fn string(pair: &Pair<Rule>) -> String {
    pair.as_str().trim_matches('"').to_string()
}
