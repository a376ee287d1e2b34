//! The error codes: what each means, and how to fix it. `odec explain` and docs/errors.md print this list. Each code has an example of
//! its name under `tests/errors`.

use crate::Diagnostic;

/// Most messages that are shown of an example.
const MOST: usize = 2;

/// One code.
pub struct Code {
    /// Stable, kebab-case: printed in brackets after `error` or `warning`.
    pub name: &'static str,
    /// What is wrong, in one or two sentences.
    pub meaning: &'static str,
    /// What to do about it.
    pub remedy: &'static str,
}

impl Code {
    /// Of the messages about its example, those that `odec explain` and docs/errors.md show: the first ones with this code. Tests of the crates
    /// hold by snapshots what is left.
    pub fn shown<'d>(&self, messages: &'d [Diagnostic]) -> Vec<&'d Diagnostic> {
        let with_it = messages.iter().filter(|d| d.code == self.name);
        with_it.take(MOST).collect()
    }
}

macro_rules! codes {
    ($(#[$about:meta])* $list:ident $(#[doc = $meaning:literal] $constant:ident = $name:literal, $remedy:literal;)*) => {
        $(#[doc = $meaning] pub const $constant: &str = $name;)*
        $(#[$about])*
        pub const $list: &[Code] = &[$(Code { name: $constant, meaning: $meaning.trim_ascii(), remedy: $remedy }),*];
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
    /// Two values with no operator between them.
    MISSING_OPERATOR = "missing-operator", "Write the operator: `2*h`, not `2 h`. In a row of a tableau, put an entry that contains blanks or signs in parentheses.";
    /// Brackets or expressions inside each other beyond the parser's limit.
    NESTED_TOO_DEEPLY = "nested-too-deeply", "Name the inner parts with `let` or `field`, and cut long expressions into several.";
    /// A number with more digits than odec reads.
    NUMBER_TOO_LONG = "number-too-long", "Round it, or write it exactly as a fraction or a root: `1/3`, `sqrt(3)/6`.";
    /// A keyword used as a name.
    RESERVED_WORD = "reserved-word", "Choose another name.";
    /// A character that is not part of the language, such as a typographic quote or dash.
    STRANGE_CHARACTER = "strange-character", "Replace it with the plain character that the message names.";
    /// Documentation (`///`) with no definition after it.
    STRAY_DOC = "stray-doc", "Put `///` above a definition, or write `//` for a comment.";
    /// Text that does not have the form the language expects at this place.
    SYNTAX = "syntax", "The message says what was found and what is expected. `odec new` writes a file that parses.";
    /// A row of a tableau that is not `c | entries`.
    TABLEAU_ROW = "tableau-row", "Write stages as `c | a…` and weights as `| b…`, one row to a line.";
    /// A word where a keyword is expected.
    UNKNOWN_KEYWORD = "unknown-keyword", "Take the keyword that the message suggests.";
    /// A path given to `--set` that does not exist in the file.
    UNKNOWN_PATH = "unknown-path", "`odec check FILE --paths` lists every path with its value.";
    /// A bracket that is not closed, or closed by one of another kind.
    UNPAIRED_BRACKET = "unpaired-bracket", "Close the bracket that the message points at.";
    /// A string that is not closed on its line.
    UNTERMINATED_STRING = "unterminated-string", "Add the closing quote.";
}

codes! {
    /// Codes of what names, numbers, schemes and models mean. Examples: `compiler/tests/errors`.
    CHECKING

    /// Too few or too many fields, states or unnamed values given to something.
    ARGUMENT_COUNT = "argument-count", "Give as many as the message says. Named values are written `name: value`.";
    /// Exact arithmetic without a result: a division by zero, a root that does not exist, or a number odec cannot keep exact.
    ARITHMETIC = "arithmetic", "Change the expression, or write the number as a decimal and claim the order `within` its precision.";
    /// A step reads a value from before the first step.
    BEFORE_FIRST_STEP = "before-first-step", "Set the first value in `start { … }`, or let `start by` take the first steps with a one-step scheme.";
    /// A field defined by itself, directly or through other fields.
    CYCLIC_DEFINITION = "cyclic-definition", "Break the cycle. Write repetition in a scheme: `repeat`, or a fixed point with `solve`.";
    /// A file that imports itself, perhaps through others.
    CYCLIC_IMPORT = "cyclic-import", "Move what both files need into a third one.";
    /// A claim about stages, structure or stability that is not true.
    FALSE_CLAIM = "false-claim", "Check the coefficients for a typo, or remove the claim. `odec analyze` shows what holds for the scheme.";
    /// A claimed order that the scheme does not have. The message shows the first order condition that fails.
    FALSE_ORDER = "false-order", "Check the coefficients for a typo, or claim the order that holds. Coefficients written as decimals need `order 4 within 1e-12`.";
    /// A scheme whose number of fields does not fit its body or its use.
    FIELD_COUNT = "field-count", "Tableaus and multistep methods have exactly one field. Splittings and step programs may have several, and only a step program takes a list.";
    /// A field for `halting` that is not one number from 0 to 1 for each token.
    HALTING_FIELD = "halting-field", "End its pipeline in width 1 and `sigmoid`: `field halt = linear(1, bias) |> sigmoid`.";
    /// A number of heads that does not fit the width, the rotation or the other number of heads.
    HEAD_COUNT = "head-count", "Choose `heads` so that it divides `width`, `kv_heads` so that it divides `heads`, and an even number of columns per head where `rope` is used.";
    /// A claimed order below the true one (warning).
    HIGHER_ORDER = "higher-order", "Claim the higher order, if it is intended.";
    /// An imported file, or a file that the train block names, that cannot be read.
    IMPORT_FAILED = "import-failed", "Paths after `use` and `from` are relative to the file that contains them. Check the name and the permissions.";
    /// Two parts of a file that are each valid and cannot be combined.
    INCOMPATIBLE = "incompatible", "Change one of the two parts, as the message suggests.";
    /// Rows of a multistep method that is not consistent: it would not integrate a constant slope exactly.
    INCONSISTENT_ROWS = "inconsistent-rows", "Check the rows for a typo: `alpha` begins with a number other than 0 and sums to 0, and `beta` sums to the value that the message gives.";
    /// A number that is in range but cannot be used here.
    INVALID_VALUE = "invalid-value", "The message says which numbers are expected.";
    /// An order that training cannot keep for the learned coefficients.
    KEEP_ORDER = "keep-order", "Start from coefficients that have the order, keep a lower one, or remove `keep order`.";
    /// A scheme after `learn … from` that is not written in the required form.
    LEARN_SOURCE = "learn-source", "`learn tableau from` takes a scheme written as a tableau, `learn multistep from` one written as a multistep method.";
    /// A function of a linear field, such as `exp(h*L)(x)`, that is malformed or whose field is not linear.
    LINEAR_FIELD = "linear-field", "Write `exp(h*L)(x)` or `phi1(h*L)(v)`, and give `decay(rate: …)` alone for `L`.";
    /// A list whose length does not fit: one entry for each step, weight or row is expected.
    LIST_LENGTH = "list-length", "Give as many entries as the message says.";
    /// A model whose attention sees the tokens that it is trained to predict (warning).
    LOOKS_AHEAD = "looks-ahead", "Add `causal` to its attention, or train with `loss masked(rate: 15%)`.";
    /// Something that is allowed elsewhere and not at this place.
    MISPLACED = "misplaced", "Remove it, or move it to where the message says it belongs.";
    /// A required argument that is not given.
    MISSING_ARGUMENT = "missing-argument", "Add it, as the message shows.";
    /// A model or train block without a required entry.
    MISSING_ITEM = "missing-item", "Add the entry that the message shows.";
    /// A step program without `return`, or with statements that are never reached.
    MISSING_RETURN = "missing-return", "End the step with one `return`, outside of `repeat`.";
    /// An implicit method without a solver.
    MISSING_SOLVER = "missing-solver", "Add `solve by fixed_point(iterations: 3)`, or another solver. If the method is meant to be explicit, look for an entry on or above the diagonal.";
    /// A multistep method without a scheme for its first steps.
    MISSING_START = "missing-start", "Add `start by heun`, or another one-step scheme of sufficient order.";
    /// Rows of a multistep method that are missing, unknown or too short.
    MULTISTEP_ROWS = "multistep-rows", "Write `multistep { alpha 1 -1; beta 0 3/2 -1/2 }`, newest entry first.";
    /// A scheme that reads values of earlier steps inside another flow, or mixed with other schemes.
    NESTED_HISTORY = "nested-history", "Apply it outermost, as the only scheme of its `evolve`.";
    /// A method whose adjoint odec cannot construct.
    NO_ADJOINT = "no-adjoint", "Write the adjoint's step yourself, or take the adjoint of a method whose states are the old one plus multiples of `h*F(y)`.";
    /// A loss term, constraint or way of tuning that has no effect on this model.
    NO_EFFECT = "no-effect", "Remove it, or change the model so that it applies.";
    /// Parameters that no gradient reaches, so that training leaves them as they begin (warning).
    NO_GRADIENT = "no-gradient", "Share weights between steps, or let the gradient pass through more of them.";
    /// An earlier value of a name that is not kept from step to step.
    NO_HISTORY = "no-history", "Read an earlier value (`k[-1]`) or set the name in each step; a sum over a fixed range is `sum j in 0..n { … }`.";
    /// A number that must be known when the model is compiled and is not.
    NOT_A_CONSTANT = "not-a-constant", "Use a number that depends neither on the step size nor on a learned coefficient.";
    /// Something else where a field is expected: a flow, a scheme, a number.
    NOT_A_FIELD = "not-a-field", "Make a field of a flow with `increment(…)` (its change of the state) or `map(…)` (the new state); apply a scheme to fields first.";
    /// Something else where a flow, a scheme applied to fields, is expected.
    NOT_A_FLOW = "not-a-flow", "Apply a scheme to fields: `rk4(layer)`, `lie(att, ffn)`.";
    /// Something else where a list is expected.
    NOT_A_LIST = "not-a-list", "Write numbers in brackets, `[1, 2, 4]`, or name a list parameter of the scheme.";
    /// Something else where a number is expected.
    NOT_A_NUMBER = "not-a-number", "Write a number or the name of one: a value parameter, or a constant after `let`.";
    /// Something else where a scheme is expected.
    NOT_A_SCHEME = "not-a-scheme", "Name a scheme of the library or of your own, or derive one: `adjoint(heun)`.";
    /// Something else where a state is expected: a number, a field that is not evaluated, a list.
    NOT_A_STATE = "not-a-state", "Evaluate a field, `F(x)`; take an entry of a list, `k[0]`; multiply a number by a state.";
    /// Something else where a string is expected.
    NOT_A_STRING = "not-a-string", "Put it in quotes: `\"corpus.txt\"`.";
    /// An assignment to the state, `h`, `t`, a field or a learned coefficient.
    NOT_ASSIGNABLE = "not-assignable", "Choose another name for the value.";
    /// A name that has no value yet where it is read.
    NOT_SET = "not-set", "Set it before it is read; `k[-1]` is the value of the step before.";
    /// A feature that this version of odec does not support.
    NOT_SUPPORTED = "not-supported", "Leave it out, or use what the message suggests instead.";
    /// `solve` where nothing is implicit.
    NOTHING_TO_SOLVE = "nothing-to-solve", "Remove `solve`. It is for implicit tableaus and multistep methods, and for equations that contain their own unknown.";
    /// `start` or `start by` where no step reads earlier values.
    NOTHING_TO_START = "nothing-to-start", "Remove it. It is for multistep methods, and for step programs that read earlier values.";
    /// A number outside the allowed range.
    OUT_OF_RANGE = "out-of-range", "Choose a number in the range that the message gives.";
    /// Two parameters of a model with one path.
    PARAMETER_COLLISION = "parameter-collision", "Rename a field, or a learned coefficient of a scheme of your own.";
    /// Parameters of a scheme in an order that makes its arguments ambiguous.
    PARAMETER_ORDER = "parameter-order", "Write single fields first, then a list of fields, then numbers: `scheme name(A, L[..], r = 3)`.";
    /// A field with parameters whose pipeline begins with something else.
    PIPELINE_START = "pipeline-start", "Begin with a parameter or with `concat` of several: `field gate(u, v) = concat(u, v) |> linear(1)`.";
    /// Two definitions of one name.
    REDEFINITION = "redefinition", "Rename one of the two.";
    /// One argument given twice.
    REPEATED_ARGUMENT = "repeated-argument", "Remove one of the two.";
    /// An entry that is given twice and allowed once.
    REPEATED_ITEM = "repeated-item", "Remove one of the two.";
    /// A field for `routed` that is not one number for each number of steps.
    ROUTING_FIELD = "routing-field", "End its pipeline in as many columns as there are steps at most: `field route = linear(3)` for `routed(route, max: 3)`.";
    /// A scheme that does not define its step, or defines it twice.
    SCHEME_BODY = "scheme-body", "Give it exactly one body: `tableau { … }`, a splitting, `step x { … }`, `multistep { … }` or `method …`.";
    /// An operation that states do not have: states are added, and multiplied by numbers and by other states.
    STATE_ARITHMETIC = "state-arithmetic", "Put what is not linear into a field; `normalize(u, mean: 0, std: 1)` divides by a deviation.";
    /// A node `c` of a tableau that is not the sum of its row.
    TABLEAU_ROW_SUM = "tableau-row-sum", "Check the row for a typo, or write the sum that the message gives.";
    /// A tableau whose rows do not fit together.
    TABLEAU_SHAPE = "tableau-shape", "Write one row for each stage, at most as many entries as stages, and one or two rows of weights at the end.";
    /// More evaluations, nodes, parameters or nesting than odec builds, or more memory than the budget.
    TOO_LARGE = "too-large", "Make it smaller: fewer steps, fewer iterations, shorter numbers, a cheaper scheme.";
    /// A method that has a lower order on these unequal steps than on equal ones (warning).
    UNEQUAL_STEPS = "unequal-steps", "Take equal steps, or write the method as `multistep { … }` with rows that odec adapts to the grid.";
    /// A named argument that the callee does not have.
    UNKNOWN_ARGUMENT = "unknown-argument", "Use a name that the message lists.";
    /// An entry that a train block does not have.
    UNKNOWN_ENTRY = "unknown-entry", "Use one that the message lists.";
    /// A name that nothing defines.
    UNKNOWN_NAME = "unknown-name", "Use the name that the message suggests, define it, or import its file with `use`.";
    /// An unknown word for a solver, a gradient, a term of the loss, an input or a unit.
    UNKNOWN_OPTION = "unknown-option", "Use one of the words that the message lists.";
    /// A method whose order odec does not know, where it is needed.
    UNKNOWN_ORDER = "unknown-order", "Extrapolate a method whose order is proved, or combine methods with weights of your own: `average(…, weights: […])`.";
    /// A claim that odec can neither prove nor refute (warning).
    UNPROVED_CLAIM = "unproved-claim", "Leave the claim as it is, or remove it. docs/numerics.md says what can be proved.";
    /// A name that nothing reads: a warning, or an error where it would get no gradient.
    UNUSED_NAME = "unused-name", "Read it, remove it, or begin its name with `_`.";
    /// A tokenizer or a loss that needs another vocabulary size than the model has.
    VOCABULARY_MISMATCH = "vocabulary-mismatch", "Set `vocab` in `input tokens(…)` to the number that the message gives.";
    /// Values of different widths that are added, or a field whose result is not as wide as what it is added to.
    WIDTH_MISMATCH = "width-mismatch", "End the field in the width that is needed: `|> linear` has the state's, `|> linear(12)` has 12.";
}
