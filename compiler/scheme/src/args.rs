//! Arguments of calls such as `attention(heads: 8, causal)`: read one by one, with errors for those that are left.

use super::resolve::{repeated_argument, unknown_argument};
use super::scalar::{Scope, exact, name_of, not_supported, out_of_range, whole};
use crate::codes;
use odec_exact::Exact;
use odec_grammar::Span;
use odec_grammar::ast::{Arg, Expr, ExprKind, Ident};
use odec_grammar::diag::Diagnostic;
pub use odec_program::bounds::Bounds;

/// What the arguments of a layer mean where its body hands them on.
#[derive(Debug, Default)]
pub struct HandedOn {
    /// What names mean that stand behind a label.
    pub meant: Vec<(String, Expr)>,
    /// Optional numbers that have no value: behind a label, such a name leaves the argument out.
    pub absent: Vec<String>,
    /// Flags that are on: alone, and behind the label of another flag, `bias: qkv_bias`.
    pub on: Vec<String>,
    /// Flags that are off, and optional layers that are not given: they leave the argument out.
    pub off: Vec<String>,
}

impl HandedOn {
    /// Nothing.
    pub const NONE: &HandedOn = &HandedOn {
        meant: Vec::new(),
        absent: Vec::new(),
        on: Vec::new(),
        off: Vec::new(),
    };
}

/// A callee with its arguments; also for a bare name, which has none.
pub struct Args<'e> {
    pub callee: Ident,
    pub span: Span,
    args: Vec<&'e Arg>,
    handed_on: &'e HandedOn,
    /// Labels and flags that were asked for.
    known: Vec<&'e str>,
    flags: Vec<&'e str>,
    /// Whether an argument without a name was asked for by [`Args::unnamed`], and was there.
    unnamed: Option<bool>,
}

impl<'e> Args<'e> {
    /// `None` when the expression is neither a name nor a call of one.
    pub fn of(e: &'e Expr) -> Option<Args<'e>> {
        let (callee, args) = match &e.kind {
            ExprKind::Call(call) => (name_of(&call.callee)?, call.args.iter().collect()),
            _ => (name_of(e)?, Vec::new()),
        };
        Some(Args {
            callee,
            span: e.span,
            args,
            handed_on: HandedOn::NONE,
            known: Vec::new(),
            flags: Vec::new(),
            unnamed: None,
        })
    }

    /// The contents of braces after a word.
    pub fn listed(word: &str, span: Span, args: &'e [Arg]) -> Args<'e> {
        Args {
            callee: Ident {
                name: word.into(),
                span,
            },
            span,
            args: args.iter().collect(),
            handed_on: HandedOn::NONE,
            known: Vec::new(),
            flags: Vec::new(),
            unnamed: None,
        }
    }

    /// The value of a label.
    pub fn labelled(&mut self, label: &'e str, sink: &mut Vec<Diagnostic>) -> Option<&'e Expr> {
        if !self.known.contains(&label) {
            self.known.push(label);
        }
        let has = |a: &&Arg| a.label.as_ref().is_some_and(|l| l.name == label);
        let found = self.args.iter().copied().find(|a| has(a))?;
        let first = found.label.as_ref().map_or(found.value.span, |l| l.span);
        for again in self
            .args
            .iter()
            .filter(|a| has(a))
            .skip(1)
            .filter_map(|a| a.label.as_ref())
        {
            sink.push(repeated_argument(again, first));
        }
        self.args.retain(|a| !has(a));
        let name = name_of(&found.value);
        let absent = |n: &Ident| self.handed_on.absent.contains(&n.name);
        if name.as_ref().is_some_and(absent) {
            return None;
        }
        let mut meant = self.handed_on.meant.iter();
        let meant = name.and_then(|n| meant.find(|(word, _)| *word == n.name));
        Some(meant.map_or(&found.value, |(_, e)| e))
    }

    /// Takes names for what the layer around was given, and leaves out flags that are off.
    pub fn handed_on(&mut self, meanings: &'e HandedOn) {
        self.handed_on = meanings;
        let off = |a: &Arg| {
            let name = name_of(&a.value);
            name.is_some_and(|n| meanings.off.contains(&n.name))
        };
        self.args.retain(|a| !off(a));
    }

    /// What names mean among them.
    pub fn meanings(&self) -> &'e HandedOn {
        self.handed_on
    }

    /// All that are left.
    pub fn rest(self) -> Vec<&'e Arg> {
        self.args
    }

    /// Whether a bare word such as `causal` is given, or stands before a flag that is on.
    pub fn flag(&mut self, word: &'e str) -> bool {
        if !self.flags.contains(&word) {
            self.known.push(word);
            self.flags.push(word);
        }
        let is = |a: &&Arg| {
            name_of(&a.value).is_some_and(|n| match &a.label {
                None => n.name == word,
                Some(label) => label.name == word && self.handed_on.on.contains(&n.name),
            })
        };
        let found = self.args.iter().any(is);
        self.args.retain(|a| !is(a));
        found
    }

    /// An argument that is a bare word or a call of it: `rope`, `rope(base: 500000)`.
    pub fn word(&mut self, word: &'e str, sink: &mut Vec<Diagnostic>) -> Option<Args<'e>> {
        self.known.push(word);
        let read = |a: &&'e Arg| match a.label {
            None => Args::of(&a.value).filter(|inner| inner.callee.name == word),
            Some(_) => None,
        };
        let mut found: Vec<Args<'e>> = self.args.iter().filter_map(&read).collect();
        self.args.retain(|a| read(a).is_none());
        let again = found.split_off(found.len().min(1));
        let mut first = found.pop()?;
        first.handed_on(self.handed_on);
        sink.extend(
            again
                .iter()
                .map(|a| repeated_argument(&a.callee, first.span)),
        );
        Some(first)
    }

    /// Whether a label is given.
    pub fn has(&self, label: &str) -> bool {
        let is = |a: &&&Arg| a.label.as_ref().is_some_and(|l| l.name == label);
        self.args.iter().find(is).is_some()
    }

    /// The next argument without a label.
    pub fn positional(&mut self) -> Option<&'e Expr> {
        let at = self.args.iter().position(|a| a.label.is_none())?;
        Some(&self.args.remove(at).value)
    }

