//! The code of every message about a user's source: what it means and how to mend it.
//! `odec explain` and docs/errors.md print this list. Each code has an example of its name under `tests/errors`.

/// One code.
pub struct Code {
    /// Stable, kebab-case: what stands in brackets after `error` or `warning`.
    pub name: &'static str,
    /// What is wrong, in one or two sentences.
    pub meaning: &'static str,
    /// What to do about it.
    pub mend: &'static str,
}

macro_rules! codes {
    ($(#[$about:meta])* $list:ident $(#[doc = $meaning:literal] $constant:ident = $name:literal, $mend:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: &str = $name;)*
        $(#[$about])*
        pub const $list: &[Code] = &[$(Code { name: $constant, meaning: $meaning.trim_ascii(), mend: $mend }),*];
    };
}

/// All codes.
pub fn all() -> impl Iterator<Item = &'static Code> + Clone {
    CHECKING.iter().chain(PARSING)
}

/// The code of this name.
pub fn find(name: &str) -> Option<&'static Code> {
    all().find(|code| code.name == name)
}

codes! {
    /// Codes of this crate: text that is no file of the language, and `--set`. Examples: `grammar/tests/errors`.
    PARSING

    /// A path that `--set` could apply to several values.
    AMBIGUOUS_PATH = "ambiguous-path", "Write one of the longer paths that the message lists, or give the evolves labels.";
    /// Two values beside each other with nothing between them.
    MISSING_OPERATOR = "missing-operator", "Write the operator: `2*h`, not `2 h`. In a row of a tableau, put an entry that contains blanks or signs into parentheses.";
    /// Brackets or expressions inside each other beyond the parser's limit.
    NESTED_TOO_DEEPLY = "nested-too-deeply", "Name the inner parts with `let` or `field`, and cut long expressions into several.";
    /// A number with more digits than odec reads.
    NUMBER_TOO_LONG = "number-too-long", "Round it, or write it exactly as a fraction or a root: `1/3`, `sqrt(3)/6`.";
    /// A keyword used as a name.
    RESERVED_WORD = "reserved-word", "Choose another name.";
    /// A character that is no part of the language, such as a typographic quote or dash.
    STRANGE_CHARACTER = "strange-character", "Replace it with the plain character that the message names.";
    /// Documentation (`///`) with no definition after it.
    STRAY_DOC = "stray-doc", "Put `///` above a definition, or write `//` for a comment.";
    /// Text that does not have the form the language expects at this place.
    SYNTAX = "syntax", "The message says what was found and what is expected. `odec new` writes a file that parses.";
    /// A row of a tableau that is not `c | entries`.
    TABLEAU_ROW = "tableau-row", "Write stages as `c | a…` and weights as `| b…`, one row to a line.";
    /// A word where a keyword is expected.
    UNKNOWN_KEYWORD = "unknown-keyword", "Take the keyword that the message suggests.";
    /// A path given to `--set` under which the file has nothing.
    UNKNOWN_PATH = "unknown-path", "`odec check FILE --paths` lists every path with its value.";
    /// A bracket that is not closed, or closed by one of another kind.
    UNPAIRED_BRACKET = "unpaired-bracket", "Close the bracket that the message points at.";
    /// A text in quotes that does not end on its line.
    UNTERMINATED_STRING = "unterminated-string", "Add the closing quote.";
}

