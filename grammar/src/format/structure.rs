//! Where statements, rows and operators are.
//!
//! Takes a text; gives its tokens with what the layout must know of each (a blank before it, a break before it, its
//! partner if it is a bracket), the comments between them, and the tree of statements and blocks. Read off the parse,
//! so that a `-` is a sign or a difference because the parser says so. Leaves columns and lines to `print.rs`.

use super::trivia::{self, Comment, Lines};
use crate::lex::{Kind, Token};
use crate::rules::{OdecParser, Rule};
use crate::scan;
use pest::Parser;
use pest::iterators::Pair;

/// A place where a statement that is too long may be broken, those that bind least first.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Split {
    /// Before a word such as `for` or the next flow of a splitting.
    Word,
    /// After a comma.
    Comma,
    /// Before `+` and `-`.
    Sum,
    /// Before `|>`.
    Pipe,
    Never,
}

/// Tokens `start..end`: one statement, item or row, without its `;`.
#[derive(Debug)]
pub struct Statement {
    pub rule: Rule,
    pub start: usize,
    pub end: usize,
    /// The token that stands in one column in neighbouring statements: `=`, a value after its key, `{`.
    pub column: Option<usize>,
    /// The token after the label of an `evolve`.
    pub labelled: Option<usize>,
    pub body: Option<Body>,
    /// The cells of a row, as token ranges; the node of a weight row is empty.
    pub cells: Vec<(usize, usize)>,
    /// Its width where it may stand on one line.
    pub flat: Option<usize>,
}

/// A block in braces: tokens `open` to `close`.
#[derive(Debug)]
pub struct Body {
    pub open: usize,
    pub close: usize,
    pub parts: Vec<Statement>,
}

impl Body {
    pub fn is_rows(&self) -> bool {
        self.parts
            .first()
            .is_some_and(|part| matches!(part.rule, Rule::row | Rule::line))
    }
    /// What separates the parts on one line.
    pub fn separator(&self) -> &'static str {
        if self.is_rows() { "; " } else { ";  " }
    }
}

pub struct Structure<'a> {
    pub text: &'a str,
    /// All tokens but doc comments, `;` and commas before closing brackets. One place more than tokens in the arrays
    /// below: the end of the text.
    pub tokens: Vec<Token>,
    /// Whether a blank stands before a token inside a statement.
    pub blank: Vec<bool>,
    pub split: Vec<Split>,
    /// For an opening bracket its closing one, for other tokens themselves.
    pub partner: Vec<usize>,
    /// Line ends before a token.
    pub lines: Vec<Lines>,
    pub items: Vec<Statement>,
    comments: Vec<Comment<'a>>,
    /// How many comments precede a token in the text.
    seen: Vec<usize>,
    /// The width of all tokens before a token, with the blanks before them.
    widths: Vec<usize>,
}

