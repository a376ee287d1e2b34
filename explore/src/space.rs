//! The space of an exploration: which names have which values, and which points of it are tried.
//!
//! Takes a parsed file; gives names as the paths that `--set` takes, each with its values as text, and points. Everything wrong with the block is
//! found here, at its place, before anything is expanded: points are counted first. Leaves whether a value fits its place to `examine.rs`.
//!
//! A new entry of the block is read here, with everything that can be wrong with it; its points are made in `space/points.rs`, how they are
//! searched in `space/search.rs`. A new quantity that trials have alike is a variant of [`Quantity`] and an arm in `plan.rs` (`times.rs` where it
//! is measured). Each has a row in docs/reference.md and wrong blocks in `tests/explore.rs`.

mod points;
mod search;

use odec_compiler::codes;
use odec_compiler::scheme::scalar::{Scope, exact, name_of, unknown_option};
use odec_grammar::ast::{Block, Call, Entry, Expr, ExprKind, Ident, Item, Range};
use odec_grammar::{Diagnostic, Sources, Span, nearest, settable};

/// Most points of a space.
pub const MOST: u128 = 10_000;

/// The path of the seed: trials that differ in it alone are one model, trained again.
pub const SEED: &str = "train.seed";

/// What is tried.
#[derive(Clone, Debug)]
pub struct Space {
    pub names: Vec<Name>,
    pub points: Vec<Point>,
    pub matches: Vec<Matched>,
    pub rank: Rank,
    /// Where that is said.
    pub rank_span: Option<Span>,
    /// Which models are trained to their end; all where nothing is said.
    pub halving: Option<Halving>,
    /// Seconds after which nothing new is trained.
    pub budget: Option<f64>,
}

/// `halving(factor: 3, rungs: 3)`: of the models that have finished a rung, the best of `factor` goes on to the next (Li et al. 2020).
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Halving {
    pub factor: u64,
    /// How often models are compared, the end of training among them.
    pub rungs: u64,
    pub span: Span,
}

/// A name that has several values.
#[derive(Clone, Debug, PartialEq)]
pub struct Name {
    /// What `--set` calls it.
    pub path: String,
    /// As the file calls it.
    pub shown: String,
    pub span: Span,
}

/// A value, as `--set` takes it.
#[derive(Clone, Debug, PartialEq)]
pub struct Value {
    pub text: String,
    /// Where it is written.
    pub span: Span,
}

/// A value for each name.
#[derive(Clone, Debug, PartialEq)]
pub struct Point(pub Vec<Value>);

/// What all trials have alike, and the value that is solved for.
#[derive(Clone, Debug, PartialEq)]
pub struct Matched {
    pub what: Quantity,
    pub by: Name,
    /// The largest relative difference.
    pub within: f64,
    pub span: Span,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Quantity {
    /// Floating-point operations of the whole training.
    Flops,
    Parameters,
    /// Bytes that training takes.
    Memory,
    /// Seconds of the whole training, predicted from a few measured steps.
    Time,
}

impl Quantity {
    const ALL: [(&'static str, Quantity); 4] = [
        ("flops", Quantity::Flops),
        ("params", Quantity::Parameters),
        ("memory", Quantity::Memory),
        ("time", Quantity::Time),
    ];

    /// Its word in an explore block.
    pub fn word(self) -> &'static str {
        match self {
            Quantity::Flops => "flops",
            Quantity::Parameters => "params",
            Quantity::Memory => "memory",
            Quantity::Time => "time",
        }
    }

    /// In a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Quantity::Flops => "training FLOPs",
            Quantity::Parameters => "parameters",
            Quantity::Memory => "memory",
            Quantity::Time => "predicted time",
        }
    }
}

/// What trials are ranked by.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Rank {
    /// The loss on all held-out data, the smallest first.
    #[default]
    HeldOut,
    /// The share of held-out classes that is predicted, the largest first.
    Accuracy,
}

impl Rank {
    pub fn word(self) -> &'static str {
        match self {
            Rank::HeldOut => "held_out",
            Rank::Accuracy => "accuracy",
        }
    }
}

/// Values of one name, before they are expanded.
enum Values {
    Listed(Vec<Listed>),
    Drawn(Drawn),
}

/// One entry of a list: a text with holes, each of which a range fills.
struct Listed {
    span: Span,
    holes: Vec<Hole>,
}

/// A range of whole numbers in a value.
struct Hole {
    span: Span,
    first: i64,
    count: u64,
}