    /// The same, of a callee whose arguments without a label are not its values: an unknown label may be meant for one.
    pub fn unnamed(&mut self) -> Option<&'e Expr> {
        let found = self.positional();
        self.unnamed = Some(found.is_some() || self.unnamed == Some(true));
        found
    }

    /// The next argument, if it has no label and stands before all that have one.
    pub fn leading(&mut self) -> Option<&'e Expr> {
        let first = self.args.first()?;
        first.label.is_none().then(|| &self.args.remove(0).value)
    }

    /// The first argument that is such a one, among those without a label that stand before all that have one.
    pub fn first_of(&mut self, is: impl Fn(&Expr) -> bool) -> Option<&'e Expr> {
        let mut leading = self.args.iter().take_while(|a| a.label.is_none());
        let at = leading.position(|a| is(&a.value))?;
        Some(&self.args.remove(at).value)
    }

    /// Whether an argument that nobody asked for looks like this word; [`Args::finish`] will say so.
    pub fn misspelt(&self, word: &str) -> bool {
        let near = |name: &str| odec_grammar::nearest(name, [word]).is_some();
        self.args.iter().any(|a| match &a.label {
            Some(l) => near(&l.name),
            None => name_of(&a.value).is_some_and(|n| near(&n.name)),
        })
    }

    /// A required label.
    pub fn required(&mut self, label: &'e str, sink: &mut Vec<Diagnostic>) -> Option<&'e Expr> {
        let found = self.labelled(label, sink);
        if found.is_none() && !self.misspelt(label) {
            let name = &self.callee.name;
            sink.push(
                Diagnostic::error(
                    codes::MISSING_ARGUMENT,
                    self.span,
                    format!("`{name}` needs `{label}`"),
                )
                .help(format!("write `{name}({label}: …)`")),
            );
        }
        found
    }

    /// A required whole number.
    pub fn size(
        &mut self,
        label: &'e str,
        scope: &Scope,
        max: u64,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<u64> {
        let e = self.required(label, sink)?;
        report(whole(e, scope, 1, max), sink)
    }

    /// An optional number.
    pub fn number(
        &mut self,
        label: &'e str,
        bounds: Bounds,
        default: f64,
        sink: &mut Vec<Diagnostic>,
    ) -> Option<f64> {
        match self.labelled(label, sink) {
            Some(e) => report(real(e, bounds), sink),
            None => Some(default),
        }
    }

    /// Complains about everything that was not taken.
    pub fn finish(self, later: &[&str], sink: &mut Vec<Diagnostic>) {
        self.finish_or(later, |_, _| None, sink);
    }

    /// The same. `elsewhere`: what else takes an argument of this name with such a value, if it has one.
    pub fn finish_or(
        self,
        later: &[&str],
        elsewhere: impl Fn(&str, Option<&Expr>) -> Option<String>,
        sink: &mut Vec<Diagnostic>,
    ) {
        for a in self.args {
            let (name, span) = match &a.label {
                Some(l) => (Some(l.clone()), l.span),
                None => (name_of(&a.value), a.value.span),
            };
            let value = a.label.as_ref().map(|_| &a.value);
            let other = name.as_ref().and_then(|n| elsewhere(&n.name, value));
            let or = other.map_or(String::new(), |other| format!("; {other}"));
            sink.push(match name {
                Some(n) if later.contains(&n.name.as_str()) => {
                    let what = format!("`{}` of `{}`", n.name, self.callee.name);
                    not_supported(span, &what)
                }
                Some(n) if a.label.is_some() && self.flags.contains(&n.name.as_str()) => {
                    let (callee, word) = (&self.callee.name, &n.name);
                    let message = format!("`{word}` takes no value");
                    let help =
                        format!("write `{callee}(…, {word})`; without the word, it is off{or}");
                    Diagnostic::error(codes::UNKNOWN_ARGUMENT, span, message)
                        .label("the word alone")
                        .help(help)
                }
                Some(n) => {
                    let mut d = unknown_argument(&self.callee.name, &n, &self.known);
                    let near = odec_grammar::nearest(&n.name, self.known.iter().copied());
                    match (near, value) {
                        (Some(near), _) if or.is_empty() => {
                            d.help(format!("did you mean `{near}`?"))
                        }
                        (None, Some(value)) if self.unnamed == Some(false) => {
                            let (callee, value) = (&self.callee.name, brief(value));
                            d.help(format!("write it without a name: `{callee}({value})`{or}"))
                        }
                        _ => {
                            d.help.iter_mut().for_each(|help| help.push_str(&or));
                            d
                        }
                    }
                }
                None => {
                    let message = format!("`{}` does not take this argument", self.callee.name);
                    let d = Diagnostic::error(codes::ARGUMENT_COUNT, span, message)
                        .label("unexpected argument");
                    let labels = self.known.iter().filter(|k| !self.flags.contains(k));
                    let labels: Vec<String> = labels.map(|k| format!("{k}: …")).collect();
                    let (callee, labels) = (&self.callee.name, labels.join(", "));
                    match labels.as_str() {
                        "" => d,
                        labels => {
                            d.help(format!("arguments have names here: `{callee}({labels})`"))
                        }
                    }
                }
            });
        }
    }
}

/// What may be added inside the root of a norm: with less, the derivative at a row of zeros is beyond f32.
pub const EPS: Bounds = Bounds::Within(1e-20, 1.0);

/// A number, rounded to a double.
pub fn real(e: &Expr, bounds: Bounds) -> Result<f64, Diagnostic> {
    bounded(exact(e, &Scope::new())?, bounds, e).map(|value| value.to_f64())
}

/// A number that must lie within bounds.
pub fn bounded(value: Exact, bounds: Bounds, e: &Expr) -> Result<Exact, Diagnostic> {
    let rounded = value.to_f64();
    let vanishes = rounded == 0.0 && !value.is_zero();
    if bounds.holds(rounded) && !vanishes {
        return Ok(value);
    }
    let d = out_of_range(&value, e);
    Err(d.label(match (vanishes, rounded.is_finite()) {
        (true, _) => "rounded to f64 it is 0".to_string(),
        (false, true) => format!("{} is expected", bounds.text()),
        (false, false) => format!("a number up to {:.1e} is expected", f64::MAX),
    }))
}

/// The good result, or `None` and a message.
pub fn report<T>(r: Result<T, Diagnostic>, sink: &mut Vec<Diagnostic>) -> Option<T> {
    r.map_err(|d| sink.push(d)).ok()
}

/// A number or a name as it is written, `…` for anything longer.
fn brief(e: &Expr) -> &str {
    match &e.kind {
        ExprKind::Number(text) | ExprKind::Name(text) => text,
        _ => "…",
    }
}
