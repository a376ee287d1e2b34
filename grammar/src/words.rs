//! The vocabulary of error messages: names of rules and blocks, and which keywords belong where.

use crate::rules::Rule;

/// The reserved words an item begins with.
pub const ITEMS: [&str; 6] = ["scheme", "field", "model", "train", "explore", "use"];
/// Begins an item too, and is a name everywhere else: fields are called so.
pub const LAYER: &str = "layer";

pub const ITEMS_HELP: &str =
    "a file holds `scheme`, `field`, `layer`, `model`, `train`, `explore` and `use`";

/// The block a place lies in, by the word that opens it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Context {
    /// Outside all blocks.
    Item,
    Scheme,
    Tableau,
    Multistep,
    Body,
    /// The body of a field or a layer.
    Layer,
    Model,
    Evolve,
    Train,
    Explore,
    /// `sum j in 0..n { … }`, `of time { … }`: what is inside is no statement.
    Inline,
}

impl Context {
    /// The context that a block opened by `word` gives.
    pub fn of(word: &str) -> Context {
        match word {
            "scheme" => Context::Scheme,
            "tableau" => Context::Tableau,
            "multistep" => Context::Multistep,
            "start" | "step" | "repeat" => Context::Body,
            "field" | LAYER => Context::Layer,
            "model" => Context::Model,
            "evolve" => Context::Evolve,
            "train" => Context::Train,
            "explore" => Context::Explore,
            _ => Context::Inline,
        }
    }

    /// The block in a sentence.
    pub fn name(self) -> &'static str {
        match self {
            Context::Item => "a file",
            Context::Scheme => "a scheme",
            Context::Tableau => "a tableau",
            Context::Multistep => "a multistep method",
            Context::Body => "a step program",
            Context::Layer => "the body of a field or a layer",
            Context::Model => "a model",
            Context::Evolve => "the options of an evolve",
            Context::Train => "a train block",
            Context::Explore => "an explore block",
            Context::Inline => "an expression",
        }
    }

    /// One of its parts.
    pub fn part(self) -> &'static str {
        match self {
            Context::Item => "an item",
            Context::Scheme => "a part of the scheme",
            Context::Tableau | Context::Multistep => "a row",
            Context::Body | Context::Layer => "a statement",
            Context::Model => "a part of the model",
            Context::Evolve => "an option",
            Context::Train | Context::Explore => "an entry",
            Context::Inline => "an expression",
        }
    }

    /// The words its parts begin with.
    pub fn keywords(self) -> &'static [&'static str] {
        match self {
            Context::Scheme => &[
                "cite",
                "order",
                "keep",
                "let",
                "learn",
                "tableau",
                "multistep",
                "start",
                "solve",
                "step",
                "method",
                "embedded",
            ],
            Context::Body => &["repeat", "solve", "return"],
            Context::Layer => &["learn", "return"],
            Context::Model => &["input", "embed", "evolve", "output", "init"],
            Context::Evolve => &["h", "learn", "weights", "gradient", "report"],
            _ => &[],
        }
    }

    pub fn help(self) -> &'static str {
        match self {
            Context::Item => ITEMS_HELP,
            Context::Scheme => {
                "a scheme holds `cite`, `order`, `let`, `learn`, and one of `tableau`, `multistep`, `step`, `method`, or a splitting such as `A(1/2) B(1) A(1/2)`"
            }
            Context::Tableau => "a row is `c | a₁ a₂ …`, the last rows are weights: `| b₁ b₂ …`",
            Context::Multistep => {
                "for example `multistep { alpha 1 -1; beta 0 3/2 -1/2 }`, newest first"
            }
            Context::Body => "a statement is `name = …`, `repeat n { … }`, `solve …` or `return …`",
            Context::Layer => {
                "a statement is `name = …`, `learn name = …`, `learn name[columns] = …` or `return …`"
            }
            Context::Model => "a model holds `input`, `embed`, `evolve`, `output` and `init`",
            Context::Evolve => {
                "an evolve has the options `h = …`, `learn h = …`, `weights …`, `gradient …` and `report name = …`"
            }
            Context::Train => "an entry is a key and a value: `batch 8`, `loss cross_entropy`",
            Context::Explore => {
                "an entry is `path in [values]`, `match flops by train.steps`, `where width*steps in 1..=4096`, or a key and a value"
            }
            Context::Inline => "an expression is made of names, numbers, calls and operators",
        }
    }
}