enum Drawn {
    Uniform {
        low: f64,
        high: f64,
        step: Option<f64>,
    },
    LogUniform {
        low: f64,
        high: f64,
    },
    Choice(Vec<Listed>),
}

/// How many points are drawn of what is drawn.
#[derive(Clone, Copy)]
struct Samples {
    number: u64,
    seed: u64,
}

/// What is said of how a space is searched.
#[derive(Default)]
struct Search {
    samples: Option<Samples>,
    halving: Option<Halving>,
    budget: Option<f64>,
}

/// The explore block of a file.
pub fn block(file: &odec_grammar::ast::File) -> Option<&Block> {
    file.items.iter().find_map(|item| match item {
        Item::Explore(block) => Some(block),
        _ => None,
    })
}

/// Reads a block.
///
/// # Errors
/// What is wrong with it.
pub fn read(
    block: &Block,
    file: &odec_grammar::ast::File,
    sources: &Sources,
) -> Result<Space, Vec<Diagnostic>> {
    let mut copy = file.clone();
    let known: Vec<String> = settable(&mut copy, sources)
        .into_iter()
        .map(|s| s.path)
        .collect();
    let mut reader = Reader {
        sources,
        known,
        sink: Vec::new(),
    };
    let space = reader.space(block);
    match (reader.sink.is_empty(), space) {
        (true, Some(space)) => Ok(space),
        _ => Err(reader.sink),
    }
}

struct Reader<'f> {
    sources: &'f Sources,
    /// All paths of the file.
    known: Vec<String>,
    sink: Vec<Diagnostic>,
}

const ENTRIES: [&str; 3] = ["search", "rank", "budget"];

