//! The trait of loss terms, and their list.
//!
//! A term is one file and one line in the list. The trait has no default methods: a missing rule does not compile. A term is read by what it
//! declares, as other parts are (`part.rs`), and so is its page (`odec help z_loss`). One that says what is to be predicted ([`Asks`]) gives a `Loss`
//! of the manifest; a kind that there is not yet is a variant in `program/src/manifest/loss.rs`, which answers all that is asked of it. Leaves sums of
//! terms to `loss.rs`, what the graph collects for them step by step to `terms.rs`.

use crate::arguments::Argument;
use crate::codes;
use crate::error::BuildError;
use crate::inputs::Input;
use crate::part::{About, Declaration, Example, Listed, PartReading, Place};
use crate::scheme::args::Args;
use crate::scheme::scalar::{name_of, unknown_option};
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Exact, Solution, TensorType, TypeError, Value, nn};
use odec_program::manifest::{Loss, Times};
use std::fmt::Debug;

/// A summand of a loss.
pub trait LossTerm: Clone + Debug + PartialEq + Into<Term> {
    /// As it is written, and as metrics call it.
    const NAME: &'static str;
    const ABOUT: About;
    /// All that it may be given, in the order in which [`LossTerm::read`] asks for it; behind it [`OF`], where it compares any output.
    const ARGUMENTS: &'static [Argument];
    /// Whole lines of a train block, each of which is read by a test.
    const EXAMPLES: &'static [Example];
    /// Its rows, where evaluation computes the same if it is the only term.
    const PLAIN: Option<Rows>;
    /// Whether it is one number, and not one for each token.
    const IS_OF_WEIGHTS: bool;

    /// What it compares with targets; the others are of states or weights.
    const COMPARES: Option<Compared>;

    /// Reads its arguments but [`OF`].
    fn read(r: &mut PartReading) -> Option<Self>;
    /// What says what is to be predicted, if it does. Terms that do not are added to one that does.
    fn asks(&self) -> Option<&dyn Asks>;
    /// What it is, for each token unless it is of weights alone.
    fn definition(&self) -> String;
    /// Says which evolves it has no meaning for.
    fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>);
    /// The contribution of a step: numbers for each token, which are summed. The builder is at the step.
    fn step(
        &self,
        model: &mut dyn Training,
        b: &mut Builder,
        made: &StepTaken,
    ) -> Result<Vec<Value>, BuildError>;
    /// The number for each token, or the one number.
    fn rows(
        &self,
        model: &mut dyn Training,
        b: &mut Builder,
        predicted: &Predicted,
    ) -> Result<Value, BuildError>;
}

/// A term that says what is to be predicted.
pub trait Asks {
    /// That; says where the model or its data do not fit.
    fn loss(&self, of: &Asked, sink: &mut Vec<Diagnostic>) -> Option<Loss>;
    /// The law of times, where the model reads points between noise and data.
    fn times(&self) -> Option<Times>;
}

/// What is known of the output that a term compares.
pub struct Asked<'m> {
    /// What it is trained for where the term says nothing else.
    pub given: Loss,
    /// What it is compared with.
    pub targets: TensorType,
    /// What the model reads,
    pub input: &'m dyn Input,
    /// the token that ends segments of that,
    pub separator: Option<u64>,
    /// and whether it reads times beside that.
    pub reads_time: bool,
    /// How many kinds of tokens the data gives, where that is known.
    pub kinds: Option<u64>,
    /// The term, and the whole loss.
    pub term: Span,
    pub all: Span,
}

/// What a term is for each row of a result.
pub type Rows = fn(&mut Builder, &Predicted) -> Result<Value, BuildError>;

/// What terms ask of an evolve.
pub trait Along {
    fn span(&self) -> Span;
    /// Where its step size is learned.
    fn learned_h(&self) -> Option<Span>;
    /// Whether no step goes back in time.
    fn goes_forward(&self) -> bool;
    /// Whether its steps solve equations.
    fn solves(&self) -> bool;
    /// Whether its tokens halt one by one.
    fn halts(&self) -> bool;
    /// Whether each token chooses how many steps it takes, by a router.
    fn routes_steps(&self) -> bool;
    /// Whether each step chooses the tokens that take it.
    fn steps_choose(&self) -> bool;
    /// Whether some of them do not choose all.
    fn leaves_tokens_out(&self) -> bool;
    /// Where it is written by what gates tokens choose for themselves, where steps do so while the model is trained.
    fn threshold(&self) -> Option<Span>;
    /// Whether weights are functions of times that are found as the model runs.
    fn finds_weights(&self) -> bool;
    /// Whether two consecutive steps have weights that may differ.
    fn drifts(&self) -> bool;
    /// Whether its steps iterate until an equation is solved.
    fn iterates(&self) -> bool;
    /// Whether its fields choose among experts.
    fn has_experts(&self) -> bool;
}