/// The words of claims, which begin parts of a scheme where no field has their name.
pub const CLAIMS: [&str; 19] = [
    "stages",
    "evaluations",
    "stage_order",
    "stiff_order",
    "effective_order",
    "energy_order",
    "ssp",
    "explicit",
    "dirk",
    "sdirk",
    "firk",
    "fsal",
    "stiffly_accurate",
    "A_stable",
    "L_stable",
    "symplectic",
    "symmetric",
    "zero_stable",
    "energy_preserving",
];

/// What is written instead of a statement of another block, or of another language.
pub fn instead(word: &str, context: Context) -> Option<&'static str> {
    let choice = matches!(word, "if" | "else" | "match");
    let repetition = matches!(word, "for" | "while" | "loop");
    match context {
        Context::Layer if word == "let" => {
            Some("a value is set by its name alone: `y = x |> linear`")
        }
        Context::Layer if choice => Some(
            "what is built is chosen where a layer is used, by flags that it hands on (`layer f(x: value, causal: flag)`); values are chosen by products: `g*u + (1 - g)*v`",
        ),
        Context::Layer if repetition || word == "repeat" => Some(
            "a body is computed once for each place that names it; what is repeated are steps, `for 6 steps`, and a sum over columns or tokens is a layer, `sum` or `cumsum`",
        ),
        Context::Body if choice => Some(
            "a step is the same for all states; what differs from step to step are numbers (`learn a = 1`, `r: [1, 2, 3]`) and schemes (`evolve [heun(f), rk4(f)] for 2 steps`)",
        ),
        Context::Body if repetition => {
            Some("statements are repeated by `repeat n { … }`, and summed by `sum j in 0..n { … }`")
        }
        _ => None,
    }
}

/// Reserved words.
const KEYWORDS: [&str; 26] = [
    "scheme",
    "field",
    "model",
    "train",
    "explore",
    "use",
    "let",
    "learn",
    "tableau",
    "multistep",
    "embedded",
    "start",
    "step",
    "repeat",
    "return",
    "solve",
    "flow",
    "from",
    "in",
    "evolve",
    "for",
    "weights",
    "embed",
    "order",
    "cite",
    "keep",
];

pub fn is_keyword(word: &str) -> bool {
    KEYWORDS.contains(&word)
}

/// Where a word that begins a statement belongs.
pub fn home(word: &str) -> Option<&'static str> {
    let homes = [
        Context::Scheme,
        Context::Body,
        Context::Model,
        Context::Evolve,
    ];
    let home = homes
        .into_iter()
        .find(|home| word != "h" && home.keywords().contains(&word))?;
    Some(home.name())
}

