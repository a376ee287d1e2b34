//! Tests of the tensor graph: ops, whole models, printed pictures.

mod common;
mod functions;
mod linear_attention;
mod models;
mod ops;
mod pictures;
mod solve;
mod text;
mod tiny;