/// What terms ask of the model whose graph is built.
pub trait Training {
    /// The mask of a place: its stream, and the key of the run; `None` where nothing is random.
    fn mask(&mut self, b: &mut Builder, place: String) -> Result<Option<(u32, Value)>, TypeError>;
    /// What all steps gave to a term, a number for each token each.
    fn given(&self, term: &str) -> &[Value];
    /// How evenly routers chose, among experts and among numbers of steps, since this was asked last: a number for each token.
    fn balances(&mut self) -> Vec<Value>;
    /// The sum of squares of what weights move by.
    fn drift(&mut self, b: &mut Builder) -> Result<Value, BuildError>;
}

/// A step that was made.
pub struct StepTaken {
    pub from: Value,
    pub to: Value,
    /// Its size, where the graph computes it.
    pub h: Option<Value>,
    /// Its size, where it is known before.
    pub known_h: Option<Exact>,
    /// The solutions of its equations.
    pub solutions: Vec<Solution>,
}

/// What a model gives that is compared with targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Compared {
    /// A number for each kind of tokens, or each class, with the right one.
    Logits,
    /// With a number each.
    Numbers,
}

/// What the model gives for its targets.
pub enum Predicted {
    Logits {
        softmax: nn::Normaliser,
        targets: Value,
    },
    Numbers {
        values: Value,
        targets: Value,
    },
}

impl Predicted {
    fn logits(&self) -> Result<(&nn::Normaliser, Value), BuildError> {
        match self {
            Predicted::Logits { softmax, targets } => Ok((softmax, *targets)),
            Predicted::Numbers { .. } => Err(BuildError::Missing("logits".into())),
        }
    }

    fn numbers(&self) -> Result<(Value, Value), BuildError> {
        match self {
            Predicted::Numbers { values, targets } => Ok((*values, *targets)),
            Predicted::Logits { .. } => Err(BuildError::Missing("numbers".into())),
        }
    }

    /// What evaluation computes, for each row.
    pub(super) fn plain(&self, b: &mut Builder, loss: Loss) -> Result<Value, BuildError> {
        let measured = loss.measured();
        let found = PLAIN.iter().find(|(name, _)| *name == measured);
        let rows = found.and_then(|(_, rows)| *rows);
        rows.ok_or_else(|| BuildError::Missing(format!("what `{measured}` measures")))?(b, self)
    }
}

/// `c` for `1/n`.
fn part_of(n: u64) -> Exact {
    Exact::ratio(1, n.try_into().unwrap_or(i64::MAX))
}

/// The sum of what steps gave.
fn sum(b: &mut Builder, of: &[Value]) -> Result<Value, BuildError> {
    let missing = || BuildError::Missing("a step".into());
    of.first().ok_or_else(missing)?;
    let terms: Vec<(Exact, Value)> = of.iter().map(|v| (Exact::one(), *v)).collect();
    Ok(nn::combine(b, &terms)?)
}

/// A term that does not go with something else of the model.
fn incompatible(span: Span, message: &str) -> Diagnostic {
    Diagnostic::error(codes::INCOMPATIBLE, span, message)
}

/// A term that would be zero.
fn no_effect(span: Span, message: &str) -> Diagnostic {
    Diagnostic::error(codes::NO_EFFECT, span, message)
}

/// Which output a term compares.
const OF: Argument = Argument::label(
    "of",
    "the output without a label",
    "the output that is compared",
);

/// A term as it is written.
pub(super) struct Written {
    pub term: Term,
    /// The label of the output that it compares, `mse(of: place)`; that without a label.
    pub of: Option<Ident>,
}

/// Reads a term.
pub(super) fn read(e: &Expr, sink: &mut Vec<Diagnostic>) -> Option<Written> {
    let Some(args) = Args::of(e) else {
        let d = Diagnostic::error(
            codes::UNKNOWN_OPTION,
            e.span,
            "this is not a term of a loss",
        );
        sink.push(d.help(format!("write, for example, `{}`", TERMS.example)));
        return None;
    };
    let before = sink.len();
    let Some(listed) = TERMS.find(&args.callee.name) else {
        sink.push(unknown_option("a term of a loss", &args.callee, NAMES));
        return None;
    };
    let found = listed.read(args, sink);
    let (term, of) = found.filter(|_| sink.len() == before)?;
    Some(Written { term, of })
}

