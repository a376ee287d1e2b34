//! The layers that fields are made of: what each of them says of itself, and the list.
//!
//! A layer is one file and one line in the list. The trait has no default methods: a missing rule does not compile. Whoever
//! needs to know something of layers (parameters, graphs, decoding, adaptation, pages of documentation) asks through [`LayerKind`], and
//! nothing outside of this folder knows which layers there are; nothing in it knows of models. Functions without parameters are entries of two
//! tables (`functions.rs`, `column_functions.rs`). Pipelines and arithmetic are
//! read by `pipeline.rs` and `arithmetic.rs` and are a [`Network`]. Layers written in the language are read by `written.rs`, and stand for what
//! their bodies compute.
//!
//! Arguments are read by their declarations, so what is documented is what is read. Tests (`compiler/tests/front/layers.rs`) and docs/layers.md
//! (`odec help layers`) are made of what a layer declares.

mod angles;
mod arithmetic;
mod chunks;
mod column_functions;
mod elsewhere;
mod fewer;
pub mod function;
mod functions;
mod given;
mod heads;
mod map;
mod naming;
pub mod network;
pub mod pipeline;
mod reading;
pub mod states;
mod undefined;
pub mod written;

pub use crate::arguments::{Argument, Form, Silent};
pub use conv2d::squares_fit;
pub use function::Applied;
pub use map::Map;
pub use odec_graph::TypeResult;
pub use odec_program::choice::{About, Example};
pub use reading::Reading;

use crate::arguments;
use crate::scheme::vocabulary::{LayerName, Vocabulary, WHEN, With};
use network::Network;
use odec_graph::ops;
use odec_graph::{Builder, Value, nn};
use odec_program::Dim;
use odec_program::manifest::{Init, Turns, Waves};
use std::fmt::Debug;

pub use crate::scheme::Facts;
pub use condition::CONDITION;
pub use pipeline::{Grid, OfModel, Sizes};
pub use states::{State, States};

/// Largest width of anything.
pub const MAX_WIDTH: u64 = 1 << 20;
/// Base of the sinusoids' wave lengths (Vaswani et al. 2017).
pub const SINUSOID_BASE: f64 = 10_000.0;

/// A layer with its arguments, whose widths fit what it is applied to.
pub trait Layer: Clone + Debug + PartialEq + Into<LayerKind> {
    const NAME: &'static str;
    const ABOUT: About;
    /// All that it may be given, in the order in which [`Layer::read`] asks for it.
    const ARGUMENTS: &'static [Argument];
    /// Uses to show, the first of them with its parameters. Tests are made of them: widths, derivatives, decoding, arguments.
    const EXAMPLES: &'static [Example];
    /// What its parameters' paths are counted by in a field: layers of one role share a count. `None`: it has no parameters.
    const ROLE: Option<&'static str>;
    /// What the language knows of it before sizes are known.
    const FACTS: Facts;
    /// Whether each element of its result is from 0 to 1.
    const GIVES_SHARES: bool;
    /// Whether its result depends on its input. One that does not may stand where nothing is before it.
    const READS_INPUT: bool;
    /// Whether each row of its result is computed from that row of its input and from parameters, always the same: then what is the same for all tokens is
    /// computed once.
    const ROW_BY_ROW: bool;

    /// Reads its arguments, and checks them against the width that it meets: the layer, and the width of its result.
    fn read(r: &mut Reading) -> Option<(Self, u64)>;
    /// All parameters, in the order of the computation.
    fn params(&self) -> Vec<LayerParam>;
    /// What it reads beside its input and its parameters.
    fn reads(&self) -> Reads;
    /// Appends its nodes at the builder's site.
    fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult;
    /// The number for each column, where columns times numbers are all that it computes ([`Facts::diagonal`]).
    fn rates(&self, b: &mut Builder, w: &mut dyn Weights) -> TypeResult<Option<Value>>;
}

/// What a layer is applied to.
#[derive(Clone, Copy)]
pub struct Inputs<'a> {
    pub x: Value,
    /// The values that have names where it stands.
    pub named: &'a [Value],
    /// How long the field's own site is.
    field: usize,
    /// The tokens that the field is applied to.
    tokens: Dim,
}

impl Inputs<'_> {
    /// Builds at a place below the field.
    fn place<T>(&self, b: &mut Builder, path: &str, build: impl FnOnce(&mut Builder) -> T) -> T {
        let around = b.site.path.split_off(self.field);
        let made = b.part(path, build);
        b.site.path.push_str(&around);
        made
    }
}

