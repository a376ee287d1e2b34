//! The grammar's rules, and the parser that pest makes of them.

#[derive(pest_derive::Parser)]
#[grammar = "../odec.pest"]
pub(crate) struct OdecParser;
