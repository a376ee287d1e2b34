//! The codes of all messages this crate gives about a user's source. They are stable: documentation and tests name them.

/// A name nobody defined.
pub const UNKNOWN_NAME: &str = "unknown-name";
/// Two definitions of one name in the namespace of schemes, fields and primitives.
pub const REDEFINITION: &str = "redefinition";
/// A field defined by itself.
pub const CYCLIC_DEFINITION: &str = "cyclic-definition";
/// A file that imports itself, perhaps through others.
pub const CYCLIC_IMPORT: &str = "cyclic-import";
/// An imported file that cannot be read.
pub const IMPORT_FAILED: &str = "import-failed";
/// A part of the language that this version parses but cannot compile.
pub const NOT_SUPPORTED: &str = "not-supported";
/// A scheme, flow, field, state or number where something else is expected.
pub const TYPE_MISMATCH: &str = "type-mismatch";
/// Too few or too many fields or positional arguments.
pub const ARGUMENT_COUNT: &str = "argument-count";
/// A label that the callee does not have.
pub const UNKNOWN_ARGUMENT: &str = "unknown-argument";
/// A required labelled argument that is not given.
pub const MISSING_ARGUMENT: &str = "missing-argument";
/// One argument given twice.
pub const REPEATED_ARGUMENT: &str = "repeated-argument";
/// A number outside of what its place allows.
pub const INVALID_VALUE: &str = "invalid-value";
/// A scheme with no right-hand side, or with several.
pub const SCHEME_BODY: &str = "scheme-body";
/// A tableau whose rows do not fit together.
pub const TABLEAU_SHAPE: &str = "tableau-shape";
/// A node `c` that is not the sum of its row.
pub const TABLEAU_ROW_SUM: &str = "tableau-row-sum";
/// An implicit tableau that does not say how its stages are found.
pub const IMPLICIT_TABLEAU: &str = "implicit-tableau";
/// A step program without `return`, or with statements after it.
pub const MISSING_RETURN: &str = "missing-return";
/// Rows of a multistep method that do not make one.
pub const MULTISTEP: &str = "multistep";
/// A past value where there is no history, or that no step makes.
pub const HISTORY: &str = "history";
/// The state, `h`, `t` or a field assigned to.
pub const NOT_ASSIGNABLE: &str = "not-assignable";
/// Exact arithmetic without a result: division by zero, numbers too large.
pub const ARITHMETIC: &str = "arithmetic";
/// More evaluations, steps, parameters or nesting than odec builds.
pub const TOO_LARGE: &str = "too-large";
/// A model or train block without a required item.
pub const MISSING_ITEM: &str = "missing-item";
/// An item that may stand once and stands twice.
pub const REPEATED_ITEM: &str = "repeated-item";
/// A train entry that does not exist.
pub const UNKNOWN_ENTRY: &str = "unknown-entry";
/// Sizes that do not fit together: heads and width, widths along a pipeline.
pub const SHAPE_MISMATCH: &str = "shape-mismatch";
/// A learned coefficient that nothing uses.
pub const UNUSED_NAME: &str = "unused-name";
/// A model that predicts tokens its attention has seen (warning).
pub const LOOKS_AHEAD: &str = "looks-ahead";
/// A claim about the order that is not true.
pub const FALSE_ORDER: &str = "false-order";
/// A claim about stages, structure or stability that is not true.
pub const FALSE_CLAIM: &str = "false-claim";
/// A claim about the order that is true of a higher order as well (warning).
pub const HIGHER_ORDER: &str = "higher-order";
/// A claim that odec can neither prove nor refute (warning).
pub const UNPROVED_CLAIM: &str = "unproved-claim";
/// An order that learned coefficients cannot keep.
pub const KEEP_ORDER: &str = "keep-order";
/// A method that looks back and has a lower order on the steps that are taken than on equal ones (warning).
pub const UNEQUAL_STEPS: &str = "unequal-steps";
/// Two parameters with one path.
pub const PARAMETER_COLLISION: &str = "parameter-collision";

/// Every code, in the order of this file.
pub const ALL: &[&str] = &[
    UNKNOWN_NAME,
    REDEFINITION,
    CYCLIC_DEFINITION,
    CYCLIC_IMPORT,
    IMPORT_FAILED,
    NOT_SUPPORTED,
    TYPE_MISMATCH,
    ARGUMENT_COUNT,
    UNKNOWN_ARGUMENT,
    MISSING_ARGUMENT,
    REPEATED_ARGUMENT,
    INVALID_VALUE,
    SCHEME_BODY,
    TABLEAU_SHAPE,
    TABLEAU_ROW_SUM,
    IMPLICIT_TABLEAU,
    MISSING_RETURN,
    MULTISTEP,
    HISTORY,
    NOT_ASSIGNABLE,
    ARITHMETIC,
    TOO_LARGE,
    MISSING_ITEM,
    REPEATED_ITEM,
    UNKNOWN_ENTRY,
    SHAPE_MISMATCH,
    UNUSED_NAME,
    LOOKS_AHEAD,
    FALSE_ORDER,
    FALSE_CLAIM,
    HIGHER_ORDER,
    UNPROVED_CLAIM,
    KEEP_ORDER,
    UNEQUAL_STEPS,
    PARAMETER_COLLISION,
];
