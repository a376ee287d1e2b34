//! Parts that a model and its training are put together from: what each declares, and how it is read by that.
//!
//! A part is one file and one line of a list. There is a list for each place: inputs, embeddings, rows before the input (`leading/`), positions,
//! marks, outputs, data sources, terms of a loss. The trait of a place asks for types, parameters and graphs; by `fit` a part says what model it has no meaning for.
//! Tests (`compiler/tests/front/declared.rs`) and docs/parts.md (`odec help parts`, `odec help tokens`) are made of what parts declare.
//! Layers, whose widths depend on what they meet, are read by `layers/reading.rs`.

use super::arguments::{Argument, Called, Form, Given, Silent};
use crate::codes;
use crate::scheme::args::{Args, bounded, real, report};
use crate::scheme::scalar::{Scope, exact, name_of, not_supported, whole};
use odec_grammar::Span;
use odec_grammar::ast::{Expr, ExprKind};
use odec_grammar::diag::Diagnostic;
use odec_graph::Exact;
pub use odec_program::choice::{About, Example};

/// What a part says of itself.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Declaration {
    pub name: &'static str,
    pub about: About,
    /// All that it may be given, in the order in which [`Part::read`] asks for it.
    pub arguments: &'static [Argument],
    /// Whole lines of a model or of a train block, each of which is read by a test.
    pub examples: &'static [Example],
}

/// A part with its arguments. What it is for says the trait of its place.
pub trait Part: Sized {
    const DECLARATION: Declaration;

    /// Reads its arguments.
    fn read(r: &mut PartReading) -> Option<Self>;
}

/// One line of a list.
pub struct Listed<T: 'static> {
    pub declaration: Declaration,
    pub read: fn(&mut PartReading) -> Option<T>,
}

/// Where one of several parts stands.
pub struct Place<T: 'static> {
    pub parts: &'static [Listed<T>],
    /// Names that later versions compile.
    pub later: &'static [&'static str],
    /// What one may write.
    pub example: &'static str,
}

/// Declares the parts of a place: one line per part, `module::Type`. All that they share with others is their trait.
macro_rules! parts {
    ($of:ident: $($module:ident :: $ty:ident),* $(,)?) => {
        $(mod $module; pub use $module::$ty;)*

        const PARTS: &[$crate::part::Listed<std::rc::Rc<dyn $of>>] = &[$($crate::part::Listed {
            declaration: <$ty as $crate::part::Part>::DECLARATION,
            read: |r| {
                let part = <$ty as $crate::part::Part>::read(r)?;
                Some(std::rc::Rc::new(part) as std::rc::Rc<dyn $of>)
            },
        }),*];
    };
}
pub(crate) use parts;

impl<T> Place<T> {
    /// What all parts of this place declare.
    pub fn declarations(&self) -> impl Iterator<Item = &'static Declaration> {
        self.parts.iter().map(|p| &p.declaration)
    }

    /// Whether a part has this name.
    pub fn knows(&self, name: &str) -> bool {
        self.declarations().any(|d| d.name == name)
    }

    /// Reads the part that an expression names.
    pub fn read(&self, e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<T> {
        let names: Vec<&str> = self.declarations().map(|d| d.name).collect();
        let args = one_of(e, &names, self.later, self.example, sink)?;
        self.find(&args.callee.name)?.read(args, sink)
    }

    /// The part of this name.
    pub fn find(&self, name: &str) -> Option<&'static Listed<T>> {
        self.parts.iter().find(|p| p.declaration.name == name)
    }
}

impl<T> Listed<T> {
    /// Reads its arguments; says which of those that are given it does not have.
    pub fn read(&self, args: Args, sink: &mut Vec<Diagnostic>) -> Option<T> {
        read_declared(args, self.declaration.arguments, sink, self.read)
    }
}