/// What a layer reads beside its input and its parameters.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reads {
    /// Tokens after the one at hand: then no text can be read on token by token.
    pub later_tokens: bool,
    /// The same, where what fills up a text cannot be told from its tokens.
    pub padding: bool,
    /// Evolves whose states it reads.
    pub states: Vec<String>,
    /// Numbers that are kept of each token for those after it, at most: a value that is read twice is kept once.
    pub kept: u64,
    /// Numbers that a run leaves to the next, however many tokens it read.
    pub carried: u64,
    /// Sinusoids of the positions.
    pub sinusoids: bool,
    /// Tables of angles.
    pub rotary: Vec<Angles>,
    /// What a router chooses for each token.
    pub routes: bool,
    /// How many tokens of a text its experts take, where they do not take all.
    pub capacities: Vec<Capacity>,
    /// Other tokens, none of which can be left out: by their distance, by bounded scores of which distances are part, or as terms of a sum.
    pub all_tokens: bool,
    /// Tokens beside the one at hand on a grid.
    pub grid: bool,
}

impl Reads {
    /// Of rows of so many columns, these distances before a token: as many are carried on as the longest one.
    pub fn shifted(by: &[i32], columns: u64) -> Reads {
        let reach = by.iter().copied().max().unwrap_or(0).max(0);
        let later_tokens = by.iter().any(|by| *by < 0);
        let carried = if later_tokens { 0 } else { reach as u64 };
        Reads {
            later_tokens,
            padding: later_tokens,
            carried: carried.saturating_mul(columns),
            all_tokens: by.iter().any(|by| *by != 0),
            ..Reads::default()
        }
    }

    /// What two layers read.
    pub fn and(mut self, other: Reads) -> Reads {
        self.rotary.extend(other.rotary);
        self.capacities.extend(other.capacities);
        self.states.extend(other.states);
        Reads {
            later_tokens: self.later_tokens | other.later_tokens,
            padding: self.padding | other.padding,
            states: self.states,
            kept: self.kept.saturating_add(other.kept),
            carried: self.carried.saturating_add(other.carried),
            sinusoids: self.sinusoids | other.sinusoids,
            rotary: self.rotary,
            routes: self.routes | other.routes,
            capacities: self.capacities,
            all_tokens: self.all_tokens | other.all_tokens,
            grid: self.grid | other.grid,
        }
    }
}

/// A number of something, for fractions.
pub fn whole(n: u64) -> i64 {
    n.try_into().unwrap_or(i64::MAX)
}

/// The most tokens of a text that each expert of a mixture takes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Capacity {
    /// The router's path below the field, or below the model.
    pub router: String,
    pub tokens: u64,
    pub experts: u64,
    /// Experts that each token chooses.
    pub top_k: u64,
}

/// What turns the columns of a head: by `position · base^(−2i/head)`, unless `turns` says otherwise.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Angles {
    pub head: u64,
    pub base: f64,
    pub turns: Turns,
}

/// A parameter of a layer, by its path below the field.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerParam {
    pub path: String,
    pub shape: Vec<u64>,
    pub start: Start,
}

/// How a parameter starts.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Start {
    /// Matrices: normal, with the model's deviation.
    Normal,
    /// Gains.
    Ones,
    /// Biases.
    Zeros,
    /// What a body says.
    Constant(f64),
}

impl Start {
    /// The number that each element starts with, where it is one.
    pub fn value(self) -> Option<f64> {
        match self {
            Start::Normal => None,
            Start::Ones => Some(1.0),
            Start::Zeros => Some(0.0),
            Start::Constant(x) => Some(x),
        }
    }
}

impl LayerParam {
    /// A number for each column.
    pub fn vector(path: &str, width: u64, start: Start) -> LayerParam {
        LayerParam {
            path: path.to_string(),
            shape: vec![width],
            start,
        }
    }

    /// The start, given the deviation of random ones.
    pub fn init(&self, std: f64) -> Init {
        match self.start {
            Start::Normal => Init::Normal { std },
            Start::Ones => Init::Ones,
            Start::Zeros => Init::Zeros,
            Start::Constant(x) => Init::Constant(x),
        }
    }
}

