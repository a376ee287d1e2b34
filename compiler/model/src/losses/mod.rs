//! The trait of loss terms, and their list.
//!
//! A term is one file and one line in the list. The trait has no default methods: a missing rule does not compile. A term is read by what it
//! declares, as other parts are (`part.rs`), and so is its page (`odec help z_loss`). Leaves sums of terms to `loss.rs`, what the graph collects
//! for them step by step to `terms.rs`.

use crate::arguments::Argument;
use crate::codes;
use crate::error::BuildError;
use crate::part::{About, Declaration, Example, Listed, PartReading, Place};
use crate::scheme::args::Args;
use crate::scheme::scalar::{name_of, unknown_option};
use odec_grammar::Span;
use odec_grammar::ast::{Expr, Ident};
use odec_grammar::diag::Diagnostic;
use odec_graph::{Builder, Exact, Solution, TypeError, Value, nn};
use odec_program::manifest::Loss;
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
    /// Whether evaluation computes the same, if it is the only term.
    const IS_PLAIN: bool;
    /// Whether it is one number, and not one for each token.
    const IS_OF_WEIGHTS: bool;

    /// What it compares with targets; the others are of states or weights.
    const COMPARES: Option<Compared>;

    /// Reads its arguments but [`OF`].
    fn read(r: &mut PartReading) -> Option<Self>;
    /// What is to be predicted, if it asks for that: the targets of the output ([`Loss::Next`]), tokens that are hidden, or numbers. Of `vocab`
    /// kinds of tokens the last one is the mask. Terms that do not ask are added to one that does.
    fn asks(&self, vocab: u64) -> Option<Loss>;
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

    /// What evaluation computes, for each row: of numbers, the mean square of what is off, unless they say how likely something is.
    pub(super) fn plain(&self, b: &mut Builder, loss: Loss) -> Result<Value, BuildError> {
        Ok(match (self, loss) {
            (Predicted::Logits { softmax, targets }, _) => softmax.cross_entropy(b, *targets)?,
            (Predicted::Numbers { values, targets }, Loss::Bce) => {
                nn::binary_cross_entropy(b, *values, *targets)?
            }
            (Predicted::Numbers { values, targets }, _) => nn::squared_error(b, *values, *targets)?,
        })
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
    /// What it asks for, if it does.
    pub asks: Option<Loss>,
    /// The label of the output that it compares, `mse(of: place)`; that without a label.
    pub of: Option<Ident>,
}

/// Reads a term.
pub(super) fn read(e: &Expr, vocab: u64, sink: &mut Vec<Diagnostic>) -> Option<Written> {
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
    let asks = term.asks(vocab);
    Some(Written { term, asks, of })
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
            pub fn asks(&self, vocab: u64) -> Option<Loss> { match self { $(Term::$ty(t) => t.asks(vocab)),* } }
            pub fn compares(&self) -> Option<Compared> { match self { $(Term::$ty(_) => <$ty as LossTerm>::COMPARES),* } }
            pub fn is_plain(&self) -> bool { match self { $(Term::$ty(_) => <$ty as LossTerm>::IS_PLAIN),* } }
            pub fn is_of_weights(&self) -> bool { match self { $(Term::$ty(_) => <$ty as LossTerm>::IS_OF_WEIGHTS),* } }
            pub fn definition(&self) -> String { match self { $(Term::$ty(t) => t.definition()),* } }
            pub fn fit(&self, span: Span, evolves: &[&dyn Along], sink: &mut Vec<Diagnostic>) { match self { $(Term::$ty(t) => t.fit(span, evolves, sink)),* } }
            pub fn step(&self, m: &mut dyn Training, b: &mut Builder, made: &StepTaken) -> Result<Vec<Value>, BuildError> { match self { $(Term::$ty(t) => t.step(m, b, made)),* } }
            pub fn rows(&self, m: &mut dyn Training, b: &mut Builder, of: &Predicted) -> Result<Value, BuildError> { match self { $(Term::$ty(t) => t.rows(m, b, of)),* } }
        }

        /// The names of all terms.
        pub const NAMES: &[&str] = &[$(<$ty as LossTerm>::NAME),*];

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