impl<'a> Structure<'a> {
    /// `None` if the text has errors.
    pub fn read(source: u32, text: &'a str) -> Option<Structure<'a>> {
        let scan = scan::scan(source, text);
        if !scan.errors.is_empty() {
            return None;
        }
        let is_kept = |at: usize| match scan.tokens[at].text(text) {
            ";" => false,
            "," => {
                let mut rest = scan.tokens[at + 1..].iter();
                let next = rest.find(|t| t.kind != Kind::Doc);
                next.is_none_or(|t| t.kind != Kind::Close)
            }
            _ => scan.tokens[at].kind != Kind::Doc,
        };
        let tokens: Vec<Token> = (0..scan.tokens.len())
            .filter(|&at| is_kept(at))
            .map(|at| scan.tokens[at])
            .collect();
        let count = tokens.len();
        let mut marks = Marks {
            base: 0,
            blank: vec![None; count + 1],
            split: vec![Split::Never; count + 1],
            rows: Vec::new(),
            tokens: &tokens,
        };
        let mut items = Vec::new();
        for chunk in &scan.chunks {
            let (first, last) = (scan.tokens[chunk.start], scan.tokens[chunk.end - 1]);
            marks.base = first.start;
            let parsed = OdecParser::parse(Rule::source_item, &text[first.start..last.end]);
            let mut pairs = parsed.ok()?.next()?.into_inner();
            let item = pairs.find(|pair| is_statement(pair.as_rule()))?;
            items.push(marks.statement(item));
        }
        let Marks {
            blank,
            mut split,
            rows,
            ..
        } = marks;
        let mut partner: Vec<usize> = (0..count).collect();
        let mut open = Vec::new();
        for (at, token) in tokens.iter().enumerate() {
            match token.kind {
                Kind::Open => open.push(at),
                Kind::Close => partner[open.pop()?] = at,
                _ if token.text(text) == "," => split[at] = Split::Comma,
                _ => {}
            }
        }
        let blank = (0..=count)
            .map(|at| blank[at].unwrap_or_else(|| stands_apart(&tokens, text, at)))
            .collect();
        let mut structure = Structure {
            text,
            tokens,
            blank,
            split,
            partner,
            lines: Vec::with_capacity(count + 1),
            items,
            comments: Vec::new(),
            seen: Vec::with_capacity(count + 2),
            widths: Vec::with_capacity(count + 1),
        };
        structure.trivia(&rows);
        structure.widths();
        let mut items = std::mem::take(&mut structure.items);
        for item in &mut items {
            structure.measure(item);
        }
        structure.items = items;
        Some(structure)
    }

    /// Finds the comments and line ends before each token; `rows` are the braces of tableaus, in source order.
    fn trivia(&mut self, rows: &[(usize, usize)]) {
        let mut rows = rows.iter().peekable();
        for at in 0..=self.tokens.len() {
            while rows.next_if(|&&(_, close)| close < at).is_some() {}
            let inside = rows.peek().is_some_and(|&&(open, _)| open < at);
            let start = at
                .checked_sub(1)
                .map_or(0, |before| self.tokens[before].end);
            let end = self.tokens.get(at).map_or(self.text.len(), |t| t.start);
            self.seen.push(self.comments.len());
            self.lines.push(trivia::read(
                self.text,
                (start, end),
                at > 0,
                inside,
                &mut self.comments,
            ));
        }
        self.seen.push(self.comments.len());
    }

    fn widths(&mut self) {
        let mut width = 0;
        self.widths.push(0);
        for at in 0..self.tokens.len() {
            width += usize::from(self.blank[at]) + self.word(at).chars().count();
            self.widths.push(width);
        }
    }

    /// Says of a statement and of those in it whether, and how wide, they stand on one line.
    fn measure(&self, statement: &mut Statement) {
        let bare = self.flat(statement.start, statement.end);
        let plain = !self.has_comments(statement.start + 1, statement.end);
        let Some(body) = &mut statement.body else {
            statement.flat = plain.then_some(bare);
            return;
        };
        for part in &mut body.parts {
            self.measure(part);
        }
        let joined = |at: usize| self.lines[at] == Lines::Same;
        let together = body.parts.iter().all(|part| joined(part.start));
        if !(plain && (body.parts.is_empty() || together && joined(body.close))) {
            return;
        }
        let separators = body.separator().len() * body.parts.len().saturating_sub(1);
        let parts: Option<usize> = body.parts.iter().map(|part| part.flat).sum();
        // `{}`, or `{ parts }`.
        let braces = if body.parts.is_empty() { 2 } else { 4 };
        let head = self.flat(statement.start, body.open) + usize::from(self.blank[body.open]);
        statement.flat = parts.map(|parts| head + braces + parts + separators);
    }

    pub fn word(&self, at: usize) -> &'a str {
        self.tokens[at].text(self.text)
    }

    /// The width of tokens `start..end` on one line, without comments.
    pub fn flat(&self, start: usize, end: usize) -> usize {
        if start >= end {
            return 0;
        }
        self.widths[end] - self.widths[start] - usize::from(self.blank[start])
    }