/// Where a layer finds parameters, tables and the tokens it attends to while its graph is built.
pub trait Weights {
    fn param(&mut self, b: &mut Builder, path: &str) -> TypeResult;
    fn rotary(&mut self, b: &mut Builder, angles: Angles) -> TypeResult<nn::Rotary>;
    /// Attention to `[q, k, v]`, or to these and a sink for each head. `of`: the evolve whose state keys and values are made of, where it is
    /// not the one at hand.
    fn attend(
        &mut self,
        b: &mut Builder,
        attention: ops::Attention,
        operands: &[Value],
        of: Option<&str>,
    ) -> TypeResult;
    /// The state that an evolve ended with, by its label.
    fn state(&mut self, b: &mut Builder, label: &str) -> TypeResult;
    /// What a run leaves to the next under a name, rows × columns of each sequence: for the last operand of an op that gives what takes its place.
    /// `None` where a run sees all tokens.
    fn carry(&mut self, b: &mut Builder, name: &str, shape: [u64; 2]) -> TypeResult<Option<Value>>;
    /// The rows `by` tokens before each (after, if negative), side by side.
    fn shifted(&mut self, b: &mut Builder, x: Value, by: &[i32]) -> TypeResult;
    /// The convolution of each column with its taps ([`ops::Depthwise`]).
    fn depthwise(&mut self, b: &mut Builder, x: Value, taps: Value, by: &[i32]) -> TypeResult;
    /// The field's n-th mask: its stream and the key of the run; `None` where nothing is dropped.
    fn mask(&mut self, b: &mut Builder, number: u32) -> TypeResult<Option<(u32, Value)>>;
    /// Features of the time, `[1, columns]`.
    fn time(&mut self, b: &mut Builder, waves: Waves) -> TypeResult;
    /// Sinusoids of the positions, a row for each.
    fn positions(&mut self, b: &mut Builder) -> TypeResult;
    /// Notes what the router of a path chose.
    fn routed(&mut self, b: &mut Builder, router: &str, at: Routed) -> TypeResult<()>;
}

/// What a router chose for each token.
#[derive(Clone, Copy, Debug)]
pub struct Routed {
    /// `[.., experts]`.
    pub logits: Value,
    /// 1 for each expert that was chosen, 0 for the others: `[.., experts]`.
    pub chosen: Value,
    /// How many were.
    pub top_k: u64,
    /// Of `chosen`, what experts take that have a capacity.
    pub taken: Option<Value>,
    /// 1 for tokens that take the step at hand, 0 for the others, which chose nothing: `[.., 1]`.
    pub among: Option<Value>,
}

/// `norm.2.gain` → `norm.2`.
fn part_of(path: &str) -> &str {
    path.rsplit_once('.').map_or(path, |(part, _)| part)
}

/// Which table of the documentation names a layer.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Group {
    #[default]
    Layers,
    /// Functions element by element.
    Elements,
    /// Functions over columns.
    Columns,
}

/// What the list says of a layer: the constants of its [`Layer`], and how it is read.
#[derive(Clone, Copy)]
pub struct Definition {
    pub name: &'static str,
    pub about: About,
    pub arguments: &'static [Argument],
    pub examples: &'static [Example],
    pub role: Option<&'static str>,
    pub facts: Facts,
    pub reads_input: bool,
    pub group: Group,
    /// What else its name stands for.
    pub with: Option<With>,
    read: fn(&mut Reading) -> Option<(Network, u64)>,
}

impl Definition {
    const fn of<L: Layer>() -> Definition {
        fn read<L: Layer>(r: &mut Reading) -> Option<(Network, u64)> {
            let (layer, out) = L::read(r)?;
            Some((Network::Layer(layer.into()), out))
        }
        Definition {
            name: L::NAME,
            about: L::ABOUT,
            arguments: L::ARGUMENTS,
            examples: L::EXAMPLES,
            role: L::ROLE,
            facts: L::FACTS,
            reads_input: L::READS_INPUT,
            group: Group::Layers,
            with: None,
            read: read::<L>,
        }
    }

    /// What the language knows of it.
    const fn known(&self) -> LayerName {
        LayerName {
            name: self.name,
            facts: self.facts,
            with: self.with,
        }
    }
}

/// Arguments that later versions compile.
const LATER_ARGUMENTS: &[&str] = &["qkv", "kv_stride"];

/// Layers of the library that give a layer in Rust an argument which others leave out: the layer, the argument, who gives it.
pub const READY: [(&str, &str, &str); 4] = [
    ("attend", "bias", "alibi_attention"),
    ("attend", "distances", "distance_attention"),
    ("attend", "softcap", "softcapped_attention"),
    ("attend", "sinks", "sink_attention"),
];

/// The layer of this name.
pub fn find(name: &str) -> Option<&'static Definition> {
    DEFINITIONS.iter().find(|d| d.name == name)
}

