//! The grammar's rules, and the parser that pest generates from them.

#[derive(pest_derive::Parser)]
#[grammar = "../odec.pest"]
pub(crate) struct OdecParser;