    /// The comments before token `at`.
    pub fn comments(&self, at: usize) -> &[Comment<'a>] {
        &self.comments[self.seen[at]..self.seen[at + 1]]
    }

    /// Whether a comment stands before one of the tokens `start..end`.
    pub fn has_comments(&self, start: usize, end: usize) -> bool {
        start < end && self.seen[start] < self.seen[end]
    }
}

/// Where the parse has nothing to say: whether a blank stands between a token and the one before it.
fn stands_apart(tokens: &[Token], text: &str, at: usize) -> bool {
    let word = |at: usize| tokens.get(at).map_or("", |token| token.text(text));
    let before = at.checked_sub(1).map_or("", word);
    !matches!(before, "" | "(" | "[" | ".")
        && !matches!(word(at), "" | ")" | "]" | "," | ":" | "%" | ".")
}

/// What the parse says of tokens, while it is read.
struct Marks<'t> {
    /// Where the parsed item begins.
    base: usize,
    tokens: &'t [Token],
    blank: Vec<Option<bool>>,
    split: Vec<Split>,
    rows: Vec<(usize, usize)>,
}

impl Marks<'_> {
    /// The first token of a pair, and the first behind it.
    fn range(&self, pair: &Pair<Rule>) -> (usize, usize) {
        (self.first(pair), self.at(pair.as_span().end()))
    }

    fn first(&self, pair: &Pair<Rule>) -> usize {
        self.at(pair.as_span().start())
    }

    /// The first token that does not begin before a byte of the item.
    fn at(&self, byte: usize) -> usize {
        self.tokens.partition_point(|t| t.start < self.base + byte)
    }

    fn statement(&mut self, pair: Pair<Rule>) -> Statement {
        let rule = pair.as_rule();
        let (start, end) = self.range(&pair);
        let mut statement = Statement {
            rule,
            start,
            end,
            column: None,
            labelled: None,
            body: None,
            cells: Vec::new(),
            flat: None,
        };
        let keyed = matches!(
            rule,
            Rule::input | Rule::embed | Rule::evolve | Rule::output | Rule::init
        );
        if keyed {
            statement.column = Some(start + 1);
        }
        if rule == Rule::row {
            statement.cells.push((start, start));
        }
        self.parts(pair, &mut statement);
        if let Some(body) = &statement.body {
            if matches!(rule, Rule::tableau | Rule::multistep) {
                self.rows.push((body.open, body.close));
            }
            if rule == Rule::scheme {
                statement.column = Some(body.open);
            }
        }
        statement
    }

    /// Reads the children of a statement, or of the options of an `evolve`, into it.
    fn parts(&mut self, pair: Pair<Rule>, statement: &mut Statement) {
        let mut flows = 0;
        for child in pair.into_inner() {
            let rule = child.as_rule();
            let (start, end) = self.range(&child);
            match rule {
                Rule::doc => {}
                Rule::open => {
                    statement.body = Some(Body {
                        open: start,
                        close: start,
                        parts: Vec::new(),
                    })
                }
                Rule::close => {
                    if let Some(body) = &mut statement.body {
                        body.close = start;
                    }
                }
                Rule::options => self.parts(child, statement),
                Rule::node => {
                    statement.cells[0] = (start, end);
                    self.mark(child, true);
                }
                Rule::bar | Rule::word => statement.cells.push((start, end)),
                Rule::entry => {
                    statement.cells.push((start, end));
                    self.mark(child, true);
                }
                rule if is_statement(rule) => {
                    let part = self.statement(child);
                    if let Some(body) = &mut statement.body {
                        body.parts.push(part);
                    }
                }
                Rule::eq => {
                    let aligned = matches!(
                        statement.rule,
                        Rule::field
                            | Rule::layer
                            | Rule::assign
                            | Rule::body_learn
                            | Rule::constant
                    );
                    statement.column = statement.column.or(aligned.then_some(start));
                }
                Rule::k_match | Rule::k_where => statement.column = Some(end),
                Rule::key => {
                    statement.column = statement.column.or(Some(end));
                    self.mark(child, false);
                }
                Rule::called_so => statement.labelled = Some(end),
                Rule::k_for | Rule::k_from | Rule::k_by | Rule::k_embedded
                    if matches!(statement.rule, Rule::evolve | Rule::solve | Rule::give) =>
                {
                    self.split[start] = Split::Word;
                }
                Rule::sub_flow => {
                    if flows > 0 {
                        self.split[start] = Split::Word;
                    }
                    flows += 1;
                    self.mark(child, false);
                }
                _ => self.mark(child, false),
            }
        }
    }

    /// Notes blanks and breaks inside a part of a statement. `tight`: sums are written without blanks.
    fn mark(&mut self, pair: Pair<Rule>, mut tight: bool) {
        match pair.as_rule() {
            Rule::minus => {
                let at = self.first(&pair);
                self.blank[at + 1] = Some(false);
            }
            Rule::add_op => {
                let at = self.first(&pair);
                self.around(at, !tight);
                if !tight {
                    self.split[at] = Split::Sum;
                }
            }
            Rule::mul_op | Rule::pow_op => self.around(self.first(&pair), false),
            Rule::pipe_op => {
                let at = self.first(&pair);
                self.around(at, true);
                self.split[at] = Split::Pipe;
            }
            Rule::args | Rule::params | Rule::field_params | Rule::layer_params | Rule::history => {
                let at = self.first(&pair);
                self.blank[at] = Some(false);
                tight = false;
            }
            Rule::index | Rule::count | Rule::shape => {
                let at = self.first(&pair);
                self.blank[at] = Some(false);
                tight = true;
            }
            // A name and its bracket.
            Rule::slice => {
                let at = self.first(&pair);
                self.blank[at + 1] = Some(false);
                tight = false;
            }
            Rule::range | Rule::value => tight |= self.dots(&pair),
            Rule::list | Rule::tuple | Rule::sum => tight = false,
            Rule::gradient | Rule::exception => {
                let at = self.first(&pair);
                self.split[at] = Split::Word;
            }
            _ => {}
        }
        for child in pair.into_inner() {
            self.mark(child, tight);
        }
    }

    fn around(&mut self, at: usize, blank: bool) {
        self.blank[at] = Some(blank);
        self.blank[at + 1] = Some(blank);
    }

    /// Dots touch their bounds. Whether there are any.
    fn dots(&mut self, pair: &Pair<Rule>) -> bool {
        let dots = pair
            .clone()
            .into_inner()
            .find(|p| p.as_rule() == Rule::dots);
        let Some(dots) = dots else { return false };
        let ((start, end), at) = (self.range(pair), self.first(&dots));
        if at > start {
            self.blank[at] = Some(false);
        }
        if at + 1 < end {
            self.blank[at + 1] = Some(false);
        }
        true
    }
}

/// Whether a rule is an item, a statement or a row, all of which may stand on lines of their own.
fn is_statement(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::use_item
            | Rule::scheme
            | Rule::field
            | Rule::layer
            | Rule::model
            | Rule::train
            | Rule::explore
            | Rule::cite
            | Rule::keep
            | Rule::property
            | Rule::order
            | Rule::constant
            | Rule::learn_from
            | Rule::learn
            | Rule::tableau
            | Rule::multistep
            | Rule::row
            | Rule::line
            | Rule::start_by
            | Rule::solve_by
            | Rule::start
            | Rule::step
            | Rule::embedded
            | Rule::expression
            | Rule::splitting
            | Rule::solve
            | Rule::repeat
            | Rule::give
            | Rule::assign
            | Rule::body_learn
            | Rule::body_give
            | Rule::evolve
            | Rule::input
            | Rule::embed
            | Rule::output
            | Rule::init
            | Rule::learn_h
            | Rule::set_h
            | Rule::weights
            | Rule::gradient
            | Rule::report
            | Rule::train_entry
            | Rule::explore_entry
    )
}