/// Whether a word is an argument by itself, or with arguments of its own.
fn is_word(arguments: &[Argument], word: &str) -> bool {
    let stands_alone = |a: &Argument| !matches!(a.form, Form::Fields | Form::Operand);
    arguments.iter().any(|a| a.name == word && stands_alone(a))
}

/// Declares the closed set of layers: one line per layer, `module::Type`.
macro_rules! layers {
    ($($module:ident :: $ty:ident),* $(,)?) => {
        $(mod $module; pub use $module::$ty;)*

        /// Any layer.
        #[derive(Clone, Debug, PartialEq)]
        pub enum LayerKind { $($ty(Box<$ty>),)* Applied(Box<Applied>) }

        $(impl From<$ty> for LayerKind { fn from(layer: $ty) -> LayerKind { LayerKind::$ty(Box::new(layer)) } })*

        impl LayerKind {
            pub fn name(&self) -> &'static str { match self { $(LayerKind::$ty(_) => <$ty as Layer>::NAME,)* LayerKind::Applied(l) => l.name() } }
            pub fn params(&self) -> Vec<LayerParam> { match self { $(LayerKind::$ty(l) => l.params(),)* LayerKind::Applied(l) => l.params() } }
            pub fn reads(&self) -> Reads { match self { $(LayerKind::$ty(l) => l.reads(),)* LayerKind::Applied(l) => l.reads() } }
            pub fn gives_shares(&self) -> bool { match self { $(LayerKind::$ty(_) => <$ty as Layer>::GIVES_SHARES,)* LayerKind::Applied(l) => l.gives_shares() } }
            pub fn row_by_row(&self) -> bool { match self { $(LayerKind::$ty(_) => <$ty as Layer>::ROW_BY_ROW,)* LayerKind::Applied(_) => true } }
            pub fn build(&self, b: &mut Builder, at: Inputs, w: &mut dyn Weights) -> TypeResult { match self { $(LayerKind::$ty(l) => l.build(b, at, w),)* LayerKind::Applied(l) => l.build(b, at, w) } }
            pub fn rates(&self, b: &mut Builder, w: &mut dyn Weights) -> TypeResult<Option<Value>> { match self { $(LayerKind::$ty(l) => l.rates(b, w),)* LayerKind::Applied(l) => l.rates(b, w) } }
        }

        const OF_TYPES: &[Definition] = &[$(Definition::of::<$ty>()),*];
    };
}

const ELEMENTS: usize = functions::TABLE.len();
const COLUMNS: usize = column_functions::TABLE.len();
const COUNT: usize = OF_TYPES.len() + ELEMENTS + COLUMNS;

/// The layers of the list, then the functions of the tables.
const ALL: [Definition; COUNT] = {
    let mut all = [OF_TYPES[0]; COUNT];
    let mut n = 0;
    while n < COUNT {
        let function = n.saturating_sub(OF_TYPES.len());
        all[n] = if n < OF_TYPES.len() {
            OF_TYPES[n]
        } else if function < ELEMENTS {
            functions::TABLE[function].definition()
        } else {
            column_functions::TABLE[function - ELEMENTS].definition()
        };
        n += 1;
    }
    all
};

/// All layers.
pub static DEFINITIONS: &[Definition] = &ALL;

const NAMES: [LayerName; COUNT] = {
    let mut names = [ALL[0].known(); COUNT];
    let mut n = 0;
    while n < COUNT {
        names[n] = ALL[n].known();
        n += 1;
    }
    names
};

/// What files may name, and what they may not yet.
pub static VOCABULARY: Vocabulary = Vocabulary {
    layers: &NAMES,
    forms: &[WHEN],
    is_word: |layer, word| find(layer).is_some_and(|d| is_word(d.arguments, word)),
    is_value: |layer, label| {
        let is_it = |a: &Argument| a.is_value() && a.name == label;
        find(layer).is_some_and(|d| d.arguments.iter().any(is_it))
    },
    later: &[("nonnegative", "")],
    elsewhere: elsewhere::NAMES,
};

layers! {
    attend::Attend,
    rotary::Rotary,
    linear_attention::LinearAttention,
    moe::Moe,
    linear::Linear,
    per_head::PerHead,
    concat::Concat,
    columns::Columns,
    broadcast::Repeat,
    conv::Conv,
    conv2d::Conv2d,
    shift::Shift,
    id::Identity,
    dropout::Dropout,
    scan::Scan,
    cumsum::CumSum,
    time::Time,
    positions::Positions,
    decay::Decay,
    condition::Condition,
}