/// Reads what is declared, and nothing else; says what is given besides.
fn read_declared<T>(
    args: Args,
    declared: &'static [Argument],
    sink: &mut Vec<Diagnostic>,
    read: impl FnOnce(&mut PartReading) -> Option<T>,
) -> Option<T> {
    let mut reading = PartReading {
        given: Given::new(args),
        declared,
        words: Vec::new(),
        sink,
    };
    let made = read(&mut reading);
    debug_assert!(made.is_none() || reading.given.is_declared(declared));
    reading.given.args.finish(&[], reading.sink);
    made
}

/// The arguments of a part at hand.
pub struct PartReading<'e, 's> {
    given: Given<'e>,
    declared: &'static [Argument],
    /// Words that stand alone and were taken aside, so that they are not taken for something else.
    words: Vec<&'static str>,
    sink: &'s mut Vec<Diagnostic>,
}

impl<'e> PartReading<'e, '_> {
    pub fn fail<T>(&mut self, d: Diagnostic) -> Option<T> {
        self.sink.push(d);
        None
    }

    pub fn report<T>(&mut self, r: Result<T, Diagnostic>) -> Option<T> {
        report(r, self.sink)
    }

    pub fn flag(&mut self, a: &Argument) -> bool {
        self.given.flag(a) || self.words.contains(&a.name)
    }

    /// The value of an argument that need not be given.
    pub fn given(&mut self, a: &Argument) -> Option<&'e Expr> {
        self.given.value(a, self.sink)
    }

    /// The value of an argument that must be given.
    pub fn needed(&mut self, a: &Argument) -> Option<&'e Expr> {
        self.given.needed(a, self.sink)
    }

    /// Whether the part declares an argument.
    pub fn declares(&self, a: &Argument) -> bool {
        self.declared.iter().any(|d| d.name == a.name)
    }

    /// Whether a value is given behind the name of an argument, which may be one that the part does not declare.
    pub fn has(&self, a: &Argument) -> bool {
        self.given.args.has(a.name)
    }

    /// The whole call.
    pub fn span(&self) -> Span {
        self.given.args.span
    }

    /// A number that need not be given.
    pub fn number(&mut self, a: &Argument) -> Option<f64> {
        let bounds = a.bounds()?;
        match self.given(a) {
            Some(e) => self.report(real(e, bounds)),
            None => a.number_meant().map(|x| x.to_f64()),
        }
    }

    /// A number that must be given.
    pub fn needed_number(&mut self, a: &Argument) -> Option<f64> {
        let bounds = a.bounds()?;
        let e = self.needed(a)?;
        self.report(real(e, bounds))
    }

    /// A share that must be given, with or without its name.
    pub fn share(&mut self, a: &Argument) -> Option<Exact> {
        let bounds = a.bounds()?;
        let Some(e) = self.given(a).or_else(|| self.given.unnamed(a)) else {
            let name = &self.given.args.callee.name;
            let message = format!("`{name}` needs {}", a.meaning);
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, self.span(), message);
            let help = format!("write `{name}(10%)`");
            return self.fail(d.help(help));
        };
        let value = exact(e, &Scope::new());
        self.report(value.and_then(|value| bounded(value, bounds, e)))
    }

    /// What `read` makes of the call of its form that is given, or meant where nothing is said. `wrong`: what is said of another.
    pub fn call<T>(
        &mut self,
        a: &Argument,
        wrong: &str,
        read: impl FnOnce(&str, &mut PartReading) -> Option<T>,
    ) -> Option<T> {
        let Form::Call(calls) = a.form else {
            return None;
        };
        let (span, args) = match (self.given(a), a.silent) {
            (Some(e), _) => (e.span, Args::of(e)),
            (None, Silent::Is(word)) => (self.span(), Some(Args::listed(word, self.span(), &[]))),
            (None, _) => return None,
        };
        let of = |args: &Args| calls.iter().find(|c| c.name == args.callee.name);
        let Some((called, args)) = args.and_then(|args| Some((of(&args)?, args))) else {
            let names: Vec<&str> = calls.iter().map(|c: &Called| c.name).collect();
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, span, wrong);
            return self.fail(d.label(format!("`{}` is expected", names.join("` or `"))));
        };
        read_declared(args, called.arguments, self.sink, |r| read(called.name, r))
    }

    /// A whole number that need not be given, from 1, or from 0 if that is its form.
    pub fn count(&mut self, a: &Argument, most: u64) -> Option<u64> {
        self.placed_count(a, most).map(|(n, _)| n)
    }

    /// The same, and where it is given, or the whole call is.
    pub fn placed_count(&mut self, a: &Argument, most: u64) -> Option<(u64, Span)> {
        let least = u64::from(a.form != Form::Index);
        let n = match self.given(a) {
            Some(e) => {
                let n = self.report(whole(e, &Scope::new(), least, most))?;
                return Some((n, e.span));
            }
            None => a.number_meant()?.as_integer()?.try_into().ok()?,
        };
        Some((n, self.span()))
    }

    /// A whole number that must be given, from 0.
    pub fn needed_index(&mut self, a: &Argument, most: u64) -> Option<u64> {
        let e = self.needed(a)?;
        self.report(whole(e, &Scope::new(), 0, most))
    }

    /// A whole number without a name that must be given, from 1.
    pub fn unnamed_size(&mut self, a: &Argument, most: u64) -> Option<u64> {
        let Some(e) = self.given.unnamed(a) else {
            let name = &self.given.args.callee.name;
            let message = format!("`{name}` needs a number");
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, self.span(), message);
            let help = format!("write, for example, `{name}(10)`");
            return self.fail(d.help(help));
        };
        self.report(whole(e, &Scope::new(), 1, most))
    }

    /// Two whole numbers from 1, or one for both, that must be given.
    pub fn sides(&mut self, a: &Argument, most: u64) -> Option<[u64; 2]> {
        let e = self.needed(a)?;
        let mut side = |e: &Expr| self.report(whole(e, &Scope::new(), 1, most));
        match &e.kind {
            ExprKind::List(items) => match &items[..] {
                [height, width] => {
                    let (height, width) = (side(height), side(width));
                    Some([height?, width?])
                }
                _ => {
                    let message = format!("`{}` has {} numbers", a.name, items.len());
                    let d = Diagnostic::error(codes::LIST_LENGTH, e.span, message);
                    self.fail(d.label("a height and a width are expected"))
                }
            },
            _ => side(e).map(|n| [n, n]),
        }
    }

    /// A whole number that must be given, from 1.
    pub fn size(&mut self, a: &Argument, most: u64) -> Option<u64> {
        self.placed_size(a, most).map(|(n, _)| n)
    }

    /// The same, and where it is given.
    pub fn placed_size(&mut self, a: &Argument, most: u64) -> Option<(u64, Span)> {
        let e = self.needed(a)?;
        let n = self.report(whole(e, &Scope::new(), 1, most))?;
        Some((n, e.span))
    }

    /// Which of the words of its form is said, or meant where nothing is said.
    pub fn word(&mut self, a: &Argument) -> Option<usize> {
        let Form::Word(words) = a.form else {
            return None;
        };
        let Some(e) = self.given(a) else {
            return words.len().checked_sub(1);
        };
        let name = name_of(e);
        let said = |w: &&str| name.as_ref().is_some_and(|n| n.name == *w);
        let found = words.iter().position(said);
        if found.is_none() {
            let words: Vec<String> = words.iter().map(|w| format!("`{w}`")).collect();
            let message = format!("this is not what `{}` may be", a.name);
            let d = Diagnostic::error(codes::UNKNOWN_OPTION, e.span, message);
            self.sink
                .push(d.label(format!("{} is expected", words.join(" or "))));
        }
        found
    }

    /// Something in quotes, or what is meant where nothing is said.
    pub fn text(&mut self, a: &Argument) -> Option<String> {
        match (self.given(a).map(|e| (&e.kind, e.span)), a.silent) {
            (None, Silent::Is(text)) => Some(text.into()),
            (None, _) => None,
            (Some((ExprKind::Str(text), _)), _) => Some(text.clone()),
            (Some((_, span)), _) => {
                let message = format!("`{}` is a text", a.name);
                let d = Diagnostic::error(codes::NOT_A_STRING, span, message);
                self.fail(d.label("something in quotes is expected"))
            }
        }
    }

    /// All arguments without a name: one path at least.
    pub fn paths(&mut self, a: &Argument) -> Option<Vec<String>> {
        let flags = self.declared.iter().filter(|a| a.form == Form::Flag);
        let said = flags.filter(|a| self.given.args.flag(a.name));
        self.words = said.map(|a| a.name).collect();
        let mut paths = Vec::new();
        let mut good = true;
        while let Some(e) = self.given.unnamed(a) {
            match &e.kind {
                ExprKind::Str(path) => paths.push(path.clone()),
                _ => {
                    good = false;
                    let message = "this is not a path";
                    let d = Diagnostic::error(codes::NOT_A_STRING, e.span, message);
                    self.sink.push(d.label("a path in quotes is expected"));
                }
            }
        }
        if paths.is_empty() && good {
            let name = &self.given.args.callee.name;
            let message = format!("`{name}` needs a file");
            let help = format!("write `{name}(\"file\", …)`");
            let d = Diagnostic::error(codes::MISSING_ARGUMENT, self.given.args.span, message);
            return self.fail(d.help(help));
        }
        good.then_some(paths)
    }

    /// A whole percentage, or what is meant where nothing is said. `wrong`: what is said after one that is out of range.
    pub fn percent(&mut self, a: &Argument, wrong: &str) -> Option<u32> {
        let Form::Percent(least, most) = a.form else {
            return None;
        };
        let given = self.given(a);
        let value = match given {
            Some(e) => self.report(exact(e, &Scope::new()))?,
            None => a.number_meant()?,
        };
        let hundred = (&value * &Exact::int(100)).as_integer();
        let n = hundred.and_then(|n| u32::try_from(n).ok());
        let n = n.filter(|n| (least..=most).contains(n));
        if n.is_none() {
            let span = given.map_or(self.given.args.span, |e| e.span);
            let message = format!("{value} {wrong}");
            let label = format!("a whole percentage from {least}% to {most}% is expected");
            let d = Diagnostic::error(codes::OUT_OF_RANGE, span, message);
            self.sink.push(d.label(label));
        }
        n
    }
}

