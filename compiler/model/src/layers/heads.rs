//! How columns are divided among heads, and what is said where they cannot be.

use super::Reading;
use crate::codes;
use crate::scheme::resolve::count;
use odec_grammar::Span;
use odec_grammar::ast::Expr;
use odec_grammar::diag::Diagnostic;
use odec_program::kernel::MOST_HEAD;

/// Columns of each head.
pub(super) fn columns_of_head(r: &mut Reading, said: &Expr, heads: u64, width: u64) -> Option<u64> {
    if width.is_multiple_of(heads) {
        return Some(width / heads);
    }
    let mut fewer = (1..=heads).rev();
    let near = fewer.find(|n| width.is_multiple_of(*n)).unwrap_or(1);
    let message = format!("{heads} heads do not divide the width {width}");
    let d = Diagnostic::error(codes::HEAD_COUNT, said.span, message)
        .label(format!("{width} / {heads} is not whole"));
    let columns = count((width / near) as usize, "column");
    r.fail(d.help(match near {
        1 => format!("a single head would have {columns}"),
        _ => format!("{near} heads would have {columns} each"),
    }))
}

/// Says so where kernels take no head of so many columns.
pub(super) fn narrow_enough(r: &mut Reading, said: Span, what: &str, columns: u64) -> Option<()> {
    if columns <= MOST_HEAD {
        return Some(());
    }
    let message = format!("a head of {what} has {columns} columns");
    let d = Diagnostic::error(codes::TOO_LARGE, said, message);
    r.fail(
        d.label(format!("at most {MOST_HEAD}"))
            .help("write more heads"),
    )
}

/// Heads of keys and values.
pub(super) fn shared_heads(r: &mut Reading, said: &Expr, heads: u64) -> Option<u64> {
    let n = r.whole(said, heads)?;
    if heads.is_multiple_of(n) {
        return Some(n);
    }
    let message = format!("{heads} heads cannot share {n} heads of keys and values");
    let d = Diagnostic::error(codes::HEAD_COUNT, said.span, message);
    r.fail(d.label(format!("{heads} / {n} is not whole")))
}