impl Reader<'_> {
    fn space(&mut self, block: &Block) -> Option<Space> {
        let mut axes: Vec<(Name, Values)> = Vec::new();
        let mut search = Search::default();
        let (mut rank, mut rank_span) = (None, None);
        for e in &block.entries {
            if e.is_in {
                if let Some(axis) = self.axis(e) {
                    self.once(&axes, &axis.0);
                    axes.push(axis);
                }
                continue;
            }
            let key = dotted(&e.key);
            match key.as_str() {
                "search" => self.search(e, &mut search),
                "budget" if search.budget.is_some() => self.repeated(e.span, "budget"),
                "budget" => search.budget = self.budget(e),
                "rank" if rank_span.is_some() => self.repeated(e.span, "rank"),
                "rank" => (rank, rank_span) = (self.rank(e), Some(e.span)),
                _ => self.unknown(e, &key),
            }
        }
        let matches = self.matches(block, &axes);
        if !self.sink.is_empty() {
            return None;
        }
        if axes.is_empty() {
            let d = Diagnostic::error(codes::MISSING_ITEM, block.span, "nothing is explored");
            self.sink.push(
                d.label("no name has values")
                    .help("say which values are tried: `scheme in [lie(att, ffn), heun(layer)]`"),
            );
            return None;
        }
        let points = self.points(block, &axes, search.samples)?;
        Some(Space {
            names: axes.into_iter().map(|(name, _)| name).collect(),
            points,
            matches,
            rank: rank.unwrap_or_default(),
            rank_span,
            halving: search.halving,
            budget: search.budget,
        })
    }

    fn repeated(&mut self, span: Span, what: &str) {
        let message = format!("`{what}` is given twice");
        let d = Diagnostic::error(codes::REPEATED_ITEM, span, message);
        self.sink.push(d);
    }

    fn once(&mut self, axes: &[(Name, Values)], name: &Name) {
        if let Some((first, _)) = axes.iter().find(|(n, _)| n.path == name.path) {
            let message = format!("`{}` is given twice", name.path);
            let d = Diagnostic::error(codes::REPEATED_ITEM, name.span, message);
            self.sink.push(d.also(first.span, "first given here"));
        }
    }

    fn unknown(&mut self, e: &Entry, key: &str) {
        let message = format!("an explore block has no entry `{key}`");
        let d = Diagnostic::error(codes::UNKNOWN_ENTRY, e.span, message);
        let known = |k: &String| *k == key || k.rsplit('.').next() == Some(key);
        self.sink.push(match key {
            "match" => d.help("say by which value it is met: `match flops by train.steps`"),
            "where" => d.help("say what it may be: `where width*steps in 1..=4096`"),
            _ if self.known.iter().any(known) => {
                d.help(format!("values are given with `in`: `{key} in [ … ]`"))
            }
            _ => d.help(format!(
                "it has `PATH in …`, `match`, `where`, {}",
                ENTRIES.map(|e| format!("`{e}`")).join(", ")
            )),
        });
    }

    /// What `--set` calls a name; one without dots is the only path that ends in it.
    fn path(&mut self, key: &[Ident]) -> Option<Name> {
        let shown = dotted(key);
        let span = key.first()?.span.to(key.last()?.span);
        let name = |path: &str| Name {
            path: path.to_string(),
            shown: shown.clone(),
            span,
        };
        let ends = format!(".{shown}");
        if key.len() > 1 || self.known.contains(&shown) {
            // `ffn.hidden` is `field.ffn.hidden`. Whether there is such a path says `--set` itself, which knows more of them than it lists.
            let longer = self.known.iter().find(|path| path.ends_with(&ends));
            let listed = longer.filter(|_| !self.known.contains(&shown));
            return Some(name(listed.unwrap_or(&shown)));
        }
        let last = |path: &&String| path.rsplit('.').next() == Some(shown.as_str());
        let found: Vec<&String> = self.known.iter().filter(last).collect();
        match found[..] {
            [one] => Some(name(one)),
            [] => {
                let message = format!("nothing here is called `{shown}`");
                let d = Diagnostic::error(codes::UNKNOWN_PATH, span, message).label("not known");
                let ends = self.known.iter().map(|k| k.rsplit('.').next().unwrap_or(k));
                let all = ends.chain(self.known.iter().map(String::as_str));
                self.sink.push(match nearest::nearest(&shown, all) {
                    Some(near) => d.help(format!("did you mean `{near}`?")),
                    None => d.help("`odec check FILE --paths` lists all names"),
                });
                None
            }
            _ => {
                let message = format!("`{shown}` names several things");
                let all: Vec<String> = found.iter().map(|path| format!("`{path}`")).collect();
                let d = Diagnostic::error(codes::AMBIGUOUS_PATH, span, message);
                self.sink.push(
                    d.label(format!("{} of them", found.len()))
                        .help(format!("write one of these paths: {}", all.join(", "))),
                );
                None
            }
        }
    }

    fn axis(&mut self, e: &Entry) -> Option<(Name, Values)> {
        let name = self.path(&e.key)?;
        let given = e.values.first()?;
        let drawn = match &given.kind {
            ExprKind::Call(call) => name_of(&call.callee)
                .filter(|f| ["uniform", "log_uniform", "choice"].contains(&f.name.as_str()))
                .map(|f| (f.name, call)),
            _ => None,
        };
        let values = match drawn {
            Some((how, call)) => Values::Drawn(self.drawn(&how, call, given.span)?),
            None => Values::Listed(self.listed(given)?),
        };
        let none = match &values {
            Values::Listed(list) | Values::Drawn(Drawn::Choice(list)) => list.is_empty(),
            Values::Drawn(_) => false,
        };
        if none {
            let message = format!("`{}` has no values", name.shown);
            let d = Diagnostic::error(codes::LIST_LENGTH, given.span, message);
            self.sink.push(
                d.label("this space is empty")
                    .help("give one value at least"),
            );
            return None;
        }
        Some((name, values))
    }

    /// The entries of a list, or of a range.
    fn listed(&mut self, given: &Expr) -> Option<Vec<Listed>> {
        let entries = match &given.kind {
            ExprKind::List(entries) => &entries[..],
            _ => std::slice::from_ref(given),
        };
        let each = entries.iter().map(|e| self.entry(e));
        each.collect::<Vec<_>>().into_iter().collect()
    }

    fn entry(&mut self, e: &Expr) -> Option<Listed> {
        let mut ranges = Vec::new();
        ranges_of(e, &mut ranges);
        let holes = ranges.into_iter().map(|r| self.hole(r));
        let holes: Option<Vec<Hole>> = holes.collect::<Vec<_>>().into_iter().collect();
        Some(Listed {
            span: e.span,
            holes: holes?,
        })
    }

    fn hole(&mut self, r: &Range) -> Option<Hole> {
        let (Some(start), Some(end)) = (&r.start, &r.end) else {
            let d = Diagnostic::error(codes::INVALID_VALUE, r.span, "this range has no end");
            self.sink
                .push(d.help("a range of values has both ends: `1..=4`"));
            return None;
        };
        let bounds = [start, end].map(|e| self.integer(e));
        let [Some(first), Some(end)] = bounds else {
            return None;
        };
        let past = if r.inclusive {
            end.saturating_add(1)
        } else {
            end
        };
        if past <= first {
            let text = self.text(r.span);
            let message = match past == first {
                true => format!("the range `{text}` is empty"),
                false => format!("the range `{text}` runs backwards"),
            };
            let d = Diagnostic::error(codes::OUT_OF_RANGE, r.span, message);
            self.sink
                .push(d.help("the first number comes first: `1..=4` is 1, 2, 3, 4"));
            return None;
        }
        Some(Hole {
            span: r.span,
            first,
            count: past.abs_diff(first),
        })
    }

    fn integer(&mut self, e: &Expr) -> Option<i64> {
        let found = match exact(e, &Scope::new()) {
            Ok(x) => x.as_integer().and_then(|n| i64::try_from(n).ok()),
            Err(d) => {
                self.sink.push(d);
                return None;
            }
        };
        if found.is_none() {
            let d = Diagnostic::error(
                codes::OUT_OF_RANGE,
                e.span,
                "the end of a range is a whole number",
            );
            self.sink
                .push(d.help("write other numbers in a list: `[0.1, 0.2]`"));
        }
        found
    }

    fn number(&mut self, e: &Expr) -> Option<f64> {
        match exact(e, &Scope::new()) {
            Ok(x) => Some(x.to_f64()),
            Err(d) => {
                self.sink.push(d);
                None
            }
        }
    }

    fn drawn(&mut self, how: &str, call: &Call, span: Span) -> Option<Drawn> {
        let plain = || call.args.iter().filter(|a| a.label.is_none());
        let mut labelled = call.args.iter().filter_map(|a| a.label.as_ref());
        let known: &[&str] = if how == "uniform" { &["step"] } else { &[] };
        if let Some(label) = labelled.find(|l| !known.contains(&l.name.as_str())) {
            let message = format!("`{how}` has no argument `{}`", label.name);
            let d = Diagnostic::error(codes::UNKNOWN_ARGUMENT, label.span, message);
            self.sink.push(match known {
                [] => d,
                _ => d.help(format!("it has `{}`", known.join("`, `"))),
            });
            return None;
        }
        if how == "choice" {
            let each = plain().map(|a| self.entry(&a.value));
            let each: Option<Vec<Listed>> = each.collect::<Vec<_>>().into_iter().collect();
            return each.map(Drawn::Choice);
        }
        let ends: Vec<&Expr> = plain().map(|a| &a.value).collect();
        let [low, high] = ends[..] else {
            let message = format!("`{how}` takes the two ends of an interval");
            let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message);
            self.sink.push(d.help(format!("`{how}(0.001, 0.1)`")));
            return None;
        };
        let (Some(from), Some(to)) = (self.number(low), self.number(high)) else {
            return None;
        };
        let step = call.args.iter().find(|a| a.label.is_some());
        let step = match step {
            Some(a) => Some((self.number(&a.value)?, a.value.span)),
            None => None,
        };
        let wrong = if to <= from {
            Some((
                high.span,
                "the interval runs backwards, or is empty".to_string(),
            ))
        } else if how == "log_uniform" && from <= 0.0 {
            let message = "the logarithm of what is not positive has no value".to_string();
            Some((low.span, message))
        } else {
            step.filter(|(s, _)| *s <= 0.0 || *s > to - from)
                .map(|(_, at)| {
                    (
                        at,
                        "no two multiples of this step lie in the interval".into(),
                    )
                })
        };
        if let Some((at, message)) = wrong {
            self.sink
                .push(Diagnostic::error(codes::OUT_OF_RANGE, at, message));
            return None;
        }
        Some(match how {
            "log_uniform" => Drawn::LogUniform {
                low: from,
                high: to,
            },
            _ => Drawn::Uniform {
                low: from,
                high: to,
                step: step.map(|(s, _)| s),
            },
        })
    }

    fn rank(&mut self, e: &Entry) -> Option<Rank> {
        let all = [Rank::HeldOut, Rank::Accuracy];
        let given = e.values.first()?;
        let word = name_of(given).unwrap_or(Ident {
            name: self.text(given.span),
            span: given.span,
        });
        let found = all.into_iter().find(|r| r.word() == word.name);
        if found.is_none() {
            self.sink.push(unknown_option(
                "what trials are ranked by",
                &word,
                &all.map(Rank::word),
            ));
        }
        found
    }

    fn matches(&mut self, block: &Block, axes: &[(Name, Values)]) -> Vec<Matched> {
        let mut found: Vec<Matched> = Vec::new();
        for m in &block.matches {
            let what = Ident {
                name: dotted(&m.what),
                span: m.what.first().map_or(m.span, |w| w.span),
            };
            let known = Quantity::ALL.iter().find(|(word, _)| *word == what.name);
            let Some((_, quantity)) = known else {
                let words = Quantity::ALL.map(|(word, _)| word);
                self.sink
                    .push(unknown_option("what trials can have alike", &what, &words));
                continue;
            };
            let Some(by) = self.path(&m.by) else { continue };
            let within = match &m.within {
                None => Some(0.01),
                Some(e) => self.number(e).filter(|w| {
                    let good = *w > 0.0 && *w < 1.0;
                    if !good {
                        let message = "a difference lies between 0 and 100%";
                        let d = Diagnostic::error(codes::OUT_OF_RANGE, e.span, message);
                        self.sink.push(d.help("such as `within 1%`"));
                    }
                    good
                }),
            };
            let Some(within) = within else { continue };
            let m = Matched {
                what: *quantity,
                by,
                within,
                span: m.span,
            };
            self.fits(&m, axes, &found);
            found.push(m);
        }
        found
    }

    /// Whether something can be matched together with all else.
    fn fits(&mut self, m: &Matched, axes: &[(Name, Values)], earlier: &[Matched]) {
        let by = &m.by.path;
        if let Some((name, _)) = axes.iter().find(|(n, _)| n.path == *by) {
            let message = format!("`{by}` is solved for, so it has no values of its own");
            let d = Diagnostic::error(codes::INCOMPATIBLE, m.by.span, message);
            self.sink.push(d.also(name.span, "values are given here"));
        }
        if by == SEED {
            let d = Diagnostic::error(codes::INVALID_VALUE, m.by.span, "the seed changes no cost");
            self.sink.push(d);
        }
        if by != STEPS && m.what == Quantity::Time {
            let message = "time is the same by the number of steps alone";
            let d = Diagnostic::error(codes::INVALID_VALUE, m.by.span, message);
            self.sink.push(
                d.label("each of its sizes would have to be measured")
                    .help("write `match time by train.steps`"),
            );
        }
        if by == STEPS && matches!(m.what, Quantity::Parameters | Quantity::Memory) {
            let message = format!("the number of steps does not change {}", m.what.name());
            let d = Diagnostic::error(codes::INVALID_VALUE, m.by.span, message);
            self.sink.push(d.help(format!(
                "by a size of the model: `match {} by width`",
                m.what.word()
            )));
        }
        let sizes = |m: &&Matched| m.by.path != STEPS;
        let same = earlier
            .iter()
            .find(|e| e.by.path == *by || e.what == m.what || (by != STEPS && sizes(e)));
        if let Some(first) = same {
            let message = "one size of the model can be solved for, and the number of steps";
            let d = Diagnostic::error(codes::INCOMPATIBLE, m.span, message);
            self.sink
                .push(d.also(first.span, "another is solved for here"));
        }
    }

    fn text(&self, span: Span) -> String {
        let text = self.sources.text(span.source);
        let text = text.get(span.start as usize..span.end as usize);
        one_line(text.unwrap_or_default())
    }
}