codes! {
    /// Codes of what names, numbers, schemes and models mean. Examples: `compiler/tests/errors`.
    CHECKING

    /// Too few or too many fields, states or unnamed values given to something.
    ARGUMENT_COUNT = "argument-count", "Give as many as the message says; values with a name stand as `name: value`.";
    /// Exact arithmetic without a result: a division by zero, a root that does not exist, or a number odec cannot keep exact.
    ARITHMETIC = "arithmetic", "Change the expression, or write the number as a decimal and claim the order `within` its precision.";
    /// A past value read in a step that has no such past.
    BEFORE_FIRST_STEP = "before-first-step", "Make the first entry in `start { … }`, or let `start by` take the first steps with a scheme of one step.";
    /// A field defined by itself, directly or through other fields.
    CYCLIC_DEFINITION = "cyclic-definition", "Break the circle. Repetition belongs in a scheme: `repeat`, or a fixed point with `solve`.";
    /// A file that imports itself, perhaps through others.
    CYCLIC_IMPORT = "cyclic-import", "Move what both files need into a third one.";
    /// A claim about stages, structure or stability that is not true.
    FALSE_CLAIM = "false-claim", "Look for a slip in the coefficients, or remove the claim. `odec analyze` shows what is true of the scheme.";
    /// A claimed order that the scheme does not have. The message shows the first order condition that fails.
    FALSE_ORDER = "false-order", "Look for a slip in the coefficients, or claim the order that holds. Coefficients written as decimals need `order 4 within 1e-12`.";
    /// A scheme with another number of fields than its body, or the place it is used at, integrates.
    FIELD_COUNT = "field-count", "Tableaus and multistep methods have exactly one field. Splittings and step programs may have several, and only a step program takes a list.";
    /// A field for `halting` that is not one number from 0 to 1 for each token.
    HALTING_FIELD = "halting-field", "End its pipeline in width 1 and `sigmoid`: `field halt = linear(1, bias) |> sigmoid`.";
    /// A number of heads that does not fit the width, the rotation or the other number of heads.
    HEAD_COUNT = "head-count", "Choose `heads` so that it divides `width`, `kv_heads` so that it divides `heads`, and an even number of columns per head where `rope` is used.";
    /// A claimed order below the true one (warning).
    HIGHER_ORDER = "higher-order", "Claim the higher order, if it is meant.";
    /// An imported file, or a file that the train block names, that cannot be read.
    IMPORT_FAILED = "import-failed", "Paths after `use` and `from` are relative to the file that says them. Check the name and the permissions.";
    /// Two parts of a file that are each valid and cannot be combined.
    INCOMPATIBLE = "incompatible", "Change one of the two parts, as the message suggests.";
    /// Rows of a multistep method that would not even integrate a constant slope.
    INCONSISTENT_ROWS = "inconsistent-rows", "Look for a slip in the rows: `alpha` begins with a number other than 0 and sums to 0, and `beta` sums to what `alpha` asks for.";
    /// A number that fits the range of its place but not its meaning.
    INVALID_VALUE = "invalid-value", "The message says which numbers are expected.";
    /// An order that learned coefficients cannot be kept at.
    KEEP_ORDER = "keep-order", "Start from coefficients that have the order, keep a lower one, or remove `keep order`.";
    /// A scheme to learn from that is not written in the form `learn` asks for.
    LEARN_SOURCE = "learn-source", "`learn tableau from` takes a scheme written as a tableau, `learn multistep from` one written as a multistep method.";
    /// A function of a linear field, such as `exp(h*L)(x)`, that is malformed or whose field is not linear.
    LINEAR_FIELD = "linear-field", "Write `exp(h*L)(x)` or `phi1(h*L)(v)`, and give `decay(rate: …)` alone for `L`.";
    /// A list whose length does not fit: one entry for each step, weight or row is expected.
    LIST_LENGTH = "list-length", "Give as many entries as the message says.";
    /// A model that predicts tokens its attention has already seen (warning).
    LOOKS_AHEAD = "looks-ahead", "Add `causal` to its attention, or train with `loss masked(rate: 15%)`.";
    /// Something that has a meaning elsewhere and none at this place.
    MISPLACED = "misplaced", "Remove it, or move it to where the message says it belongs.";
    /// A required argument that is not given.
    MISSING_ARGUMENT = "missing-argument", "Add it, as the message shows.";
    /// A model or train block without a required entry.
    MISSING_ITEM = "missing-item", "Add the entry that the message shows.";
    /// A step program without `return`, or with statements that are never reached.
    MISSING_RETURN = "missing-return", "End the step with one `return`, outside of `repeat`.";
    /// An implicit method that does not say how its equation is solved.
    MISSING_SOLVER = "missing-solver", "Add `solve by fixed_point(iterations: 3)`, or another solver. If the method is meant to be explicit, look for an entry on or above the diagonal.";
    /// A multistep method that does not say how its first steps are taken.
    MISSING_START = "missing-start", "Add `start by heun`, or another scheme of one step whose order is high enough.";
    /// Rows of a multistep method that are missing, unknown or too short.
    MULTISTEP_ROWS = "multistep-rows", "Write `multistep { alpha 1 -1; beta 0 3/2 -1/2 }`, newest entry first.";
    /// A scheme with a history inside of another flow, or mixed with other schemes.
    NESTED_HISTORY = "nested-history", "Apply it outermost, as the only scheme of its `evolve`.";
    /// A method of which `adjoint` cannot make the inverse step.
    NO_ADJOINT = "no-adjoint", "Write the adjoint's step yourself, or take the adjoint of a method whose states are the old one plus multiples of `h*F(y)`.";
    /// A loss term, constraint or way of tuning that would have nothing to act on.
    NO_EFFECT = "no-effect", "Remove it, or give the model what it acts on.";
    /// A past value where no value is kept from step to step.
    NO_HISTORY = "no-history", "Read an earlier value (`k[-1]`) or set the name in each step; a sum over a fixed range is `sum j in 0..n { … }`.";
    /// A number that is not known when the model is built, where one must be.
    NOT_A_CONSTANT = "not-a-constant", "Take a number that depends neither on the step size nor on a learned coefficient.";
    /// Something else where a field is expected: a flow, a scheme, a number.
    NOT_A_FIELD = "not-a-field", "Make a field of a flow with `increment(…)` (its change of the state) or `map(…)` (the new state); apply a scheme to fields first.";
    /// Something else where a flow, a scheme applied to fields, is expected.
    NOT_A_FLOW = "not-a-flow", "Apply a scheme to fields: `rk4(layer)`, `lie(att, ffn)`.";
    /// Something else where a list is expected.
    NOT_A_LIST = "not-a-list", "Write numbers in brackets, `[1, 2, 4]`, or name a list parameter of the scheme.";
    /// Something else where a number is expected.
    NOT_A_NUMBER = "not-a-number", "Write a number or the name of one: a value parameter, or a constant after `let`.";
    /// Something else where a scheme is expected.
    NOT_A_SCHEME = "not-a-scheme", "Name a scheme of the library or of your own, or make one of others: `adjoint(heun)`.";
    /// Something else where a state is expected: a number, a field that is not evaluated, a list.
    NOT_A_STATE = "not-a-state", "Evaluate a field, `F(x)`; take an entry of a list, `k[0]`; multiply a number by a state.";
    /// Something else where a text in quotes is expected.
    NOT_A_STRING = "not-a-string", "Put it in quotes: `\"corpus.txt\"`.";
    /// The state, `h`, `t`, a field or a learned coefficient that is assigned to.
    NOT_ASSIGNABLE = "not-assignable", "Choose another name for the value.";
    /// A name that has no value yet where it is read.
    NOT_SET = "not-set", "Set it before it is read; `k[-1]` is the value of the step before.";
    /// A part of the language that this version parses and does not compile.
    NOT_SUPPORTED = "not-supported", "Leave it out, or take what the message suggests in its place.";
    /// `solve` where nothing is implicit.
    NOTHING_TO_SOLVE = "nothing-to-solve", "Remove `solve`. It belongs to an implicit tableau or multistep method, or to an equation in which its own unknown stands.";
    /// `start` or `start by` where no step reads earlier values.
    NOTHING_TO_START = "nothing-to-start", "Remove it. It belongs to multistep methods, and to step programs that read earlier values.";
    /// A number outside of the range of its place.
    OUT_OF_RANGE = "out-of-range", "Choose a number in the range that the message gives.";
    /// Two parameters of a model with one path.
    PARAMETER_COLLISION = "parameter-collision", "Rename a field, or a learned coefficient of a scheme of your own.";
    /// Parameters of a scheme in an order that applying it could not tell apart.
    PARAMETER_ORDER = "parameter-order", "Write single fields first, then a list of fields, then numbers: `scheme name(A, L[..], r = 3)`.";
    /// A field with parameters whose pipeline begins with something else.
    PIPELINE_START = "pipeline-start", "Begin with a parameter or with `concat` of several: `field gate(u, v) = concat(u, v) |> linear(1)`.";
    /// Two definitions of one name.
    REDEFINITION = "redefinition", "Rename one of the two.";
    /// One argument given twice.
    REPEATED_ARGUMENT = "repeated-argument", "Remove one of the two.";
    /// An entry that may stand once and stands twice.
    REPEATED_ITEM = "repeated-item", "Remove one of the two.";
    /// A scheme that does not say what a step is, or says it twice.
    SCHEME_BODY = "scheme-body", "Give it exactly one body: `tableau { … }`, a splitting, `step x { … }`, `multistep { … }` or `method …`.";
    /// An operation that states do not have: they are added to states, and multiplied by numbers and by other states.
    STATE_ARITHMETIC = "state-arithmetic", "Put what is not linear into a field; `normalize(u, mean: 0, std: 1)` divides by a deviation.";
    /// A node `c` of a tableau that is not the sum of its row.
    TABLEAU_ROW_SUM = "tableau-row-sum", "Look for a slip in the row, or write the sum that the message gives.";
    /// A tableau whose rows do not fit together.
    TABLEAU_SHAPE = "tableau-shape", "Write one row for each stage, at most as many entries as stages, and one or two rows of weights at the end.";
    /// More evaluations, nodes, parameters or nesting than odec builds, or more memory than the budget.
    TOO_LARGE = "too-large", "Make it smaller: fewer steps, fewer iterations, shorter numbers, a cheaper scheme.";
    /// A method that has a lower order on the steps that are taken than on equal ones (warning).
    UNEQUAL_STEPS = "unequal-steps", "Take equal steps, or write the method as `multistep { … }` with rows that odec adapts to the grid.";
    /// A named argument that the callee does not have.
    UNKNOWN_ARGUMENT = "unknown-argument", "Take a name that the message lists.";
    /// An entry that a train block does not have.
    UNKNOWN_ENTRY = "unknown-entry", "Take one that the message lists.";
    /// A name that nothing defines.
    UNKNOWN_NAME = "unknown-name", "Take the name that the message suggests, define it, or import its file with `use`.";
    /// A word that is not among those its place takes: a solver, a gradient, a term of the loss, an input, a unit.
    UNKNOWN_OPTION = "unknown-option", "Take one of the words that the message lists.";
    /// A method whose order odec does not know, where it is needed.
    UNKNOWN_ORDER = "unknown-order", "Extrapolate a method whose order is proved, or combine methods with weights of your own: `average(…, weights: […])`.";
    /// A claim that odec can neither prove nor refute (warning).
    UNPROVED_CLAIM = "unproved-claim", "Leave the claim as it is, or remove it. docs/numerics.md says what can be proved.";
    /// Something named that nothing reads: a warning, or an error where it would be trained by nothing.
    UNUSED_NAME = "unused-name", "Read it, remove it, or begin its name with `_`.";
    /// A tokenizer, or a loss, that needs another number of kinds of tokens than the model has.
    VOCABULARY_MISMATCH = "vocabulary-mismatch", "Set `vocab` in `input tokens(…)` to the number that the message gives.";
    /// Values of different widths that are added, or a field whose result is not as wide as what it is added to.
    WIDTH_MISMATCH = "width-mismatch", "End the field in the width that is needed: `|> linear` has the state's, `|> linear(12)` has 12.";
}