/// The keyword that a rule is, or begins with.
pub fn keyword(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::k_scheme | Rule::scheme => "scheme",
        Rule::k_field | Rule::field => "field",
        Rule::k_layer | Rule::layer => "layer",
        Rule::k_model | Rule::model => "model",
        Rule::k_train | Rule::train => "train",
        Rule::k_explore | Rule::explore => "explore",
        Rule::k_use | Rule::use_item => "use",
        Rule::k_let | Rule::constant => "let",
        Rule::k_learn | Rule::learn | Rule::learn_from | Rule::learn_h | Rule::body_learn => {
            "learn"
        }
        Rule::k_tableau | Rule::tableau => "tableau",
        Rule::k_multistep | Rule::multistep => "multistep",
        Rule::k_embedded | Rule::embedded => "embedded",
        Rule::k_start | Rule::start | Rule::start_by => "start",
        Rule::k_step | Rule::step => "step",
        Rule::k_repeat | Rule::repeat => "repeat",
        Rule::k_return | Rule::give | Rule::body_give => "return",
        Rule::k_solve | Rule::solve | Rule::solve_by => "solve",
        Rule::k_from => "from",
        Rule::k_in => "in",
        Rule::k_evolve | Rule::evolve => "evolve",
        Rule::k_for => "for",
        Rule::k_weights | Rule::weights => "weights",
        Rule::k_embed | Rule::embed => "embed",
        Rule::k_order | Rule::order => "order",
        Rule::k_cite | Rule::cite => "cite",
        Rule::k_keep | Rule::keep => "keep",
        Rule::k_method | Rule::expression => "method",
        Rule::k_as | Rule::role => "as",
        Rule::k_within => "within",
        Rule::k_by | Rule::by => "by",
        Rule::k_input | Rule::input => "input",
        Rule::k_output | Rule::output => "output",
        Rule::k_init | Rule::init => "init",
        Rule::k_steps => "steps",
        Rule::k_h | Rule::set_h => "h",
        Rule::k_gradient | Rule::gradient => "gradient",
        Rule::k_report | Rule::report => "report",
        Rule::k_per | Rule::per_step | Rule::per_use | Rule::per_channel => "per",
        Rule::k_channel => "channel",
        Rule::k_shared | Rule::shared => "shared",
        Rule::k_every | Rule::every => "every",
        Rule::k_cycle | Rule::cycle => "cycle",
        Rule::k_of | Rule::time_dependent => "of",
        Rule::k_time => "time",
        Rule::k_match => "match",
        Rule::k_where => "where",
        Rule::k_except | Rule::exception => "except",
        Rule::k_above => "above",
        Rule::k_below => "below",
        Rule::k_to => "to",
        _ => return None,
    })
}

/// Rules that begin with an operand.
pub fn is_operand(rule: Rule) -> bool {
    matches!(
        rule,
        Rule::expr
            | Rule::pipe
            | Rule::product
            | Rule::unary
            | Rule::power
            | Rule::value
            | Rule::arg
            | Rule::counted
            | Rule::reference
    )
}

/// What a rule without a keyword is called. `None` for what goes without saying: operators, optional parts.
pub fn plain(rule: Rule) -> Option<&'static str> {
    Some(match rule {
        Rule::expr | Rule::pipe | Rule::product | Rule::unary | Rule::power | Rule::value => {
            "an expression"
        }
        Rule::arg => "an argument",
        Rule::reference | Rule::ident | Rule::word | Rule::chosen => "a name",
        Rule::param => "a parameter such as `F` or `r = 3`",
        Rule::layer_param => "an argument such as `hidden` or `scale: number = 1`",
        Rule::number | Rule::quantity | Rule::counted => "a number",
        Rule::string => "a string in double quotes",
        Rule::list => "a list in `[ ]`",
        Rule::tuple | Rule::args | Rule::params | Rule::field_params | Rule::layer_params => "`(`",
        Rule::kind => "`:`",
        Rule::index | Rule::history | Rule::count | Rule::shape => "`[`",
        Rule::range => "a range such as `0..n`",
        Rule::over => "`j in 0..n`",
        Rule::sub_flow | Rule::splitting => "a flow such as `A(1/2)`",
        Rule::method => "a method such as `fixed_point(iterations: 3)`",
        Rule::policy | Rule::policy_for => {
            "`per step`, `per use`, `shared`, `every n`, `cycle n` or `of time { … }`"
        }
        Rule::assign => "`name = …`",
        Rule::property | Rule::measured | Rule::proved => "a claim such as `A_stable`",
        Rule::key | Rule::train_entry | Rule::explore_entry => "an entry",
        Rule::entry | Rule::node => "a coefficient",
        Rule::row | Rule::line => "a row",
        Rule::open | Rule::options => "`{`",
        Rule::close => "`}`",
        Rule::eq => "`=`",
        Rule::bar => "`|`",
        Rule::EOI => "the next item",
        _ => return None,
    })
}