/// The path of the number of training steps.
pub const STEPS: &str = "train.steps";

fn dotted(key: &[Ident]) -> String {
    let parts: Vec<&str> = key.iter().map(|k| k.name.as_str()).collect();
    parts.join(".")
}

/// On one line, without comments.
fn one_line(text: &str) -> String {
    let bare = text.lines().map(|line| {
        let mut quoted = false;
        let cut = line.char_indices().find(|(at, c)| {
            quoted ^= *c == '"';
            !quoted && line[*at..].starts_with("//")
        });
        cut.map_or(line, |(at, _)| &line[..at])
    });
    let words = bare.flat_map(str::split_whitespace).collect::<Vec<_>>();
    words.join(" ")
}

/// The ranges inside a value, from left to right.
fn ranges_of<'e>(e: &'e Expr, found: &mut Vec<&'e Range>) {
    match &e.kind {
        ExprKind::Range(r) => found.push(r),
        ExprKind::Call(call) => {
            ranges_of(&call.callee, found);
            for a in &call.args {
                ranges_of(&a.value, found);
                a.by.iter().for_each(|by| ranges_of(by, found));
            }
        }
        ExprKind::List(all) | ExprKind::Tuple(all) => all.iter().for_each(|e| ranges_of(e, found)),
        ExprKind::Binary(_, a, b) | ExprKind::Pipe(a, b) => {
            ranges_of(a, found);
            ranges_of(b, found);
        }
        ExprKind::Neg(inner) => ranges_of(inner, found),
        _ => {}
    }
}