/// A call of one expected name.
pub fn expect<'e>(
    e: &'e Expr,
    name: &str,
    later: &[&str],
    example: &str,
    sink: &mut Vec<Diagnostic>,
) -> Option<Args<'e>> {
    one_of(e, &[name], later, example, sink)
}

/// A call of one of several names.
pub fn one_of<'e>(
    e: &'e Expr,
    names: &[&str],
    later: &[&str],
    example: &str,
    sink: &mut Vec<Diagnostic>,
) -> Option<Args<'e>> {
    if let Some(args) = Args::of(e) {
        let name = args.callee.name.as_str();
        if names.contains(&name) {
            return Some(args);
        }
        if later.contains(&name) {
            sink.push(not_supported(args.callee.span, &format!("`{name}` here")));
            return None;
        }
    }
    let [others @ .., last] = names else {
        return None;
    };
    let expected = match others {
        [] => format!("`{last}`"),
        _ => format!("`{}` or `{last}`", others.join("`, `")),
    };
    let message = format!("{expected} is expected here");
    let d = Diagnostic::error(codes::UNKNOWN_OPTION, e.span, message);
    sink.push(d.help(format!("write, for example, `{example}`")));
    None
}

/// What a part does not go with, and why.
pub fn incompatible(span: Span, message: &str) -> Diagnostic {
    Diagnostic::error(codes::INCOMPATIBLE, span, message)
}