/// A term, and the label of the output that it compares, if one is said.
type Found = (Term, Option<Ident>);

fn read_one<T: LossTerm>(r: &mut PartReading) -> Option<Found> {
    let term = T::read(r);
    let of = output::<T>(r);
    Some((term?.into(), of?))
}

/// The label that is said of an output; says so where the term is of that without one.
fn output<T: LossTerm>(r: &mut PartReading) -> Option<Option<Ident>> {
    let any = r.declares(&OF);
    let wrong = !any && T::COMPARES.is_some() && r.has(&OF);
    // Terms of states and weights have no such argument.
    if !any && !wrong {
        return Some(None);
    }
    let Some(e) = r.given(&OF) else {
        return Some(None);
    };
    if wrong {
        let message = format!("`{}` is of the output without a label", T::NAME);
        let d = incompatible(e.span, &message);
        return r.fail(d.label("it says what the model reads, of which there is one"));
    }
    let label = name_of(e);
    if label.is_none() {
        let message = "`of` is the label of an output";
        let d = Diagnostic::error(codes::INVALID_VALUE, e.span, message);
        return r.fail(d.help("write, for example, `cross_entropy(of: class)`"));
    }
    Some(label)
}

/// Declares the closed set of terms: one line per term, `module::Type`.
macro_rules! terms {
    ($($module:ident :: $ty:ident),* $(,)?) => {
        $(mod $module; pub use $module::$ty;)*

        /// Any term.
        #[derive(Clone, Debug, PartialEq)]
        pub enum Term { $($ty($ty)),* }

        $(impl From<$ty> for Term { fn from(term: $ty) -> Term { Term::$ty(term) } })*

        impl Term {
            pub fn name(&self) -> &'static str { match self { $(Term::$ty(_) => <$ty as LossTerm>::NAME),* } }
            pub fn asks(&self) -> Option<&dyn Asks> { match self { $(Term::$ty(t) => t.asks()),* } }
            pub fn compares(&self) -> Option<Compared> { match self { $(Term::$ty(_) => <$ty as LossTerm>::COMPARES),* } }
            pub fn is_plain(&self) -> bool { match self { $(Term::$ty(_) => <$ty as LossTerm>::PLAIN.is_some()),* } }
            pub fn is_of_weights(&self) -> bool { match self { $(Term::$ty(_) => <$ty as LossTerm>::IS_OF_WEIGHTS),* } }
            pub fn definition(&self) -> String { match self { $(Term::$ty(t) => t.definition()),* } }
            pub fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) { match self { $(Term::$ty(t) => t.fit(span, evolves, sink)),* } }
            pub fn step(&self, m: &mut dyn Training, b: &mut Builder, made: &StepTaken) -> Result<Vec<Value>, BuildError> { match self { $(Term::$ty(t) => t.step(m, b, made)),* } }
            pub fn rows(&self, m: &mut dyn Training, b: &mut Builder, of: &Predicted) -> Result<Value, BuildError> { match self { $(Term::$ty(t) => t.rows(m, b, of)),* } }
        }

        /// The names of all terms.
        pub const NAMES: &[&str] = &[$(<$ty as LossTerm>::NAME),*];

        /// What evaluation computes by each of them.
        const PLAIN: &[(&str, Option<Rows>)] = &[$((<$ty as LossTerm>::NAME, <$ty as LossTerm>::PLAIN)),*];

        /// All terms.
        pub static TERMS: Place<Found> = Place {
            parts: &[$(Listed {
                declaration: Declaration {
                    name: <$ty as LossTerm>::NAME,
                    about: <$ty as LossTerm>::ABOUT,
                    arguments: <$ty as LossTerm>::ARGUMENTS,
                    examples: <$ty as LossTerm>::EXAMPLES,
                },
                read: read_one::<$ty>,
            }),*],
            later: &[],
            example: "cross_entropy + 1e-4*kinetic",
        };
    };
}

mod numbers;

terms! {
    cross_entropy::CrossEntropy,
    smooth::Smooth,
    masked::Masked,
    mse::Mse,
    bce::Bce,
    velocity::Velocity,
    z_loss::ZLoss,
    kinetic::Kinetic,
    jacobian::Jacobian,
    drift::Drift,
    ponder::Ponder,
    load_balance::LoadBalance,
    choice::Choice,
}
